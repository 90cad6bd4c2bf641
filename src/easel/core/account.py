"""Accounts, the owners of rows: a person or a team. The id of an account is its name. RS-76

A name is never changed, and never given again after its account was deleted. Everybody is admin of their own
account; in a team a person has the role of a member.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from easel.core.principal import Role
from easel.errors import BadInput
from easel.ids import AccountId, UserId

MAX_NAME_LENGTH = 63
MAX_DISPLAY_NAME_LENGTH = 100

_NAME = re.compile(rf"[a-z0-9-]{{1,{MAX_NAME_LENGTH}}}")


class AccountKind(StrEnum):
    PERSON = "person"
    TEAM = "team"


@dataclass(frozen=True, slots=True)
class Person:
    """A user, whose own account has the same id. An operator administers the host, and reaches no rows."""

    user_id: UserId
    is_operator: bool
    display_name: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A person in an account, with the role that they have there."""

    account_id: AccountId
    person: Person
    role: Role


def is_account_name(name: str) -> bool:
    """Return whether an account can have this name; a lookup of any other name can be skipped."""
    return _NAME.fullmatch(name) is not None


def check_account_name(name: str) -> AccountId:
    """Return the name of a new account as its id. Raises `BadInput`."""
    if not is_account_name(name):
        raise BadInput(
            problem=f"A name must be 1 to {MAX_NAME_LENGTH} characters of a-z, 0-9 and `-`, "
            f"not {name[:100]!r}."
        )
    return AccountId(name)
