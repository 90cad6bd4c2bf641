"""A token: the credential of a person, a node or a service in one account. Only its digest is stored.

A node's token can only be used to connect as a node. If it is stolen, it gives access to the calls of that
node and to no other rows of the account. A node's token is bound to one node id: when it is created, or at
its first connection. RS-68
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from easel.core.account import Person
from easel.core.principal import Principal, PrincipalKind, Role
from easel.errors import BadInput
from easel.ids import AccountId

PREFIX = "easel_"  # lets secret scanners recognise a leaked token
MAX_NAME_LENGTH = 100

_TOKEN = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_-]{43}")


class TokenKind(StrEnum):
    USER = "user"
    NODE = "node"
    SERVICE = "service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    token_id: str
    account_id: AccountId
    kind: TokenKind
    name: str
    node_id: str | None  # the only node id that may connect with this token; None: not bound yet
    created_at: datetime
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    token_id: str
    account_id: AccountId
    kind: TokenKind
    name: str
    node_id: str | None
    digest: str


def principal_of(token: Token | NewToken, person: Person | None) -> Principal | None:
    """Return the principal of a token. None for a user's token whose account is not that of a person.

    Everybody is admin of their own account, and so are their services. Only in person is an operator one:
    tokens of the operator's services and nodes are not. RS-76
    """
    is_person = token.kind is TokenKind.USER
    if is_person and person is None:
        return None
    user = person if is_person else None
    return Principal(
        token.account_id,
        token.name,
        PrincipalKind(token.kind.value),
        Role.VIEWER if token.kind is TokenKind.NODE else Role.ADMIN,
        is_operator=user is not None and user.is_operator,
        user_id=None if user is None else user.user_id,
        token_id=token.token_id,
        only_node=token.node_id,
    )


def digest_of(token: str) -> str:
    """Return the digest to store. A fast hash is safe here, because a token has 256 random bits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def is_token(text: str) -> bool:
    """Return whether the text has the form of a token, so that other texts are refused without a query."""
    return _TOKEN.fullmatch(text) is not None


def check_token_name(name: str) -> str:
    if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise BadInput(problem=f"A token's name must be 1 to {MAX_NAME_LENGTH} printable characters.")
    return name
