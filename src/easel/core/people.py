"""People and teams as the operator and the members of a team administer them. RS-76

Owns which names are reserved, and what a list of people, teams or members shows. Does not know how people
sign in.
"""

from dataclasses import dataclass
from datetime import datetime

from easel.core.account import MAX_DISPLAY_NAME_LENGTH, AccountKind, Member, check_account_name
from easel.core.principal import Principal, Role
from easel.errors import AlreadyExists, BadInput
from easel.ids import AccountId, UserId

# Names of Easel itself in records and addresses.
RESERVED = frozenset({"agent", "api", "easel", "host", "main", "me", "system"})


@dataclass(frozen=True, slots=True)
class ListedPerson:
    user_id: UserId
    display_name: str | None
    is_operator: bool
    created_at: datetime
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True)
class ListedTeam:
    account_id: AccountId
    created_at: datetime
    member_count: int


@dataclass(frozen=True, slots=True)
class ListedMember:
    """A member of a team, or the person in their own account."""

    user_id: UserId
    display_name: str | None
    role: Role


@dataclass(frozen=True, slots=True)
class Membership:
    """An account that a person is in, with their role there."""

    account_id: AccountId
    kind: AccountKind
    role: Role


@dataclass(frozen=True, slots=True)
class Departure:
    """A person who left an account, or was disabled: their runs and questions there are still to be ended."""

    account_id: AccountId
    user_id: UserId
    left_at: datetime
    seconds: float  # since then


def in_own_account(member: Member) -> Principal:
    """Return the principal of a person who has shown who they are, before they have a sign-in."""
    person = member.person
    name = person.display_name or person.user_id
    return Principal(
        member.account_id, name, role=member.role, is_operator=person.is_operator, user_id=person.user_id
    )


def check_new_name(name: str, what: str) -> AccountId:
    """Return the name of a new account as its id. Raises `BadInput`, or `AlreadyExists` if reserved."""
    account_id = check_account_name(name)
    if account_id in RESERVED:
        raise AlreadyExists(what=what, id=account_id)
    return account_id


def check_display_name(text: str) -> str | None:
    """Return the display name, None for an empty one. Raises `BadInput`."""
    text = " ".join(text.split())
    if len(text) > MAX_DISPLAY_NAME_LENGTH or not text.isprintable():
        raise BadInput(
            problem=f"The display name must be at most {MAX_DISPLAY_NAME_LENGTH} printable characters."
        )
    return text or None


def check_role(role: str) -> Role:
    """Return the role of a member. Raises `BadInput`."""
    if role not in {*Role}:
        raise BadInput(problem=f"The role must be one of {', '.join(Role)}, not {role[:50]!r}.")
    return Role(role)
