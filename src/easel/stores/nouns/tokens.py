"""Tokens of principals. The rules are in the statements of `sql/common/tokens.sql`."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from easel.core.principal import Principal, Role
from easel.core.token import NewToken, Token, TokenKind, principal_of
from easel.ids import AccountId, UserId
from easel.stores.nouns.accounts import to_member
from easel.stores.nouns.statements import Row, Statements


class SqlTokens:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def create(self, new: NewToken) -> Token | None:
        columns = {**asdict(new), "kind": new.kind.value, "role": new.role.value}
        return await self._token("create_token", **columns)

    async def find_by_digest(self, digest: str) -> Principal | None:
        row = await self._sql.row("token_by_digest", digest=digest)
        return None if row is None else _to_principal(row)

    async def find_by_id(self, token_id: str) -> Principal | None:
        return next(iter(await self.list_valid([token_id])), None)

    async def list_valid(self, token_ids: Sequence[str]) -> list[Principal]:
        rows = await self._sql.rows("tokens_by_id", token_ids=list(token_ids))
        return [principal for row in rows if (principal := _to_principal(row)) is not None]

    async def note_use(self, token_ids: Sequence[str]) -> None:
        await self._sql.rows("note_use", token_ids=list(token_ids))

    async def list_tokens(self, account_id: AccountId | None) -> list[Token]:
        statement = "list_tokens" if account_id is None else "list_account_tokens"
        return [_to_token(row) for row in await self._sql.rows(statement, account_id=account_id)]

    async def find(self, account_id: AccountId, token_id: str) -> Token | None:
        return await self._token("find_token", account_id=account_id, token_id=token_id)

    async def is_node_of_another(self, account_id: AccountId, node_id: str, user_id: UserId) -> bool:
        node = {"account_id": account_id, "node_id": node_id, "user_id": user_id}
        return await self._sql.row("find_other_node", **node) is not None

    async def bind(self, token_id: str, node_id: str) -> Token | None:
        return await self._token("bind_token", token_id=token_id, node_id=node_id)

    async def revoke(self, token_id: str) -> Token | None:
        return await self._token("revoke_token", token_id=token_id)

    async def _token(self, statement: str, /, **arguments: Any) -> Token | None:
        row = await self._sql.row(statement, **arguments)
        return _to_token(row) if row else None


def _to_token(row: Row) -> Token:
    columns: dict[str, Any] = {field.name: row[field.name] for field in fields(Token)}
    columns |= {"kind": TokenKind(row["kind"]), "role": Role(row["role"])}
    return Token(**columns)


def _to_principal(row: Row) -> Principal | None:
    """Return the principal of a valid token. Viewers may not have nodes, also not those made before."""
    member, token = to_member(row), _to_token(row)
    is_lost_node = token.kind is TokenKind.NODE and member.role is Role.VIEWER
    return None if is_lost_node else principal_of(token, member)
