"""Who is calling: the owner's token, the tokens that were made for others, and the cookie a browser gets for either.

A cookie is signed with the owner's token and says when it ends, so every instance that knows the token can check it and a new
token ends all cookies. One that stands for a token of a table names it, and ends with it. Neither token nor cookie is ever logged.
What was revoked opens nothing after `RECHECK_SECONDS`, on any instance, and what is open by it is ended: see `watch`.
"""

import asyncio
import contextlib
import hashlib
import hmac
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

import structlog

from easel.core.principal import THE_OWNER, Kind, Principal
from easel.core.token import digest_of, is_token
from easel.errors import NotSignedIn, Unavailable
from easel.host.node_ports import TokenStore

COOKIE_SECONDS = 30 * 24 * 3600
RECHECK_SECONDS = 1.0
MOST_KNOWN = 1_000  # tokens that are remembered between two looks

log = structlog.get_logger("sign_in")


@dataclass(frozen=True, slots=True)
class _Known:
    who: Principal
    looked_at: float


class SignIn:
    def __init__(self, owner_token: str, tokens: TokenStore | None = None) -> None:
        self.owner_token = owner_token
        self._tokens = tokens
        self._known: dict[str, _Known] = {}  # by digest, or by id where a cookie named it
        self._watched: dict[str, set[Callable[[], None]]] = {}  # by token: what ends with it
        self._watching: asyncio.Task[None] | None = None

    async def by_token(self, token: str) -> Principal | None:
        if hmac.compare_digest(_digest(token), _digest(self.owner_token)):
            return THE_OWNER
        return await self._look(digest_of(token), by_digest=True) if is_token(token) else None

    def new_cookie(self, now: float, who: Principal = THE_OWNER) -> str:
        """For a person: a program or a machine shows its token each time."""
        assert who.is_person
        until = str(int(now) + COOKIE_SECONDS)
        said = until if who.token_id is None else f"{until}.{who.token_id}"
        return f"{said}.{self._signature(said)}"

    async def by_cookie(self, cookie: str, now: float) -> Principal | None:
        said, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(said).encode()):
            return None
        until, _, token_id = said.partition(".")
        if not now < int(until):
            return None
        return await self._look(token_id, by_digest=False) if token_id else THE_OWNER

    def key(self, purpose: str) -> bytes:
        """A key for each purpose, the same on every instance; with a new owner's token all of them are new."""
        return hmac.new(self.owner_token.encode(), f"easel key {purpose}".encode(), hashlib.sha256).digest()

    async def still_holds(self, token_id: str) -> bool:
        """Whether what was signed in this token's name counts: it was not revoked."""
        return self._tokens is not None and token_id in await self._tokens.valid([token_id])

    # -- as long as the token holds --------------------------------------------------------------------------------

    def watch(self, who: Principal, ended: Callable[[], None]) -> Callable[[], None]:
        """`ended` is called when the token that they came with is revoked; the answer is how to stop watching."""
        if who.token_id is None:
            return lambda: None
        token_id, watchers = who.token_id, self._watched.setdefault(who.token_id, set())
        watchers.add(ended)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())

        def stop() -> None:
            watchers.discard(ended)
            if not watchers and self._watched.get(token_id) is watchers:
                del self._watched[token_id]

        return stop

    @contextlib.asynccontextmanager
    async def while_valid(self, who: Principal) -> AsyncGenerator[None]:
        """Ends what is inside with `NotSignedIn` when their token is revoked."""
        limit = asyncio.timeout(None)
        stop = self.watch(who, lambda: limit.reschedule(0))
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise NotSignedIn from None
        finally:
            stop()

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
                log.exception("tokens.check_broke")

    async def once(self) -> None:
        """End what was opened with a token that was revoked since."""
        watched = list(self._watched)
        if self._tokens is None or not watched:
            return
        valid = await self._tokens.valid(watched)
        revoked = [token_id for token_id in watched if token_id not in valid]
        if revoked:
            self._known = {key: known for key, known in self._known.items() if known.who.token_id not in revoked}
        for token_id in revoked:
            for ended in self._watched.pop(token_id, set()):
                ended()

    # -- looking ---------------------------------------------------------------------------------------------------

    async def _look(self, key: str, *, by_digest: bool) -> Principal | None:
        if self._tokens is None:
            return None
        known = self._known.get(key)
        if known is not None and time.monotonic() - known.looked_at < RECHECK_SECONDS:
            return known.who
        self._known.pop(key, None)
        found = await (self._tokens.of_digest(key) if by_digest else self._tokens.of_id(key))
        if found is None or (not by_digest and found.principal.kind is not Kind.USER):
            return None
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[key] = _Known(found.principal, time.monotonic())
        return found.principal

    def _signature(self, said: str) -> str:
        return hmac.new(self.owner_token.encode(), f"easel cookie {said}".encode(), hashlib.sha256).hexdigest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
