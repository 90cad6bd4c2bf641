"""The Postgres store: for one process or many. Needs Postgres 15 or newer."""

from easel.stores.postgres.database import PostgresDatabase, open_postgres

__all__ = ["PostgresDatabase", "open_postgres"]
