"""Tokens of principals in SQLite. The rules are in the statements of `sql/sqlite/tokens.sql`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Protocol

import msgspec

from easel.core.token import NewToken, Token
from easel.ids import UserId
from easel.stores import named_sql
from easel.stores.rows.nodes import to_token
from easel.stores.sqlite.executor import Answer, Work
from easel.stores.sqlite.times import to_datetime

SQL = named_sql.load("sqlite", "tokens")


class TokenDatabase(Protocol):
    """The database of a server, or `SharedSqlite` on the file of a server."""

    def clock(self) -> int: ...

    async def read(self, work: Work[Answer]) -> Answer: ...

    async def write(self, work: Work[Answer]) -> Answer: ...


class SqliteTokens:
    def __init__(self, database: TokenDatabase) -> None:
        self._database = database

    async def create(self, new: NewToken) -> Token | None:
        return await self._change("create_token", **{**asdict(new), "kind": new.kind.value})

    async def find_by_digest(self, digest: str) -> Token | None:
        return _first(await self._read("token_by_digest", digest=digest))

    async def find_by_id(self, token_id: str) -> Token | None:
        return _first(await self._read("token_by_id", token_id=token_id))

    async def filter_valid(self, token_ids: Sequence[str]) -> set[str]:
        rows = await self._read("valid_tokens", token_ids=msgspec.json.encode(list(token_ids)).decode())
        return {row["token_id"] for row in rows}

    async def list_tokens(self, user_id: UserId | None) -> list[Token]:
        statement = "list_tokens" if user_id is None else "list_user_tokens"
        return [to_token(row, to_datetime) for row in await self._read(statement, user_id=user_id)]

    async def bind(self, token_id: str, node_id: str) -> Token | None:
        return await self._change("bind_token", token_id=token_id, node_id=node_id)

    async def revoke(self, token_id: str) -> Token | None:
        return await self._change("revoke_token", token_id=token_id)

    async def _read(self, statement: str, /, **arguments: Any) -> list[Any]:
        return await self._database.read(
            lambda connection: connection.execute(SQL[statement].sql, arguments).fetchall()
        )

    async def _change(self, statement: str, /, **arguments: Any) -> Token | None:
        arguments["now"] = self._database.clock()
        rows: list[Any] = await self._database.write(
            lambda connection: connection.execute(SQL[statement].sql, arguments).fetchall()
        )
        return _first(rows)


def _first(rows: list[Any]) -> Token | None:
    return to_token(rows[0], to_datetime) if rows else None
