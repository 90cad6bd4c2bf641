"""Canvases and their logs in SQLite, which has one writer, so no other write can interleave.

The statement that changes a canvas only takes the positions of its events; others store them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from easel.core.stream.envelope import Envelope
from easel.stores.nouns.canvases import NOUNS, Ids, SqlCanvases
from easel.stores.nouns.statements import Steps
from easel.stores.rows.runs import event_columns
from easel.stores.sqlite.statements import SqliteStatements

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase


class SqliteCanvases(SqlCanvases):
    def __init__(self, database: "SqliteDatabase", max_versions: int) -> None:
        super().__init__(SqliteStatements(database, *NOUNS), database.deletions, max_versions)

    def _add_events(
        self, events: Sequence[Envelope], arguments: dict[str, Any], last_seq: int, /
    ) -> Steps[None]:
        ids = {"account_id": arguments["account_id"], "canvas_id": arguments["canvas_id"]}
        yield from add_events(ids, events, last_seq)
        for name, artifact_ids in (("log_references", "logs"), ("hold_references", "holds")):
            if arguments[artifact_ids]:
                yield name, {**arguments, "last_seq": last_seq}

    def _trim_log(self, arguments: dict[str, Any]) -> Steps[int]:
        rows = yield "trim_canvas_log", arguments
        if not rows:
            return 0
        return len((yield "delete_canvas_events", {**arguments, "oldest_seq": rows[0]["oldest_seq"]}))


def add_events(ids: Ids, events: Sequence[Envelope], last_seq: int) -> Steps[None]:
    """Store events in the log of a canvas, at the positions up to `last_seq`, which the caller has taken."""
    for seq, event in enumerate(events, last_seq - len(events) + 1):
        yield "add_canvas_event", {**ids, **event_columns(event), "seq": seq}
