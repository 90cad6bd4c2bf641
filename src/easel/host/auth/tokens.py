"""Tokens of people, programs and nodes: created, listed and revoked by the operator.

Owns the audit records of creation and revocation. The secret of a token is returned once, when the token is
created; only its digest is stored.
"""

import secrets

from easel.core.principal import Principal
from easel.core.token import PREFIX, NewToken, Token, TokenKind, check_token_name, digest_of
from easel.core.tool.node import check_node_id, is_node_id
from easel.errors import BadInput, NotFound
from easel.host.audit.audit import Audit
from easel.host.ports import TokenStore
from easel.ids import OWNER, AccountId, UserId, new_token_id

OPERATOR = Principal(OWNER, "command line", user_id=UserId(OWNER))


class Tokens:
    def __init__(self, store: TokenStore, audit: Audit) -> None:
        self._store = store
        self._audit = audit

    async def create(
        self,
        account_id: str,
        kind: str,
        *,
        name: str | None = None,
        node_id: str | None = None,
        by: Principal = OPERATOR,
    ) -> tuple[Token, str]:
        """Create a token. Returns its row and its secret.

        A node's token is bound to `node_id`, by default to its name. If the name is not a node id, the token
        is bound to the first node that connects with it. RS-68
        """
        if kind not in {*TokenKind}:
            raise BadInput(problem=f"kind must be one of {', '.join(TokenKind)}, not {kind[:50]!r}.")
        if node_id is not None and kind != TokenKind.NODE:
            raise BadInput(problem="Only a token of kind node can be bound to a node.")
        if kind == TokenKind.NODE and node_id is None and name is not None and is_node_id(name):
            node_id = name
        secret = PREFIX + secrets.token_urlsafe(32)
        new = NewToken(
            token_id=new_token_id(),
            account_id=AccountId(account_id),
            kind=TokenKind(kind),
            name=check_token_name(name if name is not None else node_id or kind),
            node_id=None if node_id is None else check_node_id(node_id),
            digest=digest_of(secret),
        )
        token = await self._store.create(new)
        if token is None:
            raise NotFound(what="user", id=account_id[:100])
        await self._audit.record(by, "token.created", subject=token.token_id, details=_details(token))
        return token, secret

    async def list_tokens(self, account_id: str | None = None) -> list[Token]:
        return await self._store.list_tokens(None if account_id is None else AccountId(account_id))

    async def revoke(self, token_id: str, by: Principal = OPERATOR) -> Token:
        revoked = await self._store.revoke(token_id)
        if revoked is None:
            raise NotFound(what="token", id=token_id[:100])
        await self._audit.record(by, "token.revoked", subject=revoked.token_id, details=_details(revoked))
        return revoked


def _details(token: Token) -> dict[str, str]:
    return {
        "for": token.account_id,
        "kind": token.kind.value,
        "name": token.name,
        **({"node": token.node_id} if token.node_id else {}),
    }
