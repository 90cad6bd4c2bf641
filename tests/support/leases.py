"""The keeper of leases on a database, for tool loops outside of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from easel.host.documents.leases import LeaseKeeper
from easel.host.documents.transactions import DocumentTransactions

if TYPE_CHECKING:
    from easel.host.artifacts.artifacts import Artifacts
    from easel.stores.postgres import PostgresDatabase
    from easel.stores.sqlite import SqliteDatabase


def keep_leases(database: SqliteDatabase | PostgresDatabase, artifacts: Artifacts) -> LeaseKeeper:
    transactions = DocumentTransactions(database.documents, artifacts, database.notifier)
    return LeaseKeeper(transactions, database.canvases, database.notifier)
