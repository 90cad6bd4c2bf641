"""Canvases and their logs in Postgres: a change locks its canvas, and stores its events in one statement."""

from typing import TYPE_CHECKING, Any

from easel.stores.nouns.canvases import NOUNS, Ids, SqlCanvases
from easel.stores.postgres.statements import PostgresStatements

if TYPE_CHECKING:
    from easel.stores.nouns.statements import Steps
    from easel.stores.postgres.database import PostgresDatabase


class PostgresCanvases(SqlCanvases):
    def __init__(self, database: "PostgresDatabase", max_versions: int) -> None:
        super().__init__(PostgresStatements(database, *NOUNS), database.deletions, max_versions)

    def _lock(self, ids: Ids, /) -> "Steps[None]":
        yield "lock_canvas", ids

    def _trim_log(self, arguments: dict[str, Any]) -> "Steps[int]":
        [trimmed] = yield "trim_canvas_log", arguments
        return trimmed["events"]
