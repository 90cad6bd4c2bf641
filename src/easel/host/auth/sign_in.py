"""Authentication: the owner's token, the tokens of others, and the cookie that a browser gets for either.

A cookie contains its expiry time and is signed with a key that all instances share, so every instance can
check it. The digest of the owner's token is part of what is signed: a new owner's token invalidates all
cookies, and no signature helps to guess the token. A cookie names the sign-in of its browser and the token
it was issued for, unless that is the owner's token; it is invalid after either is revoked: see
`revoked_sign_ins`.
Tokens and cookies are never logged. A revoked credential is refused on every instance within
`RECHECK_SECONDS`, and the connections that it opened are closed: see `watch`.
"""

import asyncio
import contextlib
import hashlib
import hmac
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace

from easel.core.principal import THE_OWNER, Principal, PrincipalKind
from easel.core.token import digest_of, is_token
from easel.errors import NotSignedIn
from easel.host.auth.revoked_sign_ins import RevokedSignIns
from easel.host.auth.throttle import SignInThrottle
from easel.host.periodic import Periodic
from easel.host.ports import TokenStore
from easel.ids import new_sign_in_id

COOKIE_SECONDS = 30 * 24 * 3600
RECHECK_SECONDS = 1.0
MAX_CACHED_TOKENS = 1_000
UNGUESSABLE_LENGTH = 24  # of an owner's token; Easel generates longer ones
SIGN_IN_PREFIX = "sign_"


@dataclass(frozen=True, slots=True)
class _CachedToken:
    principal: Principal
    read_at: float


