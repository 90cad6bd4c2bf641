"""The SQLite store, for one process; needs no setup. Several processes need Postgres."""

from easel.stores.sqlite.database import SqliteDatabase, open_sqlite

__all__ = ["SqliteDatabase", "open_sqlite"]
