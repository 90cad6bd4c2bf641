"""Who is calling: the owner's token, the tokens that were made for others, and the cookie a browser gets for either.

A cookie is signed with the owner's token and says when it ends, so every instance that knows the token can check it and a new
token ends all cookies. One that stands for a token of a table names it, and ends with it. Each names its browser's sign-in, and ends
with that: see `sign_outs`. Neither token nor cookie is ever logged.
What was revoked opens nothing after `RECHECK_SECONDS`, on any instance, and what is open by it is ended: see `watch`.
"""

import asyncio
import contextlib
import hashlib
import hmac
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace

import structlog

from easel.core.principal import THE_OWNER, Principal, PrincipalKind
from easel.core.token import digest_of, is_token
from easel.errors import NotSignedIn, Unavailable
from easel.host.auth.revoked_sign_ins import RevokedSignIns
from easel.host.ports import TokenStore
from easel.ids import new_sign_in_id

COOKIE_SECONDS = 30 * 24 * 3600
RECHECK_SECONDS = 1.0
MAX_KNOWN = 1_000  # tokens that are remembered between two looks
SIGN_IN = "sign_"  # how the id of a sign-in begins

log = structlog.get_logger("sign_in")


@dataclass(frozen=True, slots=True)
class _Known:
    principal: Principal
    looked_at: float


class SignIn:
    def __init__(
        self, owner_token: str, tokens: TokenStore | None = None, sign_outs: RevokedSignIns | None = None
    ) -> None:
        self.owner_token = owner_token
        self._tokens = tokens
        self._sign_outs = sign_outs
        if sign_outs is not None:
            sign_outs.told = self._end
        self._known: dict[str, _Known] = {}  # by digest, or by id where a cookie named it
        self._watched: dict[str, set[Callable[[], None]]] = {}  # by token or sign-in: what ends with it
        self._watching: asyncio.Task[None] | None = None

    async def by_token(self, token: str) -> Principal | None:
        if hmac.compare_digest(_digest(token), _digest(self.owner_token)):
            return THE_OWNER
        return await self._look(digest_of(token), by_digest=True) if is_token(token) else None

    def new_cookie(
        self, now: float, principal: Principal = THE_OWNER, before: Principal | None = None
    ) -> str:
        """For a person: a program or a machine shows its token each time.

        A browser that was theirs `before` stays in the same sign-in: one sign-out ends all that it has open.
        """
        assert principal.is_person
        is_same = before is not None and (before.user_id, before.token_id) == (
            principal.user_id,
            principal.token_id,
        )
        sign_in_id = before.sign_in_id if before is not None and is_same else None
        said = f"{int(now) + COOKIE_SECONDS}.{sign_in_id or new_sign_in_id()}.{principal.token_id or ''}"
        return f"{said}.{self._signature(said)}"

    async def by_cookie(self, cookie: str, now: float) -> Principal | None:
        said, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(said).encode()):
            return None
        until, *named = said.split(".")
        if not now < int(until):
            return None
        match named:
            case [sign_in_id, token_id]:
                pass
            case _:  # of before sign-ins had names: the cookie itself is as good as one
                sign_in_id, token_id = f"{SIGN_IN}{_digest(cookie).hex()[:26]}", "".join(named)
        if await self.is_signed_out(sign_in_id):
            return None
        principal = await self._look(token_id, by_digest=False) if token_id else THE_OWNER
        return None if principal is None else replace(principal, sign_in_id=sign_in_id)

    async def sign_out(self, principal: Principal) -> None:
        """Their browser's cookie opens nothing any more, on any instance, and what is open by it is ended."""
        if self._sign_outs is not None and principal.sign_in_id is not None:
            await self._sign_outs.end(principal.user_id, principal.sign_in_id)

    async def is_signed_out(self, sign_in_id: str) -> bool:
        return self._sign_outs is not None and await self._sign_outs.has_ended(sign_in_id)

    def key(self, purpose: str) -> bytes:
        """A key for each purpose, the same on every instance; with a new owner's token all of them are new."""
        return hmac.new(self.owner_token.encode(), f"easel key {purpose}".encode(), hashlib.sha256).digest()

    async def still_holds(self, token_id: str) -> bool:
        """Whether what was signed in this token's name counts: it was not revoked."""
        return self._tokens is not None and token_id in await self._tokens.filter_valid([token_id])

    # -- as long as what they came with holds ------------------------------------------------------------------------

    def watch(self, principal: Principal, ended: Callable[[], None]) -> Callable[[], None]:
        """`ended` is called once, when their token is revoked or their browser signed out; the answer is how to stop watching."""
        keys = [key for key in (principal.token_id, principal.sign_in_id) if key is not None]

        def end() -> None:
            stop()
            ended()

        def stop() -> None:
            for key in keys:
                watchers = self._watched.get(key, set())
                watchers.discard(end)
                if not watchers:
                    self._watched.pop(key, None)

        for key in keys:
            self._watched.setdefault(key, set()).add(end)
        if keys and (self._watching is None or self._watching.done()):
            self._watching = asyncio.create_task(self._watch())
        if (
            self._sign_outs is not None
            and principal.sign_in_id is not None
            and self._sign_outs.knows(principal.sign_in_id)
        ):
            end()  # between the look at the cookie and here
        return stop

    @contextlib.asynccontextmanager
    async def while_valid(self, principal: Principal) -> AsyncGenerator[None]:
        """Ends what is inside with `NotSignedIn` when their token is revoked, or they sign out."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                stop = self.watch(principal, lambda: limit.reschedule(0))
                try:
                    yield
                finally:
                    stop()
        except TimeoutError:
            if not limit.expired():
                raise
            raise NotSignedIn from None

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        while self._watched:
            await asyncio.sleep(RECHECK_SECONDS)
            try:
                await self.once()
            except Unavailable:
                log.debug("tokens.not_checked")  # the next look is as good
            except Exception:
                log.exception("tokens.check_error")

    async def once(self) -> None:
        """End what was opened with a token that was revoked since, or by a browser that was signed out."""
        if self._sign_outs is not None:
            await self._sign_outs.look([key for key in self._watched if key.startswith(SIGN_IN)])
        watched = [key for key in self._watched if not key.startswith(SIGN_IN)]
        if self._tokens is None or not watched:
            return
        valid = await self._tokens.filter_valid(watched)
        revoked = [token_id for token_id in watched if token_id not in valid]
        if revoked:
            self._known = {
                key: known for key, known in self._known.items() if known.principal.token_id not in revoked
            }
        for token_id in revoked:
            self._end(token_id)

    def _end(self, key: str) -> None:
        for end in list(self._watched.get(key, ())):
            end()

    # -- looking ---------------------------------------------------------------------------------------------------

    async def _look(self, key: str, *, by_digest: bool) -> Principal | None:
        if self._tokens is None:
            return None
        known = self._known.get(key)
        if known is not None and time.monotonic() - known.looked_at < RECHECK_SECONDS:
            return known.principal
        self._known.pop(key, None)
        found = await (self._tokens.find_by_digest(key) if by_digest else self._tokens.find_by_id(key))
        if found is None or (not by_digest and found.principal.kind is not PrincipalKind.USER):
            return None
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[key] = _Known(found.principal, time.monotonic())
        return found.principal

    def _signature(self, said: str) -> str:
        return hmac.new(
            self.owner_token.encode(), f"easel cookie {said}".encode(), hashlib.sha256
        ).hexdigest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
