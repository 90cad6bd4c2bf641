"""Identities of persons at the OpenID provider. The rules are in the statements of `identities.sql`.

Its transactions also use statements of `people.sql`, `accounts.sql`, `tokens.sql` and `sign_ins.sql`, and
lock people and teams in the order that is described in `people.py`.
"""

from collections.abc import Mapping

from easel.core.account import AccountKind, Member
from easel.core.openid.identity import Identity, KnownIdentity, TeamChanges
from easel.core.principal import Role
from easel.errors import AlreadyExists
from easel.ids import AccountId, UserId
from easel.stores.nouns.accounts import to_person
from easel.stores.nouns.statements import Row, Statements, Steps


class SqlIdentities:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def find(self, issuer: str, subject: str) -> KnownIdentity | None:
        row = await self._sql.row("find_identity", issuer=issuer, subject=subject)
        if row is None:
            return None
        return KnownIdentity(UserId(row["user_id"]), _own(row) if row["is_enabled"] else None)

    async def add_person(
        self, user_id: UserId, display_name: str | None, issuer: str, subject: str
    ) -> Member | None:
        def steps() -> Steps[Member | None]:
            if not (yield "add_account", {"account_id": user_id, "kind": AccountKind.PERSON.value}):
                return None
            yield "add_person", {"account_id": user_id, "display_name": display_name}
            yield from _give(issuer, subject, user_id, replaces_deleted=False)
            [row] = yield "name_person", {"user_id": user_id, "display_name": None}
            return _own(row)

        return await self._sql.transaction(steps())

    async def connect(self, invitation: str, identity: Identity) -> Member | None:
        def steps() -> Steps[Member | None]:
            invited = yield "find_invited", {"digest": invitation}
            yield "lock_people", {"user_ids": [row["user_id"] for row in invited], "with_operators": False}
            taken = yield "take_invitation", {"digest": invitation}
            if not taken:
                return None
            user_id = UserId(taken[0]["user_id"])
            yield "remove_invitations", {"user_id": user_id}
            yield "end_sign_ins", {"user_id": user_id, "kept": ""}
            yield from _give(identity.issuer, identity.subject, user_id, replaces_deleted=True)
            [row] = yield "name_person", {"user_id": user_id, "display_name": identity.display_name}
            return _own(row)

        return await self._sql.transaction(steps())

    async def apply_teams(self, user_id: UserId, teams: Mapping[AccountId, Role]) -> TeamChanges:
        return await self._sql.transaction(_apply_teams(user_id, teams))


def _give(issuer: str, subject: str, user_id: UserId, *, replaces_deleted: bool) -> Steps[None]:
    """Give an identity to a person, or end the transaction."""
    identity = {"issuer": issuer, "subject": subject, "user_id": user_id}
    if not (yield "add_identity", {**identity, "replaces_deleted": replaces_deleted}):
        raise AlreadyExists(what="identity", id="of the provider")


def _apply_teams(user_id: UserId, teams: Mapping[AccountId, Role]) -> Steps[TeamChanges]:
    """Set what came from the claim, team by team in the order of their names."""
    yield "lock_people", {"user_ids": [user_id], "with_operators": False}
    claimed = yield "list_claimed_teams", {"user_id": user_id}
    given: dict[str, str] = {}
    removed: list[str] = []
    kept: list[str] = []
    unknown: list[str] = []
    for team in sorted({*teams, *(AccountId(row["account_id"]) for row in claimed)}):
        ids, role = {"account_id": team, "user_id": user_id}, teams.get(team)
        if not (yield "lock_team", {"account_id": team}):
            unknown.append(team)
            continue
        found = yield "get_claimed", ids
        before = Role(found[0]["role"]) if found else None
        if before is role or (found and not found[0]["from_claim"]):
            continue
        if before is Role.ADMIN and not (yield "has_other_admin", ids):
            kept.append(team)
        elif role is not None:
            yield "set_claimed", {**ids, "role": role.value}
            given[team] = role.value
        else:
            yield "remove_member", ids
            yield "add_departure", ids
            yield "revoke_tokens_in", ids
            removed.append(team)
    return TeamChanges(given, tuple(removed), tuple(kept), tuple(unknown))


def _own(row: Row) -> Member:
    """Return a person in their own account."""
    return Member(AccountId(row["user_id"]), to_person(row), Role.ADMIN)
