"""The principal of a request: a user and what acts for them.

Every service call and every query of a user's data has one.
"""

from dataclasses import dataclass
from enum import StrEnum

from easel.ids import OWNER, UserId


class Scope(StrEnum):
    DEBUG = "debug"  # may read internal events
    ADMIN = "admin"  # may read metrics and the audit trail


class PrincipalKind(StrEnum):
    """The kind of actor that acts for a user.

    Only a person confirms and accepts; a node can only offer tools and answer calls. RS-59
    """

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
    token_id: str | None = None  # of the token that authenticated it, if that can be revoked
    only_node: str | None = None  # the node id that its token is bound to
    sign_in_id: str | None = None  # of the browser that it came with, until it signs out

    def has_scope(self, scope: Scope) -> bool:
        return scope in self.scopes

    @property
    def is_revocable(self) -> bool:
        """Return whether its credential can become invalid while a request or connection is open."""
        return self.token_id is not None or self.sign_in_id is not None

    @property
    def is_person(self) -> bool:
        return self.kind is PrincipalKind.USER


THE_OWNER = Principal(OWNER, "owner", frozenset(Scope))
ANONYMOUS = Principal(UserId(""), "nobody")  # of requests to open routes: owns nothing and may do nothing
