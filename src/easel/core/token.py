"""A token: what somebody shows to act for a user, as a person, a node or a service. Only its digest is kept.

A node's token can do nothing but be a node: if it is stolen from the machine, nothing of the user's is open to the thief but what a
node hears. It may be bound to one node's id.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from easel.core.principal import Principal, PrincipalKind, Scope
from easel.errors import BadInput
from easel.ids import OWNER, UserId

PREFIX = "easel_"  # so that a token in a place where it should not be can be found
MAX_NAME_LENGTH = 100

_LOOKS_LIKE_ONE = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_-]{43}")


class TokenKind(StrEnum):
    USER = "user"
    NODE = "node"
    SERVICE = "service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    token_id: str
    user_id: UserId
    kind: TokenKind
    name: str
    node_id: str | None  # the only node that it may be; None: any
    created_at: datetime
    revoked_at: datetime | None = None

    @property
    def principal(self) -> Principal:
        # The owner administers; a program or a machine of the owner's does not.
        scopes = (
            frozenset(Scope) if self.kind is TokenKind.USER and self.user_id == OWNER else frozenset[Scope]()
        )
        return Principal(
            self.user_id,
            self.name,
            scopes,
            PrincipalKind(self.kind.value),
            token_id=self.token_id,
            only_node=self.node_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    token_id: str
    user_id: UserId
    kind: TokenKind
    name: str
    node_id: str | None
    digest: str


def digest_of(token: str) -> str:
    """A token has 256 random bits, so one plain hash is as good as many."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def is_token(text: str) -> bool:
    """Whether this could be one of ours at all: anything else is not worth a query."""
    return _LOOKS_LIKE_ONE.fullmatch(text) is not None


def checked_name(name: str) -> str:
    if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise BadInput(problem=f"A token's name is 1 to {MAX_NAME_LENGTH} printable characters.")
    return name
