"""A SQLite file that another process may have in use: opened beside it, without the folder's lock, for a word or two.

SQLite itself lets two processes write in turn. What must not be there twice is a server, which holds things in memory: so this has
only the tables of which no server keeps a copy for longer than a moment.
"""

from pathlib import Path

from easel.stores.sqlite.audit import SqliteAudit
from easel.stores.sqlite.connection import Connector
from easel.stores.sqlite.database import BUSY_SECONDS, newest_applied, wall_clock
from easel.stores.sqlite.executor import Answer, ReaderThreads, Work, WriterThread
from easel.stores.sqlite.tokens import SqliteTokens


class SharedSqlite:
    def __init__(self, path: Path) -> None:
        connector = Connector(path, "full", BUSY_SECONDS)
        self._writer = WriterThread("beside", connector.writer)
        self._readers = ReaderThreads("beside", connector.reader, 1)
        self.tokens = SqliteTokens(self)
        self.audit = SqliteAudit(self)

    def clock(self) -> int:
        return wall_clock()

    async def read(self, work: Work[Answer]) -> Answer:
        return await self._readers.do(work)

    async def write(self, work: Work[Answer]) -> Answer:
        return await self._writer.do(work)

    async def schema_version(self) -> int:
        return await self.read(newest_applied)

    async def close(self) -> None:
        await self._readers.close()
        await self._writer.close()
