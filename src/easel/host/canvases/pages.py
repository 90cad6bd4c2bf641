"""What the page of a canvas may do: be read by its view token, enter values where its spec lets it, and be reported on. CV-05

A view token opens the assets of one canvas for a while, and nothing else: whoever has it has no sign-in. It is signed and stored
nowhere, so every instance can check it. It ends with the token or the sign-in that it was made under, and a new owner's token ends them all.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from typing import Any

from msgspec import UnsetType

from easel.core.canvas.canvas import CanvasSnapshot, Change, check_revision
from easel.core.canvas.inputs import apply_input
from easel.core.canvas.spec import check_state_size
from easel.core.principal import Principal
from easel.core.stream.payload_limit import offload_large_values
from easel.core.values.patch import parse_pointer
from easel.core.values.paths import check_names
from easel.errors import Forbidden, NotFound
from easel.host.artifacts import Artifacts
from easel.host.audit import Audit
from easel.host.auth.sign_in import SignIn
from easel.host.canvases.transactions import CanvasTransactions, events_for
from easel.ids import UserId

REFUSED = "canvas.page.refused"


@dataclass(frozen=True, slots=True)
class PageView:
    """What a token opens: the assets of one canvas, for whoever was shown its page."""

    principal: Principal
    canvas_id: str


class CanvasPages:
    def __init__(
        self,
        changes: CanvasTransactions,
        artifacts: Artifacts,
        audit: Audit,
        sign_in: SignIn,
        *,
        token_seconds: float,
        max_state_bytes: int,
    ) -> None:
        self._changes = changes
        self._artifacts = artifacts
        self._audit = audit
        self._sign_in = sign_in
        self._key = sign_in.key("canvas view")
        self._seconds = token_seconds
        self._most = max_state_bytes

    # -- view tokens -----------------------------------------------------------------------------------------------

    def new_token(self, principal: Principal, canvas_id: str, now: float) -> tuple[str, int]:
        """A token, and until when it works, in whole seconds."""
        until = int(now + self._seconds)
        parts = (
            principal.user_id,
            canvas_id,
            principal.token_id or "",
            *((principal.sign_in_id,) if principal.sign_in_id else ()),
        )
        said = ".".join((str(until), *(_encode(part.encode()) for part in parts)))
        return f"{said}.{self._signature(said)}", until

    async def opened_by(self, token: str, now: float) -> PageView:
        """One that is forged or over opens nothing, and nothing more is told of it."""
        said, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(said).encode()):
            raise NotFound(what="page", id="behind this address")
        until, *parts = said.split(".")
        user_id, canvas_id, token_id, *of_browser = map(_decode, parts)
        if now >= int(until) or (token_id and not await self._sign_in.still_holds(token_id)):
            raise NotFound(what="page", id="behind this address any more")
        if of_browser and await self._sign_in.is_signed_out(of_browser[0]):
            raise NotFound(what="page", id="behind this address any more")
        return PageView(Principal(UserId(user_id), "page"), canvas_id)

    def _signature(self, said: str) -> str:
        return _encode(hmac.new(self._key, said.encode("utf-8", "surrogatepass"), hashlib.sha256).digest())

    # -- what a page enters ----------------------------------------------------------------------------------------

    async def enter(
        self,
        principal: Principal,
        canvas_id: str,
        path: str,
        *,
        value: Any,
        was: Any | UnsetType,
        expected_revision: int | None,
    ) -> CanvasSnapshot:
        """One value at one place, on the state as it is when it is its turn. RS-41"""
        place = parse_pointer(path, "path")
        check_names(value, "value")
        light, offloaded = offload_large_values(value)
        events = events_for(principal, canvas_id)

        def decide(snapshot: CanvasSnapshot) -> Change | None:
            check_revision(snapshot.canvas, expected_revision)
            changed = apply_input(snapshot.canvas.spec, snapshot.canvas.state, place, light, was)
            if changed is None:
                return None
            check_state_size(changed.state, self._most)
            return Change(
                events=[events.updated(snapshot.canvas.revision + 1, changed.paths)], state=changed.state
            )

        await self._artifacts.store(principal.user_id, offloaded)
        try:
            return (await self._changes.apply(principal, canvas_id, decide)).snapshot
        except Forbidden as problem:
            self._audit.record_throttled(
                principal, REFUSED, subject=canvas_id, details={"what": "input", "problem": problem.message}
            )
            raise

    async def report(self, principal: Principal, canvas_id: str, what: str, detail: str, count: int) -> None:
        """The page tried what no page may, and the shell around it refused. CV-05"""
        await self._changes.find(principal, canvas_id)
        self._audit.record_throttled(
            principal, REFUSED, subject=canvas_id, details={"what": what, "detail": detail, "refused": count}
        )


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(letters: str) -> str:
    try:
        return base64.urlsafe_b64decode(letters + "=" * (-len(letters) % 4)).decode()
    except (binascii.Error, ValueError):  # we signed it, so it never is
        raise NotFound(what="page", id="behind this address") from None
