"""Tokens of principals. The rules are in the statements of `sql/common/tokens.sql`."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from easel.core.principal import Principal
from easel.core.token import NewToken, Token, TokenKind, principal_of
from easel.ids import AccountId
from easel.stores.nouns.accounts import to_person
from easel.stores.nouns.statements import Row, Statements


class SqlTokens:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def create(self, new: NewToken) -> Token | None:
        return await self._token("create_token", **{**asdict(new), "kind": new.kind.value})

    async def find_by_digest(self, digest: str) -> Principal | None:
        return _to_principal(await self._sql.row("token_by_digest", digest=digest))

    async def find_by_id(self, token_id: str) -> Principal | None:
        return _to_principal(await self._sql.row("token_by_id", token_id=token_id))

    async def filter_valid(self, token_ids: Sequence[str]) -> set[str]:
        return {row["token_id"] for row in await self._sql.rows("valid_tokens", token_ids=list(token_ids))}

    async def list_tokens(self, account_id: AccountId | None) -> list[Token]:
        statement = "list_tokens" if account_id is None else "list_account_tokens"
        return [_to_token(row) for row in await self._sql.rows(statement, account_id=account_id)]

    async def bind(self, token_id: str, node_id: str) -> Token | None:
        return await self._token("bind_token", token_id=token_id, node_id=node_id)

    async def revoke(self, token_id: str) -> Token | None:
        return await self._token("revoke_token", token_id=token_id)

    async def _token(self, statement: str, /, **arguments: str | None) -> Token | None:
        row = await self._sql.row(statement, **arguments)
        return _to_token(row) if row else None


def _to_token(row: Row) -> Token:
    columns: dict[str, Any] = {field.name: row[field.name] for field in fields(Token)}
    columns["kind"] = TokenKind(row["kind"])
    return Token(**columns)


def _to_principal(row: Row | None) -> Principal | None:
    return row and principal_of(_to_token(row), to_person(row) if row["user_id"] else None)
