"""Access to a SQLite file that a running server may have open, for short commands such as `easel token`.

The file is opened without the lock of the data folder: SQLite lets two processes write in turn. Only tokens,
people, settings, secrets, connections and audit records are accessible, because a running server caches them
for at most a second.
"""

from functools import partial
from pathlib import Path

from easel.stores.nouns.connections import SqlConnections
from easel.stores.nouns.people import SqlPeople
from easel.stores.nouns.secrets import SqlSecrets
from easel.stores.nouns.settings import SqlSettings
from easel.stores.nouns.tokens import SqlTokens
from easel.stores.sqlite.audit import SqliteAudit
from easel.stores.sqlite.connection import BUSY_SECONDS, Connector
from easel.stores.sqlite.database import wall_clock
from easel.stores.sqlite.executor import Answer, ReaderThreads, Work, WriterThread
from easel.stores.sqlite.schema import find_missing
from easel.stores.sqlite.statements import SqliteStatements


class SharedSqlite:
    def __init__(self, path: Path) -> None:
        connector = Connector(path, "full", BUSY_SECONDS)
        self._writer = WriterThread("shared-writer", connector.writer)
        self._readers = ReaderThreads("shared-reader", connector.reader, 1)
        statements = partial(SqliteStatements, self)
        self.tokens = SqlTokens(statements("tokens"))
        self.people = SqlPeople(statements("people", "accounts", "tokens", "sign_ins"))
        self.settings = SqlSettings(statements("settings"))
        self.secrets = SqlSecrets(statements("secrets"))
        self.connections = SqlConnections(statements("connections"))
        self.audit = SqliteAudit(self)

    def clock(self) -> int:
        return wall_clock()

    async def read(self, work: Work[Answer]) -> Answer:
        return await self._readers.run(work)

    async def write(self, work: Work[Answer]) -> Answer:
        return await self._writer.run(work)

    async def is_migrated(self) -> bool:
        """Return whether no migration is missing. Raises `BadSettings` if another version wrote the file."""
        return not await self.read(find_missing)

    async def close(self) -> None:
        await self._readers.close()
        await self._writer.close()
