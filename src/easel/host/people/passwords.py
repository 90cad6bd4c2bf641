"""Passwords: signing in with a name and a password, and changing one's password. RS-76

A name that does not exist, a person without a password and a wrong password have the same answer after the
same work. Owns the throttle's part in it, and the audit record of a change. Does not know cookies.
"""

from easel.core.account import MAX_NAME_LENGTH, is_account_name
from easel.core.password.rules import check_password, is_possible_password, normalize_password
from easel.core.people import in_own_account
from easel.core.principal import Principal, acts_fully
from easel.errors import BadInput, Forbidden
from easel.host.audit.audit import Audit
from easel.host.auth.throttle import SignInThrottle
from easel.host.people.hashes import PasswordHashes
from easel.host.ports import PeopleStore
from easel.ids import UserId


class Passwords:
    def __init__(
        self, store: PeopleStore, hashes: PasswordHashes, throttle: SignInThrottle, audit: Audit
    ) -> None:
        self._store = store
        self._hashes = hashes
        self._throttle = throttle
        self._audit = audit

    async def sign_in(self, name: str, password: str, address: str) -> Principal | None:
        """Return the person with this password in their own account, or None. Raises `TooManyFailures`."""
        name = name[:MAX_NAME_LENGTH]
        self._throttle.check(address, name)
        found = await self._store.find_password(UserId(name)) if is_account_name(name) else None
        member, stored = found or (None, None)
        is_right = await self._verify(name, stored, password, address)
        if not is_right or stored is None or member is None:
            return None
        if self._hashes.is_outdated(stored):
            newer = await self._hashes.hash(normalize_password(password))
            await self._store.replace_hash(UserId(name), newer, stored)
        return in_own_account(member)

    async def change(self, principal: Principal, old: str | None, new: str, address: str) -> None:
        """Set the password of the person who acts, and end their other sign-ins.

        Who has a password must know it. Raises `Forbidden` for a wrong one, and `TooManyFailures`.
        """
        user_id = principal.user_id if acts_fully(principal) else None
        found = None if user_id is None else await self._store.find_password(user_id)
        if user_id is None or found is None:
            raise Forbidden(problem="only a person has a password.")
        member, stored = found
        if stored is not None and not await self._verify(user_id, stored, old or "", address):
            raise Forbidden(problem="the old password is wrong.")
        accepted = check_password(new, user_id, member.person.display_name)
        password_hash = await self._hashes.hash(accepted)
        if not await self._store.set_password(
            user_id, password_hash, expected=stored, keep_sign_in=principal.sign_in_id
        ):
            raise BadInput(problem="The password was changed by another request; sign in again.")
        await self._audit.record(principal, "password.changed", subject=user_id)

    async def _verify(self, name: str, stored: str | None, password: str, address: str) -> bool:
        """Return whether the password has this hash, and count a wrong one. Raises `TooManyFailures`."""
        if not is_possible_password(password):
            self._throttle.check(address, name)
            is_right = False
        else:
            is_right = await self._hashes.verify(
                stored, normalize_password(password), before=lambda: self._throttle.check(address, name)
            )
        if not is_right:
            self._throttle.note_failure(address, name)
        return is_right