class SignIn:
    def __init__(
        self,
        owner_token: str,
        tokens: TokenStore | None = None,
        revoked: RevokedSignIns | None = None,
        *,
        key: str,
        throttle: SignInThrottle | None = None,
        recheck_seconds: float = RECHECK_SECONDS,
    ) -> None:
        self.owner_token = owner_token
        self._throttle = throttle
        self._key = hmac.new(key.encode(), b"easel owner " + _digest(owner_token), hashlib.sha256).digest()
        self._cookie_key = self.derive_key("cookie")
        self.recheck_seconds = recheck_seconds
        self._tokens = tokens
        self._revoked = revoked
        if revoked is not None:
            revoked.on_revoked = self._end_watched
        self._cache: dict[str, _CachedToken] = {}  # by the token's digest, or by its id from a cookie
        self._watchers: dict[str, set[Callable[[], None]]] = {}  # by token id or sign-in id
        self._checking = Periodic(
            "sign_in.end_revoked", recheck_seconds, self.end_revoked, delay=recheck_seconds
        )

    async def authenticate_token(self, token: str, address: str = "") -> Principal | None:
        """Return the principal of the token, or None if it is wrong.

        Raises `TooManyFailures` after too many wrong tokens from this address. A token that is too long to be
        guessed is accepted even then: an attacker behind the same proxy must not lock out its owner.
        """
        is_owner = hmac.compare_digest(_digest(token), _digest(self.owner_token))
        if is_owner and len(token) >= UNGUESSABLE_LENGTH:
            return THE_OWNER
        if not is_owner and is_token(token):
            principal = await self._find_principal(digest_of(token), by_digest=True)
            if principal is not None:
                return principal
        if self._throttle is not None:
            self._throttle.check(address)
            (self._throttle.note_success if is_owner else self._throttle.note_failure)(address)
        return THE_OWNER if is_owner else None

    def new_cookie(
        self, now: float, principal: Principal = THE_OWNER, before: Principal | None = None
    ) -> str:
        """Issue a cookie to a person; programs and machines send their token with each request.

        If the browser was signed in as the same principal `before`, the new cookie has the same sign-in id:
        one sign-out ends all cookies of the browser.
        """
        assert principal.is_person
        is_same = before is not None and (before.account_id, before.token_id) == (
            principal.account_id,
            principal.token_id,
        )
        sign_in_id = before.sign_in_id if before is not None and is_same else None
        content = f"{int(now) + COOKIE_SECONDS}.{sign_in_id or new_sign_in_id()}.{principal.token_id or ''}"
        return f"{content}.{self._signature(content)}"

    async def authenticate_cookie(self, cookie: str, now: float) -> Principal | None:
        content, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(content).encode()):
            return None
        expires_at, *ids = content.split(".")
        if not now < int(expires_at):
            return None
        sign_in_id, token_id = ids
        if await self.is_signed_out(sign_in_id):
            return None
        principal = await self._find_principal(token_id, by_digest=False) if token_id else THE_OWNER
        return None if principal is None else replace(principal, sign_in_id=sign_in_id)

    async def sign_out(self, principal: Principal) -> None:
        """End the sign-in of the principal's browser on every instance, and close its connections."""
        if self._revoked is not None and principal.sign_in_id is not None:
            await self._revoked.revoke(principal.account_id, principal.sign_in_id)

    async def is_signed_out(self, sign_in_id: str) -> bool:
        return self._revoked is not None and await self._revoked.is_revoked(sign_in_id)

    def derive_key(self, purpose: str) -> bytes:
        """Return a key for this purpose, the same on every instance until the owner's token changes."""
        return hmac.new(self._key, f"easel key {purpose}".encode(), hashlib.sha256).digest()

    async def is_token_valid(self, token_id: str) -> bool:
        return self._tokens is not None and token_id in await self._tokens.filter_valid([token_id])

    # -- closing the connections of revoked credentials ------------------------------------------------------

    def watch(self, principal: Principal, on_revoked: Callable[[], None]) -> Callable[[], None]:
        """Call `on_revoked` once, when the principal's token is revoked or its browser signs out.

        Returns a function that stops watching.
        """
        keys = [key for key in (principal.token_id, principal.sign_in_id) if key is not None]

        def end() -> None:
            stop()
            on_revoked()

        def stop() -> None:
            for key in keys:
                watchers = self._watchers.get(key, set())
                watchers.discard(end)
                if not watchers:
                    self._watchers.pop(key, None)

        for key in keys:
            self._watchers.setdefault(key, set()).add(end)
        if keys:
            self._checking.start()
        sign_in_id = principal.sign_in_id
        if (
            self._revoked is not None
            and sign_in_id is not None
            and self._revoked.is_known_revoked(sign_in_id)
        ):
            end()  # the sign-in was revoked after its cookie was checked
        return stop

    @contextlib.asynccontextmanager
    async def while_valid(self, principal: Principal) -> AsyncGenerator[None]:
        """Cancel the block and raise `NotSignedIn` when the token is revoked or the browser signs out."""
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

    async def end_revoked(self) -> None:
        """Call the watchers of tokens and sign-ins that were revoked."""
        sign_in_ids = [key for key in self._watchers if key.startswith(SIGN_IN_PREFIX)]
        if self._revoked is not None:
            await self._revoked.refresh(sign_in_ids)
        # Read `_watchers` again: it may have changed during the query.
        token_ids = {key for key in self._watchers if not key.startswith(SIGN_IN_PREFIX)}
        if self._tokens is None or not token_ids:
            return
        revoked = token_ids - await self._tokens.filter_valid(list(token_ids))
        self._cache = {
            key: cached for key, cached in self._cache.items() if cached.principal.token_id not in revoked
        }
        for token_id in revoked:
            self._end_watched(token_id)

    async def close(self) -> None:
        await self._checking.stop()

    def _end_watched(self, key: str) -> None:
        for end in list(self._watchers.get(key, ())):
            end()

    # -- tokens ----------------------------------------------------------------------------------------------

    async def _find_principal(self, key: str, *, by_digest: bool) -> Principal | None:
        if self._tokens is None:
            return None
        cached = self._cache.get(key)
        if cached is not None and time.monotonic() - cached.read_at < self.recheck_seconds:
            return cached.principal
        self._cache.pop(key, None)
        token = await (self._tokens.find_by_digest(key) if by_digest else self._tokens.find_by_id(key))
        if token is None or (not by_digest and token.principal.kind is not PrincipalKind.USER):
            return None
        if len(self._cache) >= MAX_CACHED_TOKENS:
            self._cache.clear()
        self._cache[key] = _CachedToken(token.principal, time.monotonic())
        return token.principal

    def _signature(self, content: str) -> str:
        return hmac.new(self._cookie_key, content.encode(), hashlib.sha256).hexdigest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
