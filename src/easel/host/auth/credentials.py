"""Credentials: the principal of a token.

Owns this instance's cache of valid tokens, and what a wrong token costs. A token is in the store, or was made
known at the start, as the owner's is. A token that was revoked, or whose account is disabled, is refused on
every instance within `RECHECK_SECONDS`. Tokens are never logged. Does not know cookies and connections.
"""

import hmac
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from easel.core.principal import Principal
from easel.core.token import NewToken, digest_of, is_token, principal_of
from easel.errors import Unavailable
from easel.host.auth.throttle import SignInThrottle
from easel.host.ports import AccountStore, TokenStore

RECHECK_SECONDS = 1.0
MAX_CACHED = 1_000
UNGUESSABLE_LENGTH = 24  # of a token that was made known; Easel generates longer ones


class Credentials:
    def __init__(
        self,
        tokens: TokenStore,
        accounts: AccountStore,
        known: Sequence[NewToken],
        throttle: SignInThrottle,
        *,
        recheck_seconds: float = RECHECK_SECONDS,
    ) -> None:
        self._tokens = tokens
        self._accounts = accounts
        self._known = known
        self._throttle = throttle
        self.recheck_seconds = recheck_seconds
        # Principals with the time when each was read, by the token's digest or by its id.
        self._cache: dict[str, tuple[Principal, float]] = {}

    async def authenticate(self, token: str, address: str = "") -> Principal | None:
        """Return the principal of the token, or None if it is wrong.

        Raises `TooManyFailures` after too many wrong tokens from this address. A token that is too long to be
        guessed is accepted even then: an attacker behind the same proxy must not lock out its owner.
        """
        principal = await self._find_by_digest(token)
        if principal is not None and len(token) >= UNGUESSABLE_LENGTH:
            return principal
        self._throttle.check(address)
        (self._throttle.note_failure if principal is None else self._throttle.note_success)(address)
        return principal

    async def find_by_id(self, token_id: str) -> Principal | None:
        """Return the principal of the token with this id, or None if it is no longer valid."""
        for known in self._known:
            if known.token_id == token_id:
                return await self._read_through(token_id, partial(self._read_known, known))
        return await self._read_through(token_id, lambda: self._tokens.find_by_id(token_id))

    async def find_revoked(self, token_ids: set[str]) -> set[str]:
        """Return those of these tokens that are no longer valid, and evict them."""
        known = token_ids & {token.token_id for token in self._known}
        valid = {token_id for token_id in known if await self.find_by_id(token_id)}
        if stored := token_ids - known:
            valid |= await self._tokens.filter_valid(list(stored))
        revoked = token_ids - valid
        self._cache = {
            key: cached for key, cached in self._cache.items() if cached[0].token_id not in revoked
        }
        return revoked

    async def _find_by_digest(self, token: str) -> Principal | None:
        digest = digest_of(token)
        for known in self._known:
            if hmac.compare_digest(known.digest, digest):
                return await self._read_through(digest, partial(self._read_known, known))
        if not is_token(token):
            return None
        return await self._read_through(digest, lambda: self._tokens.find_by_digest(digest))

    async def _read_known(self, token: NewToken) -> Principal | None:
        person = await self._accounts.find_person(token.account_id)
        return None if person is None else principal_of(token, person)

    async def _read_through(
        self, key: str, read: Callable[[], Awaitable[Principal | None]]
    ) -> Principal | None:
        """Return the principal from the cache, or else read it.

        While the database is unavailable, a token that was last found valid counts as valid.
        """
        cached, read_at = self._cache.get(key, (None, 0.0))
        if cached is not None and time.monotonic() - read_at < self.recheck_seconds:
            return cached
        try:
            principal = await read()
        except Unavailable:
            if cached is None:
                raise
            return cached
        self._cache.pop(key, None)
        if principal is not None:
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[key] = (principal, time.monotonic())
        return principal
