"""The pages of canvases: snapshot pictures, view tokens, inputs of fields, and reports of violations. CV-05

Owns view tokens. A view token gives access to the assets of one canvas for a limited time, and to nothing
else. There are two kinds: an isolated view may have the assets of a canvas that no person has accepted; the
shell uses it only in a browser that enforces the connection policy of the view (RS-63). A token is signed and
not stored, so every instance can verify it. It becomes invalid when the token or sign-in that it was issued
for is revoked; a new owner token invalidates all view tokens. Does not know HTTP.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Any

from msgspec import UnsetType

from easel.core.artifact.artifact import Artifact
from easel.core.canvas import inputs
from easel.core.canvas.canvas import CanvasSnapshot, Change, check_revision
from easel.core.canvas.spec import check_state_size
from easel.core.principal import Principal
from easel.core.stream.payload_limit import offload_large_values
from easel.core.values.patch import parse_pointer
from easel.core.values.paths import check_names
from easel.errors import BadInput, Forbidden, NotFound
from easel.host.artifacts.artifacts import Artifacts
from easel.host.audit.audit import Audit
from easel.host.auth.credentials import Credentials
from easel.host.canvases.transactions import CanvasTransactions, events_for
from easel.ids import AccountId

REFUSED = "canvas.page.refused"
SNAPSHOT_MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
VIEW_TOKEN_SECONDS = (
    43_200  # of the address of a page: a working day; opening the canvas again makes a new one
)
_ISOLATED = "isolated"  # the last part of the token of an isolated view


@dataclass(frozen=True, slots=True)
class PageView:
    """The canvas whose assets a view token gives access to, and the principal of the view."""

    principal: Principal
    canvas_id: str
    is_isolated: bool = False  # the shell found that its browser enforces the view's connection policy


class CanvasPages:
    """Issues and verifies view tokens, applies inputs of pages and records their violations."""

    def __init__(
        self,
        transactions: CanvasTransactions,
        artifacts: Artifacts,
        audit: Audit,
        credentials: Credentials,
        *,
        key: bytes,
        max_state_bytes: int,
    ) -> None:
        self._transactions = transactions
        self._artifacts = artifacts
        self._audit = audit
        self._credentials = credentials
        self._key = key
        self._max_state_bytes = max_state_bytes

    # -- snapshot pictures -----------------------------------------------------------------------------------

    async def add_snapshot(
        self, principal: Principal, canvas_id: str, picture: AsyncIterable[bytes], declared_type: str
    ) -> tuple[Artifact, int]:
        """Store a picture as an artifact and append an event that refers to it.

        Returns the artifact and the seq of the event. CC-24
        """
        await self._transactions.find(principal, canvas_id)
        artifact = await self._artifacts.upload(principal, picture, declared_type)
        if artifact.media_type not in SNAPSHOT_MEDIA_TYPES:
            raise BadInput(
                problem="A snapshot must be a picture (PNG, JPEG, GIF, WebP or AVIF); "
                f"this is {artifact.media_type}."
            )
        events = events_for(principal, canvas_id)

        def decide(snapshot: CanvasSnapshot) -> Change:
            event = events.snapshot(
                snapshot.canvas.revision,
                artifact.artifact_id,
                artifact.uri,
                media_type=artifact.media_type,
                size=artifact.size,
                sha256=artifact.sha256,
            )
            return Change(events=[event], is_mutation=False)

        done = await self._transactions.apply(principal, canvas_id, decide)
        return artifact, done.after.canvas.last_seq

    # -- view tokens -----------------------------------------------------------------------------------------

    def new_token(
        self, principal: Principal, canvas_id: str, now: float, *, is_isolated: bool = False
    ) -> tuple[str, int]:
        """Return a view token and its expiry time in seconds since 1970."""
        until = int(now + VIEW_TOKEN_SECONDS)
        parts = (
            principal.account_id,
            canvas_id,
            principal.token_id or "",
            *((principal.sign_in_id or "",) if principal.sign_in_id or is_isolated else ()),
            *((_ISOLATED,) if is_isolated else ()),
        )
        payload = ".".join((str(until), *(_encode(part.encode()) for part in parts)))
        return f"{payload}.{self._signature(payload)}", until

    async def verify_token(self, token: str, now: float) -> PageView:
        """Return the view of a token. Raises `NotFound` if the token is forged, expired or revoked."""
        payload, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(payload).encode()):
            raise NotFound(what="page", id="at this address")
        until, *parts = payload.split(".")
        account_id, canvas_id, token_id, *more = map(_decode, parts)
        owner, sign_in_id = AccountId(account_id), more[0] if more and more[0] else None
        if now >= int(until):
            raise NotFound(what="page", id="at this address")
        # A principal of a test or of Easel itself has no credential that could end.
        if (token_id or sign_in_id) and (
            await self._credentials.find(owner, token_id=token_id, sign_in_id=sign_in_id) is None
        ):
            raise NotFound(what="page", id="at this address")
        return PageView(Principal(owner, "page"), canvas_id, is_isolated=_ISOLATED in more[1:])

    def _signature(self, payload: str) -> str:
        return _encode(hmac.new(self._key, payload.encode("utf-8", "surrogatepass"), hashlib.sha256).digest())

    # -- messages of pages -----------------------------------------------------------------------------------

    async def apply_input(
        self,
        principal: Principal,
        canvas_id: str,
        path: str,
        *,
        value: Any,
        was: Any | UnsetType,
        expected_revision: int | None,
    ) -> CanvasSnapshot:
        """Write a value that a page sends to the state. RS-41

        Raises `Forbidden` if the page may not write this path, and `InputConflict` if the value at the path
        differs from `was`.
        """
        target = parse_pointer(path, "path")
        check_names(value, "value")
        stored, offloaded = offload_large_values(value)
        events = events_for(principal, canvas_id)

        def decide(snapshot: CanvasSnapshot) -> Change | None:
            check_revision(snapshot.canvas, expected_revision)
            changed = inputs.apply_input(snapshot.canvas.spec, snapshot.canvas.state, target, stored, was)
            if changed is None:
                return None
            check_state_size(changed.state, self._max_state_bytes)
            return Change(
                events=[events.updated(snapshot.canvas.revision + 1, changed.paths)],
                offloaded=offloaded,
                state=changed.state,
            )

        try:
            return (await self._transactions.apply(principal, canvas_id, decide)).after
        except Forbidden as problem:
            self._audit.record_throttled(
                principal, REFUSED, subject=canvas_id, details={"what": "input", "problem": problem.message}
            )
            raise

    async def report_violation(
        self, principal: Principal, canvas_id: str, what: str, detail: str, count: int
    ) -> None:
        """Record in the audit trail that the shell around a page refused requests of the page. CV-05"""
        await self._transactions.find(principal, canvas_id)
        self._audit.record_throttled(
            principal, REFUSED, subject=canvas_id, details={"what": what, "detail": detail, "refused": count}
        )


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(letters: str) -> str:
    try:
        return base64.urlsafe_b64decode(letters + "=" * (-len(letters) % 4)).decode()
    except (binascii.Error, ValueError):  # cannot happen with a valid signature
        raise NotFound(what="page", id="at this address") from None
