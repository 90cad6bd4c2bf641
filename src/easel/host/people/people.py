"""People: added, disabled, enabled and deleted by an operator. RS-76

Disabling a person ends their credentials at once and their work within seconds; deleting one also purges what
they own, in steps (`host/deletions.py`). Owns the audit records. Does not know how a person signs in.
"""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from easel.core.people import ListedPerson, Membership, check_new_name
from easel.core.principal import Principal, Role, of_account
from easel.core.token import PREFIX, NewToken, TokenKind, digest_of
from easel.errors import AlreadyExists, BadInput, NotFound
from easel.host.audit.audit import Audit
from easel.host.people.invitations import INVITATION_SECONDS, new_invitation
from easel.host.ports import PeopleStore
from easel.ids import OWNER, UserId, new_token_id

OnDeparture = Callable[[], Awaitable[object]]

NOT_ISOLATED = (
    "EASEL_SANDBOX_MODE is logical, so commands are not isolated and people could read each other's files; "
    "remove this setting (bubblewrap isolates commands) before you add a second person."
)


@dataclass(frozen=True, slots=True)
class AddedPerson:
    """A new person with their first token and the secret of their invitation, which are shown once."""

    user_id: UserId
    token: str = field(repr=False)
    invitation: str = field(repr=False)


class People:
    def __init__(
        self,
        store: PeopleStore,
        audit: Audit,
        *,
        is_isolated: bool,
        on_departure: OnDeparture | None = None,
    ) -> None:
        """`is_isolated`: whether commands of one person cannot reach the files of another."""
        self._store = store
        self._audit = audit
        self._is_isolated = is_isolated
        self._on_departure = on_departure

    async def add(self, name: str, by: Principal, *, is_operator: bool = False) -> AddedPerson:
        """Add a person. Raises `AlreadyExists` for a name that is or was taken."""
        user_id = UserId(check_new_name(name, "name"))
        if not self._is_isolated:
            raise BadInput(problem=NOT_ISOLATED)
        added = AddedPerson(user_id, PREFIX + secrets.token_urlsafe(32), new_invitation())
        token = NewToken(
            token_id=new_token_id(),
            account_id=check_new_name(name, "name"),
            kind=TokenKind.USER,
            user_id=user_id,
            role=Role.ADMIN,
            name=name,
            node_id=None,
            digest=digest_of(added.token),
        )
        if not await self._store.add_person(
            user_id,
            is_operator=is_operator,
            token=token,
            invitation=digest_of(added.invitation),
            seconds=INVITATION_SECONDS,
        ):
            raise AlreadyExists(what="name", id=name)
        await self._audit.record(
            _in_person(by), "person.added", subject=name, details={"operator": is_operator}
        )
        return added

    async def list_people(self, after: str, limit: int) -> list[ListedPerson]:
        return await self._store.list_people(after, limit)

    async def get(self, name: str) -> ListedPerson:
        person = await self._store.get_person(UserId(name))
        if person is None:
            raise NotFound(what="person", id=name[:100])
        return person

    async def list_memberships(self, user_id: UserId) -> list[Membership]:
        return await self._store.list_memberships(user_id)

    async def disable(self, name: str, by: Principal, new_admin: str | None = None) -> None:
        """Disable a person: credentials, connections and runs end. Raises `LastAdmin`."""
        if not await self._store.disable_person(UserId(name), _user(new_admin)):
            raise NotFound(what="enabled person", id=name[:100])
        await self._audit.record(_in_person(by), "person.disabled", subject=name, details=_named(new_admin))
        await self._end_work()

    async def enable(self, name: str, by: Principal) -> None:
        """Let a disabled person sign in again, by password or a new invitation: their tokens stay revoked."""
        if not await self._store.enable_person(UserId(name)):
            raise NotFound(what="disabled person", id=name[:100])
        await self._audit.record(_in_person(by), "person.enabled", subject=name)

    async def delete(self, name: str, by: Principal, new_admin: str | None = None) -> None:
        """Delete a person with all that they own. As `disable`; the name is never given again."""
        if name == OWNER:
            raise BadInput(problem="The first person of a host can be disabled, but not deleted.")
        if not await self._store.delete_person(UserId(name), _user(new_admin)):
            raise NotFound(what="person", id=name[:100])
        await self._audit.record(_in_person(by), "person.deleted", subject=name, details=_named(new_admin))
        await self._end_work()

    async def _end_work(self) -> None:
        if self._on_departure is not None:
            await self._on_departure()


def _in_person(by: Principal) -> Principal:
    """Return the operator in their own account, whose records are not those of the request's account."""
    return of_account(by, by.actor_id)


def _user(name: str | None) -> UserId | None:
    return None if name is None else UserId(name)


def _named(new_admin: str | None) -> dict[str, str]:
    return {} if new_admin is None else {"new_admin": new_admin}
