"""The log of a canvas in SQLite: appending events within the transaction of a change.

The statements are in `sql/sqlite/canvases.sql`.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence

from easel.core.stream.envelope import Envelope
from easel.stores import named_sql

SQL = named_sql.load("sqlite", "canvases")

Ids = Mapping[str, str]  # account_id and canvas_id


def add_events(
    connection: sqlite3.Connection, ids: Ids, events: Sequence[Envelope], last_seq: int, now: int
) -> None:
    """Store events at the positions up to `last_seq`, which the caller has taken."""
    rows = [
        {
            "seq": seq,
            "event_type": event.type,
            "visibility": event.visibility.value,
            "payload": event.json,
            "now": now,
            **ids,
        }
        for seq, event in enumerate(events, last_seq - len(events) + 1)
    ]
    connection.executemany(SQL["add_canvas_event"].sql, rows)


def append_events(connection: sqlite3.Connection, ids: Ids, events: Sequence[Envelope], now: int) -> None:
    """Append events to the log of a canvas. Its revision stays."""
    if events:
        [canvas] = connection.execute(
            SQL["take_canvas_positions"].sql, {"events": len(events), **ids}
        ).fetchall()
        add_events(connection, ids, events, canvas["last_seq"], now)


def append_event(connection: sqlite3.Connection, ids: Ids, make: Callable[[int], Envelope], now: int) -> None:
    """Append the event that `make` returns for the revision of the canvas."""
    [canvas] = connection.execute(SQL["take_canvas_positions"].sql, {"events": 1, **ids}).fetchall()
    add_events(connection, ids, [make(canvas["revision"])], canvas["last_seq"], now)
