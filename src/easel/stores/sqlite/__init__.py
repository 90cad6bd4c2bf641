"""The SQLite store: for one process, with nothing to set up. Several processes need Postgres."""

from easel.stores.sqlite.database import SqliteDatabase, open_sqlite

__all__ = ["SqliteDatabase", "open_sqlite"]
