"""Ports of people, teams and departures: their stores."""

from typing import Protocol

from easel.core.account import Member
from easel.core.people import Departure, ListedMember, ListedPerson, ListedTeam, Membership
from easel.core.principal import Role
from easel.core.token import NewToken
from easel.ids import AccountId, RunId, UserId


class PeopleStore(Protocol):
    """People, teams, members and invitations.

    A team keeps an admin who is not disabled: a change that would end the last one raises `LastAdmin`, unless
    it names a `new_admin`, who becomes admin of each such team in the same transaction; `NotFound` if that
    person does not exist or is disabled. A person who leaves an account, or is disabled, has a departure
    there, and has lost their tokens there. RS-76
    """

    async def add_person(
        self, user_id: UserId, *, is_operator: bool, token: NewToken, invitation: str, seconds: float
    ) -> bool:
        """Create a person with a token and an invitation, by its digest. False if the name is or was used."""
        ...

    async def count_people(self) -> int: ...

    async def list_people(self, after: str, limit: int) -> list[ListedPerson]:
        """Return people by name, also disabled ones."""
        ...

    async def get_person(self, user_id: UserId) -> ListedPerson | None: ...

    async def disable_person(self, user_id: UserId, new_admin: UserId | None = None) -> bool:
        """End what the person opened. Raises `LastAdmin`, and `BadInput` for the last operator.

        False if there is no such person, or they are disabled.
        """
        ...

    async def enable_person(self, user_id: UserId) -> bool: ...

    async def delete_person(self, user_id: UserId, new_admin: UserId | None = None) -> bool:
        """Mark a person as deleted, whose rows are purged later. As `disable_person`."""
        ...

    async def list_memberships(self, user_id: UserId) -> list[Membership]:
        """Return the person's own account and the teams that they are in, by name."""
        ...

    # -- teams and members

    async def add_team(self, account_id: AccountId, admin: UserId) -> bool:
        """Create a team. False if the name is, or was, taken. Raises `NotFound` for the admin."""
        ...

    async def list_teams(self, after: str, limit: int) -> list[ListedTeam]: ...

    async def delete_team(self, account_id: AccountId) -> bool: ...

    async def find_team(self, account_id: AccountId) -> AccountId | None:
        """Return the id of a team that is not deleted."""
        ...

    async def list_members(self, account_id: AccountId, after: str, limit: int) -> list[ListedMember]:
        """Return the members of a team by name, or the person whose account it is."""
        ...

    async def set_member(
        self,
        account_id: AccountId,
        user_id: UserId,
        role: Role,
        new_admin: UserId | None = None,
        *,
        is_member: bool | None = None,
    ) -> ListedMember | None:
        """Add a member to a team, or change their role. None if there is no such team.

        Raises `LastAdmin`, `NotFound` for a person, and `AlreadyExists` or `NotFound` unless the person
        `is_member`.
        """
        ...

    async def remove_member(
        self, account_id: AccountId, user_id: UserId, new_admin: UserId | None = None
    ) -> bool:
        """Remove a member from a team. False if there is no such team or member."""
        ...

    # -- invitations and passwords

    async def invite(self, user_id: UserId, digest: str, seconds: float) -> bool:
        """Store an invitation instead of the person's earlier ones. False if there is no such person."""
        ...

    async def find_invited(self, digest: str) -> Member | None:
        """Return the person of an invitation that is valid, in their own account."""
        ...

    async def use_invitation(
        self, digest: str, *, display_name: str | None, password_hash: str
    ) -> Member | None:
        """Consume an invitation and set the password. Ends the person's sign-ins. As `find_invited`."""
        ...

    async def find_password(self, user_id: UserId) -> tuple[Member, str | None] | None:
        """Return a person in their own account with the hash of their password, unless they are disabled."""
        ...

    async def set_password(
        self, user_id: UserId, password_hash: str, *, expected: str | None, keep_sign_in: str | None
    ) -> bool:
        """Replace the expected hash, None: no password. Ends the person's other sign-ins.

        False if the hash is another.
        """
        ...

    async def replace_hash(self, user_id: UserId, password_hash: str, expected: str) -> None:
        """Replace the expected hash by one of the same password."""
        ...


class DepartureStore(Protocol):
    """People who left an account, and whose work there is still to be ended. A row stays until it is done."""

    async def list_departures(self, limit: int) -> list[Departure]: ...

    async def list_runs(self, departure: Departure, limit: int) -> list[RunId]:
        """Return runs of theirs that are to be cancelled: a person who came back keeps later ones."""
        ...

    async def list_questions(self, departure: Departure, limit: int) -> list[str]:
        """Return the ids of executions of theirs that wait for a confirmation. As `list_runs`."""
        ...

    async def finish(self, departure: Departure) -> None:
        """Remove the departure, unless the person left again since."""
        ...
