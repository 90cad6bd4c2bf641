"""Invitations: a link by which a person sets their first password, or a new one. RS-76

A link can be used once and for a week; a newer one replaces it. Only its digest is stored. Owns the secret of
a link and its audit records. Does not know pages and cookies.
"""

import secrets

from easel.core.account import Member
from easel.core.password.rules import check_password
from easel.core.people import check_display_name, in_own_account
from easel.core.principal import Principal, of_account
from easel.core.token import PREFIX, digest_of
from easel.errors import NotFound
from easel.host.audit.audit import Audit
from easel.host.auth.throttle import SignInThrottle
from easel.host.people.hashes import PasswordHashes
from easel.host.ports import PeopleStore
from easel.ids import UserId

INVITATION_SECONDS = 7 * 86_400.0
PATH = "/invitation"
MAX_SECRET_LENGTH = 200


def new_invitation() -> str:
    """Return the secret of a new invitation. Its prefix lets secret scanners and our redaction find it."""
    return f"{PREFIX}invitation_{secrets.token_urlsafe(32)}"


def invitation_link(base_url: str, name: str, secret: str) -> str:
    """Return the link. The secret is in the fragment, which no server and no Referer gets."""
    return f"{base_url.rstrip('/')}{PATH}?name={name}#{secret}"


class Invitations:
    def __init__(
        self, store: PeopleStore, hashes: PasswordHashes, throttle: SignInThrottle, audit: Audit
    ) -> None:
        self._store = store
        self._hashes = hashes
        self._throttle = throttle
        self._audit = audit

    async def create(self, name: str, by: Principal) -> str:
        """Return the secret of a new invitation of a person, instead of earlier ones."""
        secret = new_invitation()
        if not await self._store.invite(UserId(name), digest_of(secret), INVITATION_SECONDS):
            raise NotFound(what="person", id=name[:100])
        await self._audit.record(of_account(by, by.actor_id), "invitation.created", subject=name)
        return secret

    async def find(self, secret: str) -> Member | None:
        """Return the invited person in their own account, None if the invitation is not valid."""
        return await self._store.find_invited(digest_of(secret[:MAX_SECRET_LENGTH]))

    async def accept(
        self, secret: str, name: str, display_name: str, password: str, address: str
    ) -> Principal | None:
        """Consume the invitation of this person and set the password. Returns the person, signed in by it.

        Returns None if the invitation is not valid. Raises `BadInput` for a display name or password that is
        not accepted, which leaves the invitation as it is, and `TooManyFailures`.
        """
        invited = await self.find(secret)
        if invited is None or invited.person.user_id != name:
            self._throttle.check(address)
            self._throttle.note_failure(address)
            return None
        shown = check_display_name(display_name)
        accepted = check_password(password, invited.person.user_id, shown)
        password_hash = await self._hashes.hash(accepted)
        member = await self._store.use_invitation(
            digest_of(secret[:MAX_SECRET_LENGTH]), display_name=shown, password_hash=password_hash
        )
        if member is None:
            return None
        person = in_own_account(member)
        await self._audit.record(person, "invitation.accepted", subject=name)
        return person
