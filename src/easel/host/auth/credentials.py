"""Credentials: the principal of a token, or of a browser's sign-in, in one account.

Owns this instance's cache of valid credentials, and what a wrong token costs. A token is in the store, or was
made known at the start, as the owner's is. The role comes with the credential. One that has ended, or that
gives other rights now, is noticed on every instance within `RECHECK_SECONDS`. Tokens are never logged. Does
not know cookies and connections.
"""

import hmac
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from itertools import islice

from easel.core.account import Member
from easel.core.principal import Principal, Role
from easel.core.token import NewToken, digest_of, is_token, principal_of
from easel.errors import Unavailable
from easel.host.auth.throttle import SignInThrottle
from easel.host.ports import AccountStore, SignInStore, TokenStore
from easel.ids import AccountId

RECHECK_SECONDS = 1.0
USE_SECONDS = 300.0  # between two updates of when a token was last used
MAX_CACHED = 1_000
MAX_ENDED = 10_000  # sign-ins of which this instance knows without a query that they have ended
UNGUESSABLE_LENGTH = 24  # of a token that was made known; Easel generates longer ones

Key = tuple[str, AccountId | None]  # id of the sign-in, id or digest of the token; the account that was named


class Credentials:
    def __init__(
        self,
        tokens: TokenStore,
        accounts: AccountStore,
        sign_ins: SignInStore,
        known: Sequence[NewToken],
        throttle: SignInThrottle,
        *,
        recheck_seconds: float = RECHECK_SECONDS,
    ) -> None:
        self._tokens = tokens
        self._accounts = accounts
        self._sign_ins = sign_ins
        self._known = known
        self._throttle = throttle
        self.recheck_seconds = recheck_seconds
        # Principals with the time when each was read.
        self._cache: dict[Key, tuple[Principal, float]] = {}
        self._used: dict[str, float] = {}  # token id: when its use was stored
        self._ended: dict[str, None] = {}  # ids of sign-ins

    async def authenticate(self, token: str, address: str = "") -> Principal | None:
        """Return the principal of the token, or None if it is wrong.

        Raises `TooManyFailures` after too many wrong tokens from this address. A token that is too long to be
        guessed is accepted even then: an attacker behind the same proxy must not lock out its owner.
        """
        principal = await self._find_by_digest(token)
        if principal is not None:
            await self._note_use(principal)
            if len(token) >= UNGUESSABLE_LENGTH:
                return principal
        self._throttle.check(address)
        (self._throttle.note_failure if principal is None else self._throttle.note_success)(address)
        return principal

    async def find(
        self, account_id: AccountId | None, *, token_id: str | None = None, sign_in_id: str | None = None
    ) -> Principal | None:
        """Return the principal of a sign-in, or else of a token, in this account; None: the person's own.

        Returns None if the credential has ended, or gives no rights in the account. RS-76
        """
        if sign_in_id is not None:
            found = await self._read_through(
                (sign_in_id, account_id), partial(self._read_sign_in, sign_in_id, account_id)
            )
            return None if sign_in_id in self._ended else found
        if token_id is None:
            return None
        for known in self._known:
            if known.token_id == token_id:
                return await self._read_through((token_id, None), partial(self._read_known, known))
        return await self._read_through((token_id, None), partial(self._tokens.find_by_id, token_id))

    async def find_again(self, principal: Principal) -> Principal | None:
        """Return the principal of the same credential as it is now, None if it has ended."""
        return await self.find(
            principal.account_id, token_id=principal.token_id, sign_in_id=principal.sign_in_id
        )

    def end_sign_in(self, sign_in_id: str) -> None:
        """Refuse a sign-in from now on, without a query."""
        for oldest in list(islice(self._ended, max(0, len(self._ended) + 1 - MAX_ENDED))):
            del self._ended[oldest]
        self._ended[sign_in_id] = None

    def is_ended(self, sign_in_id: str | None) -> bool:
        """Return whether this instance knows that a sign-in has ended, without a query."""
        return sign_in_id in self._ended

    async def list_changed(self, principals: Collection[Principal]) -> list[Principal]:
        """Return those of these principals whose credential has ended or gives other rights; evict them."""
        signed_in = [(p.sign_in_id, p.account_id) for p in principals if p.sign_in_id is not None]
        members = await self._sign_ins.list_valid(signed_in) if signed_in else {}
        current = {key: _signed_in(key[0], member) for key, member in members.items()}
        known = {token.token_id: token for token in self._known}
        by_token = {p.token_id for p in principals if p.sign_in_id is None and p.token_id is not None}
        found = [await self._read_known(known[token_id]) for token_id in by_token & known.keys()]
        if stored := by_token - known.keys():
            found += await self._tokens.list_valid(list(stored))
        current |= {(p.token_id or "", p.account_id): p for p in found if p is not None}
        changed = [p for p in principals if not _has_same_rights(p, current.get(_key(p)))]
        ids = {_key(p)[0] for p in changed}
        self._cache = {key: cached for key, cached in self._cache.items() if _key(cached[0])[0] not in ids}
        return changed

    async def _find_by_digest(self, token: str) -> Principal | None:
        digest = digest_of(token)
        for known in self._known:
            if hmac.compare_digest(known.digest, digest):
                return await self._read_through((digest, None), partial(self._read_known, known))
        if not is_token(token):
            return None
        return await self._read_through((digest, None), partial(self._tokens.find_by_digest, digest))

    async def _read_known(self, token: NewToken) -> Principal | None:
        person = await self._accounts.find_person(token.account_id)
        return None if person is None else principal_of(token, Member(token.account_id, person, Role.ADMIN))

    async def _read_sign_in(self, sign_in_id: str, account_id: AccountId | None) -> Principal | None:
        members = await self._sign_ins.list_valid([(sign_in_id, account_id)])
        for member in members.values():
            if member.account_id == (member.person.user_id if account_id is None else account_id):
                return _signed_in(sign_in_id, member)
        return None

    async def _note_use(self, principal: Principal) -> None:
        """Store that a token is used, at most every `USE_SECONDS`."""
        token_id, now = principal.token_id, time.monotonic()
        if token_id is None or now - self._used.get(token_id, -USE_SECONDS) < USE_SECONDS:
            return
        if len(self._used) >= MAX_CACHED:
            self._used.clear()
        self._used[token_id] = now
        if all(known.token_id != token_id for known in self._known):
            try:
                await self._tokens.note_use([token_id])
            except Unavailable:
                del self._used[token_id]

    async def _read_through(
        self, key: Key, read: Callable[[], Awaitable[Principal | None]]
    ) -> Principal | None:
        """Return the principal from the cache, or else read it.

        While the database is unavailable, a credential that was last found valid counts as valid.
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


def _key(principal: Principal) -> tuple[str, AccountId]:
    return principal.sign_in_id or principal.token_id or "", principal.account_id


def _signed_in(sign_in_id: str, member: Member) -> Principal:
    """Return the principal of a browser's sign-in in an account."""
    person = member.person
    return Principal(
        member.account_id,
        person.display_name or person.user_id,
        role=member.role,
        is_operator=person.is_operator,
        user_id=person.user_id,
        sign_in_id=sign_in_id,
    )


def _has_same_rights(principal: Principal, now: Principal | None) -> bool:
    return now is not None and (now.role, now.is_operator) == (principal.role, principal.is_operator)
