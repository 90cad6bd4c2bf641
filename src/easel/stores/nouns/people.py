"""People, teams, members and invitations. The rules are in the statements of `people.sql`.

Its transactions also use statements of `accounts.sql`, `tokens.sql` and `sign_ins.sql`.
A change locks the accounts of people first, then those of teams, each in the order of their names.
"""

from collections.abc import Iterable
from dataclasses import asdict

from easel.core.account import AccountKind, Member, Person
from easel.core.people import ListedMember, ListedPerson, ListedTeam, Membership
from easel.core.principal import Role
from easel.core.token import NewToken
from easel.errors import AlreadyExists, BadInput, LastAdmin, NotFound
from easel.ids import AccountId, UserId
from easel.stores.nouns.statements import Row, Statements, Steps

NAME_ANOTHER = "make another member admin first, or as an operator name one (--new-admin, new_admin)"


class SqlPeople:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def add_person(
        self, user_id: UserId, *, is_operator: bool, token: NewToken, invitation: str, seconds: float
    ) -> bool:
        def steps() -> Steps[bool]:
            if not (yield "add_account", {"account_id": user_id, "kind": AccountKind.PERSON.value}):
                return False
            yield "add_person", {"account_id": user_id, "display_name": None}
            if is_operator:
                yield "make_operator", {"user_id": user_id}
            yield "create_token", {**asdict(token), "kind": token.kind.value, "role": token.role.value}
            yield "add_invitation", {"digest": invitation, "user_id": user_id, "seconds": seconds}
            return True

        return await self._sql.transaction(steps())

    async def count_people(self) -> int:
        [row] = await self._sql.rows("count_people")
        return row["people"]

    async def list_people(self, after: str, limit: int) -> list[ListedPerson]:
        rows = await self._sql.rows("list_people", after=after, limit=limit)
        return [_to_listed(row) for row in rows]

    async def get_person(self, user_id: UserId) -> ListedPerson | None:
        row = await self._sql.row("get_person", user_id=user_id)
        return row and _to_listed(row)

    async def disable_person(self, user_id: UserId, new_admin: UserId | None = None) -> bool:
        def steps() -> Steps[bool]:
            teams = yield from _end_rights(user_id, new_admin, is_enabled=True)
            if teams is None:
                return False
            yield "disable_account", {"account_id": user_id}
            yield from _end_access(user_id, teams)
            return True

        return await self._sql.transaction(steps())

    async def enable_person(self, user_id: UserId) -> bool:
        def steps() -> Steps[bool]:
            if not (yield "enable_person", {"user_id": user_id}):
                return False
            # A request that was admitted before the disabling may have made a credential after it.
            yield "revoke_tokens_of", {"user_id": user_id}
            yield "end_sign_ins", {"user_id": user_id, "kept": ""}
            return True

        return await self._sql.transaction(steps())

    async def delete_person(self, user_id: UserId, new_admin: UserId | None = None) -> bool:
        def steps() -> Steps[bool]:
            teams = yield from _end_rights(user_id, new_admin, is_enabled=False)
            if teams is None:
                return False
            yield from _mark_deleted(AccountId(user_id))
            yield from _end_access(user_id, teams)
            yield "remove_memberships", {"user_id": user_id}
            return True

        return await self._sql.transaction(steps())

    async def list_memberships(self, user_id: UserId) -> list[Membership]:
        rows = await self._sql.rows("list_memberships", user_id=user_id)
        return [Membership(row["account_id"], AccountKind(row["kind"]), Role(row["role"])) for row in rows]

    # -- teams and members -----------------------------------------------------------------------------------

    async def add_team(self, account_id: AccountId, admin: UserId) -> bool:
        def steps() -> Steps[bool]:
            yield from _lock_people([admin])
            yield from _find_enabled(admin)
            if not (yield "add_account", {"account_id": account_id, "kind": AccountKind.TEAM.value}):
                return False
            yield "set_member", {"account_id": account_id, "user_id": admin, "role": Role.ADMIN.value}
            return True

        return await self._sql.transaction(steps())

    async def list_teams(self, after: str, limit: int) -> list[ListedTeam]:
        rows = await self._sql.rows("list_teams", after=after, limit=limit)
        return [ListedTeam(**row) for row in map(dict, rows)]

    async def delete_team(self, account_id: AccountId) -> bool:
        def steps() -> Steps[bool]:
            if not (yield "lock_team", {"account_id": account_id}):
                return False
            yield from _mark_deleted(account_id)
            return True

        return await self._sql.transaction(steps())

    async def find_team(self, account_id: AccountId) -> AccountId | None:
        row = await self._sql.row("find_team", account_id=account_id)
        return row and row["account_id"]

    async def list_members(self, account_id: AccountId, after: str, limit: int) -> list[ListedMember]:
        rows = await self._sql.rows("list_members", account_id=account_id, after=after, limit=limit)
        return [ListedMember(row["user_id"], row["display_name"], Role(row["role"])) for row in rows]

    async def set_member(
        self,
        account_id: AccountId,
        user_id: UserId,
        role: Role,
        new_admin: UserId | None = None,
        *,
        is_member: bool | None = None,
    ) -> ListedMember | None:
        ids = {"account_id": account_id, "user_id": user_id}

        def steps() -> Steps[ListedMember | None]:
            yield from _lock_people([user_id, new_admin])
            if not (yield "lock_team", {"account_id": account_id}):
                return None
            before = yield "get_member", ids
            if before and is_member is False:
                raise AlreadyExists(what="member", id=user_id)
            if not before and is_member:
                raise NotFound(what="member", id=user_id)
            if not before:
                yield from _find_enabled(user_id)
            elif before[0]["role"] == Role.ADMIN and role is not Role.ADMIN:
                yield from _keep_admin(account_id, user_id, new_admin)
            yield "set_member", {**ids, "role": role.value}
            [person] = yield "get_person", {"user_id": user_id}
            return ListedMember(user_id, person["display_name"], role)

        return await self._sql.transaction(steps())

    async def remove_member(
        self, account_id: AccountId, user_id: UserId, new_admin: UserId | None = None
    ) -> bool:
        ids = {"account_id": account_id, "user_id": user_id}

        def steps() -> Steps[bool]:
            yield from _lock_people([new_admin])
            if not (yield "lock_team", {"account_id": account_id}):
                return False
            member = yield "get_member", ids
            if not member:
                return False
            if member[0]["role"] == Role.ADMIN:
                yield from _keep_admin(account_id, user_id, new_admin)
            yield "remove_member", ids
            yield "add_departure", ids
            yield "revoke_tokens_in", ids
            yield "remove_connections", ids
            return True

        return await self._sql.transaction(steps())

    # -- invitations and passwords ---------------------------------------------------------------------------

    async def invite(self, user_id: UserId, digest: str, seconds: float) -> bool:
        def steps() -> Steps[bool]:
            yield from _lock_people([user_id])
            if not (yield "get_person", {"user_id": user_id}):
                return False
            yield "remove_invitations", {"user_id": user_id}
            yield "add_invitation", {"digest": digest, "user_id": user_id, "seconds": seconds}
            return True

        return await self._sql.transaction(steps())

    async def find_invited(self, digest: str) -> Member | None:
        row = await self._sql.row("find_invited", digest=digest)
        return row and _to_member(row)

    async def use_invitation(
        self, digest: str, *, display_name: str | None, password_hash: str
    ) -> Member | None:
        def steps() -> Steps[Member | None]:
            invited = yield "find_invited", {"digest": digest}
            yield from _lock_people([UserId(row["user_id"]) for row in invited])
            taken = yield "take_invitation", {"digest": digest}
            if not taken:
                return None
            user = {"user_id": taken[0]["user_id"]}
            yield "end_sign_ins", {**user, "kept": ""}
            password = {"password_hash": password_hash, "display_name": display_name}
            [row] = yield "set_first_password", {**user, **password}
            return _to_member(row)

        return await self._sql.transaction(steps())

    async def find_password(self, user_id: UserId) -> tuple[Member, str | None] | None:
        row = await self._sql.row("find_password", user_id=user_id)
        return row and (_to_member(row), row["password_hash"])

    async def set_password(
        self, user_id: UserId, password_hash: str, *, expected: str | None, keep_sign_in: str | None
    ) -> bool:
        change = {"user_id": user_id, "password_hash": password_hash, "expected": expected}

        def steps() -> Steps[bool]:
            if not (yield "replace_password", change):
                return False
            yield "end_sign_ins", {"user_id": user_id, "kept": keep_sign_in or ""}
            return True

        return await self._sql.transaction(steps())

    async def replace_hash(self, user_id: UserId, password_hash: str, expected: str) -> None:
        await self._sql.rows(
            "replace_password", user_id=user_id, password_hash=password_hash, expected=expected
        )


