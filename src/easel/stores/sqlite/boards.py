"""Boards in SQLite, which has one writer, so no other write can interleave."""

from typing import TYPE_CHECKING, Any

from easel.core.run.boards import Written
from easel.core.stream.json_text import to_json
from easel.stores.nouns.boards import SqlBoards
from easel.stores.nouns.statements import Steps
from easel.stores.rows.runs import OUTSIDE_THREAD
from easel.stores.sqlite.statements import SqliteStatements

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase


class SqliteBoards(SqlBoards):
    def __init__(self, database: "SqliteDatabase") -> None:
        super().__init__(SqliteStatements(database, "boards"))
        self._lease_clock = database.lease_clock

    def _store(self, arguments: dict[str, Any]) -> Steps[Written | None]:
        taken = yield "take_seq", {**arguments, "lease_now": self._lease_clock()}
        if not taken:
            return None
        seq = taken[0]["last_seq"]
        [stored] = yield "store_value", arguments
        patch = to_json({"version": arguments["version"]})
        yield "add_event", {**arguments, **OUTSIDE_THREAD, "seq": seq, "patch": patch}
        if arguments["artifact_ids"]:
            yield "add_references", arguments
        return Written(arguments["version"], seq, stored["created_at"], stored["updated_at"])
