"""Tokens of principals in Postgres. The rules are in the statements of `sql/postgres/tokens.sql`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from easel.core.token import NewToken, Token
from easel.ids import UserId
from easel.stores import named_sql
from easel.stores.rows.nodes import to_token

if TYPE_CHECKING:
    from easel.stores.postgres.database import PostgresDatabase

SQL = named_sql.load("postgres", "tokens")


class PostgresTokens:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def create(self, new: NewToken) -> Token | None:
        return await self._one("create_token", **{**asdict(new), "kind": new.kind.value})

    async def find_by_digest(self, digest: str) -> Token | None:
        return await self._one("token_by_digest", digest=digest)

    async def find_by_id(self, token_id: str) -> Token | None:
        return await self._one("token_by_id", token_id=token_id)

    async def filter_valid(self, token_ids: Sequence[str]) -> set[str]:
        return {
            row["token_id"]
            for row in await self._database.rows(SQL["valid_tokens"], token_ids=list(token_ids))
        }

    async def list_tokens(self, user_id: UserId | None) -> list[Token]:
        statement = SQL["list_tokens" if user_id is None else "list_user_tokens"]
        return [to_token(row) for row in await self._database.rows(statement, user_id=user_id)]

    async def bind(self, token_id: str, node_id: str) -> Token | None:
        return await self._one("bind_token", token_id=token_id, node_id=node_id)

    async def revoke(self, token_id: str) -> Token | None:
        return await self._one("revoke_token", token_id=token_id)

    async def _one(self, statement: str, /, **arguments: str | None) -> Token | None:
        row = await self._database.row(SQL[statement], **arguments)
        return to_token(row) if row else None