def _end_rights(
    user_id: UserId, new_admin: UserId | None, *, is_enabled: bool
) -> Steps[list[AccountId] | None]:
    """Lock a person and their teams, and check that each team and the host stay administered.

    Returns the teams; None if there is no such person, or with `is_enabled` no such one who is enabled.
    """
    yield from _lock_people([user_id, new_admin], with_operators=True)
    person = yield "get_person", {"user_id": user_id}
    if not person or (is_enabled and person[0]["disabled_at"] is not None):
        return None
    if person[0]["is_operator"] and not (yield "has_other_operator", {"user_id": user_id}):
        raise BadInput(problem=f"{user_id} is the only operator of this host; it must keep one.")
    locked = yield "lock_teams_of", {"user_id": user_id}
    teams = [AccountId(row["account_id"]) for row in locked]
    for team in teams:
        member = yield "get_member", {"account_id": team, "user_id": user_id}
        if member and member[0]["role"] == Role.ADMIN:  # removed by another transaction otherwise
            yield from _keep_admin(team, user_id, new_admin)
    return teams


def _keep_admin(account_id: AccountId, user_id: UserId, new_admin: UserId | None) -> Steps[None]:
    """Make `new_admin` admin if the team has no other one than this person who is not disabled."""
    ids = {"account_id": account_id, "user_id": user_id}
    if (yield "has_other_admin", ids):
        return
    if new_admin is None or new_admin == user_id:
        raise LastAdmin(team=account_id, advice=NAME_ANOTHER)
    yield from _find_enabled(new_admin)
    yield "set_member", {"account_id": account_id, "user_id": new_admin, "role": Role.ADMIN.value}


