"""Teams and their members. RS-76

An operator adds and deletes teams; an admin of a team changes its members, and a member may leave. A team
keeps an admin who is not disabled, unless an operator names a new one. Owns the audit records. Does not know
how people sign in.
"""

from easel.core.people import ListedMember, ListedTeam, check_new_name, check_role
from easel.core.principal import Principal, of_account
from easel.errors import AlreadyExists, BadInput, NotFound
from easel.host.audit.audit import Audit
from easel.host.people.people import OnDeparture
from easel.host.ports import PeopleStore
from easel.ids import AccountId, UserId


class Teams:
    def __init__(self, store: PeopleStore, audit: Audit, *, on_departure: OnDeparture | None = None) -> None:
        self._store = store
        self._audit = audit
        self._on_departure = on_departure

    async def add(self, name: str, admin: str, by: Principal) -> AccountId:
        """Add a team with its first admin. Raises `AlreadyExists` for a name that is or was taken."""
        account_id = check_new_name(name, "name")
        if not await self._store.add_team(account_id, UserId(admin)):
            raise AlreadyExists(what="name", id=name)
        await self._audit.record(
            of_account(by, by.actor_id), "team.added", subject=name, details={"admin": admin}
        )
        return account_id

    async def list_teams(self, after: str, limit: int) -> list[ListedTeam]:
        return await self._store.list_teams(after, limit)

    async def delete(self, name: str, by: Principal) -> None:
        """Delete a team with all that it owns; its rows are purged later."""
        if not await self._store.delete_team(AccountId(name)):
            raise NotFound(what="team", id=name[:100])
        await self._audit.record(of_account(by, by.actor_id), "team.deleted", subject=name)

    # -- members; the caller was checked to be an admin of the account, or is an operator --------------------

    async def list_members(self, account_id: str, after: str, limit: int) -> list[ListedMember]:
        """Return members by name; of the account of a person, that person."""
        return await self._store.list_members(AccountId(account_id), after, limit)

    async def check_team(self, account_id: str) -> None:
        """Raise `NotFound` if there is no such team."""
        if await self._store.find_team(AccountId(account_id)) is None:
            raise NotFound(what="team", id=account_id[:100])

    async def set_member(
        self,
        account_id: str,
        name: str,
        role: str,
        by: Principal,
        new_admin: str | None = None,
        *,
        is_member: bool | None = None,
    ) -> ListedMember:
        """Add a member, or change their role; `is_member` demands one of both. Raises `LastAdmin`."""
        new_role = check_role(role)
        self._check_is_team(account_id, by)
        member = await self._store.set_member(
            AccountId(account_id), UserId(name), new_role, _user(new_admin), is_member=is_member
        )
        if member is None:
            raise NotFound(what="team", id=account_id[:100])
        await self._record(by, "member.set", account_id, name, role=new_role.value, new_admin=new_admin)
        return member

    async def remove_member(
        self, account_id: str, name: str, by: Principal, new_admin: str | None = None
    ) -> None:
        """Remove a member, whose work, tokens and nodes in the team end. Raises `LastAdmin`."""
        self._check_is_team(account_id, by)
        if not await self._store.remove_member(AccountId(account_id), UserId(name), _user(new_admin)):
            raise NotFound(what="member", id=name[:100])
        await self._record(by, "member.removed", account_id, name, new_admin=new_admin)
        if self._on_departure is not None:
            await self._on_departure()

    async def leave(self, principal: Principal) -> None:
        """Remove the person who acts from the team. Raises `LastAdmin`."""
        await self.remove_member(principal.account_id, principal.actor_id, principal)

    def _check_is_team(self, account_id: str, by: Principal) -> None:
        if by.user_id == account_id:
            raise BadInput(problem=f"{account_id} is your own account; only a team has members.")

    async def _record(
        self, by: Principal, action: str, account_id: str, name: str, **details: str | None
    ) -> None:
        named = {key: value for key, value in details.items() if value is not None}
        about = {"team": account_id, **named}
        await self._audit.record(of_account(by, account_id), action, subject=name, details=about)


def _user(name: str | None) -> UserId | None:
    return None if name is None else UserId(name)
