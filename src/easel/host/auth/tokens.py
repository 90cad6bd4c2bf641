"""Tokens of people, programs and nodes: created, listed and revoked.

A member makes tokens of their own; an admin lists and revokes everybody's in the account. The command line
acts as the operator, for any person. Owns the audit records of creation and revocation. The secret of a token
is returned once, when the token is created; only its digest is stored.
"""

import secrets

from easel.core.principal import Principal, Role, lower_role
from easel.core.token import MAX_DAYS, PREFIX, NewToken, Token, TokenKind, check_token_name, digest_of
from easel.core.tool.node import check_node_id, describe_taken, is_node_id
from easel.errors import BadInput, Forbidden, NotFound
from easel.host.audit.audit import Audit
from easel.host.ports import TokenStore
from easel.ids import OWNER, AccountId, UserId, new_token_id

OPERATOR = Principal(OWNER, "command line", role=Role.ADMIN, is_operator=True, user_id=UserId(OWNER))
DAY_SECONDS = 86_400


class Tokens:
    def __init__(self, store: TokenStore, audit: Audit) -> None:
        self._store = store
        self._audit = audit

    async def create(
        self,
        user_id: str,
        kind: str,
        *,
        account_id: str | None = None,
        role: str = Role.ADMIN,
        name: str | None = None,
        node_id: str | None = None,
        days: int | None = None,
        by: Principal = OPERATOR,
    ) -> tuple[Token, str]:
        """Create a token of a person, in their own account or in a team's. Returns its row and its secret.

        It never has more rights than the person has. A node's token is bound to `node_id`, by default to its
        name. If the name is not a node id, the token is bound to the first node that connects with it. RS-68
        """
        if kind not in {*TokenKind}:
            raise BadInput(problem=f"kind must be one of {', '.join(TokenKind)}, not {kind[:50]!r}.")
        if role not in {*Role}:
            raise BadInput(problem=f"role must be one of {', '.join(Role)}, not {role[:50]!r}.")
        if days is not None and not 1 <= days <= MAX_DAYS:
            raise BadInput(problem=f"days must be from 1 to {MAX_DAYS}.")
        if node_id is not None and kind != TokenKind.NODE:
            raise BadInput(problem="Only a token of kind node can be bound to a node.")
        if kind == TokenKind.NODE and node_id is None and name is not None and is_node_id(name):
            node_id = name
        secret = PREFIX + secrets.token_urlsafe(32)
        new = NewToken(
            token_id=new_token_id(),
            account_id=AccountId(user_id if account_id is None else account_id),
            kind=TokenKind(kind),
            user_id=UserId(user_id),
            role=Role(role),
            name=check_token_name(name if name is not None else node_id or kind),
            node_id=None if node_id is None else check_node_id(node_id),
            digest=digest_of(secret),
            seconds=None if days is None else days * DAY_SECONDS,
        )
        await self._check_node(new, by)
        token = await self._store.create(new)
        if token is None:
            raise NotFound(what="user" if account_id is None else "member", id=user_id[:100])
        await self._audit.record(by, "token.created", subject=token.token_id, details=_details(token))
        return token, secret

    async def _check_node(self, new: NewToken, by: Principal) -> None:
        """Raise `Forbidden` if another person has the node of a new token, unless an admin makes it."""
        if new.node_id is None or by.role is Role.ADMIN:
            return
        if await self._store.is_node_of_another(new.account_id, new.node_id, new.user_id):
            raise Forbidden(problem=describe_taken(new.node_id))

    async def create_own(
        self,
        principal: Principal,
        kind: str,
        *,
        role: str | None,
        name: str | None,
        node_id: str | None,
        days: int | None,
    ) -> tuple[Token, str]:
        """Create a token of this person in the account of the request, with at most their role there.

        A token makes no tokens: they would outlive it. Only the owner's, which is no row, may.
        """
        assert principal.user_id is not None
        by_token = principal.token_id
        if by_token is not None and await self._store.find(principal.account_id, by_token) is not None:
            raise Forbidden(problem="a token makes no tokens; sign in to make one.")
        wanted = principal.role if role is None or role not in {*Role} else Role(role)
        if lower_role(wanted, principal.role) is not wanted:
            raise Forbidden(problem=f"a token of yours can have at most the role {principal.role}.")
        return await self.create(
            principal.user_id,
            kind,
            account_id=principal.account_id,
            role=wanted if role is None else role,
            name=name,
            node_id=node_id,
            days=days,
            by=principal,
        )

    async def list_tokens(self, account_id: str | None = None) -> list[Token]:
        return await self._store.list_tokens(None if account_id is None else AccountId(account_id))

    async def list_visible(self, principal: Principal) -> list[Token]:
        """Return the person's tokens in this account, for an admin all of its tokens."""
        tokens = await self._store.list_tokens(principal.account_id)
        return [token for token in tokens if _may_manage(principal, token)]

    async def revoke(self, token_id: str, by: Principal = OPERATOR) -> Token:
        revoked = await self._store.revoke(token_id)
        if revoked is None:
            raise NotFound(what="token", id=token_id[:100])
        await self._audit.record(by, "token.revoked", subject=revoked.token_id, details=_details(revoked))
        return revoked

    async def revoke_visible(self, principal: Principal, token_id: str) -> Token:
        """Revoke a token of the person in this account, for an admin any of its tokens."""
        token = await self._store.find(principal.account_id, token_id)
        if token is None or not _may_manage(principal, token):
            raise NotFound(what="token", id=token_id[:100])
        return await self.revoke(token_id, principal)


def _may_manage(principal: Principal, token: Token) -> bool:
    return principal.role is Role.ADMIN or token.user_id == principal.user_id


def _details(token: Token) -> dict[str, str]:
    return {
        "for": token.account_id,
        "user": token.user_id,
        "kind": token.kind.value,
        "role": token.role.value,
        "name": token.name,
        **({"node": token.node_id} if token.node_id else {}),
    }