def _end_access(user_id: UserId, teams: Iterable[AccountId]) -> Steps[None]:
    """End the credentials of a person everywhere, and note what is still to be ended in each account."""
    for account_id in (AccountId(user_id), *teams):
        yield "add_departure", {"account_id": account_id, "user_id": user_id}
        yield "remove_connections", {"account_id": account_id, "user_id": user_id}
    yield "revoke_tokens_of", {"user_id": user_id}
    yield "end_sign_ins", {"user_id": user_id, "kept": ""}
    yield "remove_invitations", {"user_id": user_id}


def _mark_deleted(account_id: AccountId) -> Steps[None]:
    yield "mark_account", {"account_id": account_id}
    yield "end_account", {"account_id": account_id}


def _lock_people(user_ids: Iterable[UserId | None], *, with_operators: bool = False) -> Steps[None]:
    known = [user_id for user_id in user_ids if user_id is not None]
    yield "lock_people", {"user_ids": known, "with_operators": with_operators}


def _find_enabled(user_id: UserId) -> Steps[None]:
    if not (yield "find_person", {"account_id": user_id}):
        raise NotFound(what="person", id=user_id)


def _to_listed(row: Row) -> ListedPerson:
    return ListedPerson(
        user_id=row["user_id"],
        display_name=row["display_name"],
        is_operator=bool(row["is_operator"]),
        created_at=row["created_at"],
        disabled_at=row["disabled_at"],
    )


def _to_member(row: Row) -> Member:
    person = Person(row["user_id"], bool(row["is_operator"]), row["display_name"])
    return Member(AccountId(row["user_id"]), person, Role.ADMIN)
