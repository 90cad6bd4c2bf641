"""An account: a person or a team, the owner of rows. A person is also a user, who acts. RS-76"""

from dataclasses import dataclass

from easel.ids import UserId


@dataclass(frozen=True, slots=True)
class Person:
    """A user, whose own account has the same id. An operator administers the host, and reaches no rows."""

    user_id: UserId
    is_operator: bool
