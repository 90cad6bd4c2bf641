"""Boards in Postgres. A write locks the run, and stores the value and its event in one statement."""

from typing import TYPE_CHECKING, Any

from easel.core.run.boards import BoardWrite, Written
from easel.core.run.run import Claim
from easel.stores.nouns.boards import SqlBoards
from easel.stores.postgres.statements import PostgresStatements

if TYPE_CHECKING:
    from easel.stores.nouns.statements import Steps
    from easel.stores.postgres.database import PostgresDatabase


class PostgresBoards(SqlBoards):
    def __init__(self, database: "PostgresDatabase") -> None:
        super().__init__(PostgresStatements(database, "boards"))

    def _write(self, write: BoardWrite, claim: Claim | None) -> "Steps[Written | None]":
        # A separate statement: the next one must see the changes that were committed while this one waited
        # for the lock.
        yield "lock_run", {"run_id": write.run_id, "account_id": write.account_id}
        return (yield from super()._write(write, claim))

    def _store(self, arguments: dict[str, Any]) -> "Steps[Written | None]":
        stored = yield "write_board", arguments
        return Written(arguments["version"], **stored[0]) if stored else None
