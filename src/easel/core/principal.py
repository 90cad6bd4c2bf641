"""Who acts. Every story and every query of a user's things carries one."""

from dataclasses import dataclass
from enum import StrEnum

from easel.ids import OWNER, UserId


class Scope(StrEnum):
    DEBUG = "debug"  # may see internal events
    ADMIN = "admin"  # may read metrics and the audit trail


class PrincipalKind(StrEnum):
    """What acts for a user. Only a person confirms and accepts; a node can do nothing but be one. RS-59"""

    USER = "user"
    AGENT = "agent"
    NODE = "node"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Principal:
    user_id: UserId
    name: str
    scopes: frozenset[Scope] = frozenset()
    kind: PrincipalKind = PrincipalKind.USER
    token_id: str | None = None  # of the token that they came with, where it can be revoked
    only_node: str | None = None  # the one node that they may be
    sign_in_id: str | None = None  # of the browser that they came with, until they sign out

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes

    @property
    def can_end(self) -> bool:
        """Whether what they came with can stop to hold while something is open by it."""
        return self.token_id is not None or self.sign_in_id is not None

    @property
    def is_person(self) -> bool:
        return self.kind is PrincipalKind.USER


THE_OWNER = Principal(OWNER, "owner", frozenset(Scope))
NOBODY = Principal(
    UserId(""), "nobody"
)  # whoever asks for what is open to all: owns nothing and may do nothing
