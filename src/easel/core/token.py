"""A token: the credential of a person, a node or a service in one account. Only its digest is stored.

A token has a person, who acts with it or made it for a program, and a role: it never has more rights than the
person has in the account at that time. A node's token can only be used to connect as a node. If it is stolen,
it gives access to the calls of that node and to no other rows of the account. A node's token is bound to one
node id: when it is created, or at its first connection. RS-68, RS-76
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from easel.core.account import Member
from easel.core.principal import Principal, PrincipalKind, Role, lower_role
from easel.errors import BadInput
from easel.ids import AccountId, UserId

PREFIX = "easel_"  # lets secret scanners recognise a leaked token
MAX_NAME_LENGTH = 100
MAX_DAYS = 3_650  # until a token expires

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
    user_id: UserId
    role: Role
    name: str
    node_id: str | None  # the only node id that may connect with this token; None: not bound yet
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    token_id: str
    account_id: AccountId
    kind: TokenKind
    user_id: UserId
    role: Role
    name: str
    node_id: str | None
    digest: str
    seconds: float | None = None  # until it expires


def principal_of(token: Token | NewToken, member: Member) -> Principal:
    """Return the principal of a token, whose person is this member of its account.

    Only in person is an operator one: tokens of the operator's services and nodes are not. RS-76
    """
    is_person = token.kind is TokenKind.USER
    is_full = token.account_id == token.user_id and token.role is Role.ADMIN
    return Principal(
        token.account_id,
        token.name,
        PrincipalKind(token.kind.value),
        Role.VIEWER if token.kind is TokenKind.NODE else lower_role(token.role, member.role),
        is_operator=is_person and member.person.is_operator and is_full,
        user_id=token.user_id if is_person else None,
        on_behalf_of=None if is_person else token.user_id,
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
