"""Instances of the document services on one store: tools, people, queue and leases.

Owns how a test makes a document and a claimed run. Several instances share a store as processes do: one
SQLite database, or a pool of its own for each on Postgres.
"""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from easel.core.canvas.canvas import NewCanvas
from easel.core.canvas.events import CanvasEvents
from easel.core.document.lease import Held
from easel.core.run.conversation import ToolCall
from easel.core.session.session import to_session_key
from easel.core.tool.context import ToolContext
from easel.host.artifacts.artifacts import Artifacts
from easel.host.audit.audit import Audit
from easel.host.documents.answers import ToolRules
from easel.host.documents.leases import LeaseKeeper
from easel.host.documents.service import Documents
from easel.host.documents.tools import document_tools
from easel.host.documents.transactions import DocumentTransactions
from easel.host.runs.queue import RunQueue
from easel.host.tools.registry import ToolRegistry
from easel.ids import OWNER, AccountId, CallId, CanvasId, SessionId, WorkerId, new_event_id
from easel.stores.blobs.store import open_blobs
from easel.stores.postgres import open_postgres
from easel.stores.sqlite import open_sqlite
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from easel.core.document.document import Document
    from easel.core.principal import Principal
    from easel.core.run.run import Claim
    from easel.stores.postgres import PostgresDatabase
    from easel.stores.sqlite import SqliteDatabase

TIMEOUT_SECONDS = 30.0  # of a statement, for a slow machine
CLAIM_SECONDS = 3_600.0  # longer than any test
MARKDOWN: Mapping[str, Any] = {"version": 1, "mode": "markdown"}
PLAN = "# Plan\n\n## Steps\n\n- one\n- two\n- three\n\n## Notes\n\nNothing yet.\n"


def unique(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(6)}"


class Instance:
    """One instance of the services that read and write documents."""

    def __init__(
        self,
        database: SqliteDatabase | PostgresDatabase,
        folder: Path,
        rules: ToolRules | None = None,
        *,
        max_bytes: int = 1_048_576,
    ) -> None:
        rules = rules or ToolRules()
        self.database = database
        self.store = database.documents
        self.notifier = database.notifier
        self.audit = Audit(database.audit)
        self.artifacts = Artifacts(
            database.artifacts, open_blobs(str(folder / "blobs")), max_bytes=10_000_000, grace_seconds=3600
        )
        self.transactions = DocumentTransactions(database.documents, self.artifacts, database.notifier)
        self.documents = Documents(self.transactions, self.audit, max_bytes=max_bytes)
        self.leases = LeaseKeeper(self.transactions, database.canvases, database.notifier)
        self.tools = ToolRegistry(
            document_tools(self.transactions, self.leases, rules),
            audit=self.audit,
            timeout_seconds=60,
            max_result_bytes=rules.max_result_bytes,
        )
        self.queue = RunQueue(
            database.runs,
            self.artifacts,
            database.notifier,
            self.audit,
            canvases=database.canvases,
            max_attempts=3,
            max_message_bytes=100_000,
        )

    # -- canvases and runs -----------------------------------------------------------------------------------

    async def create(
        self,
        text: str | None = PLAN,
        *,
        session: str = "s",
        canvas_id: str | None = None,
        user: AccountId = OWNER,
        spec: Mapping[str, Any] = MARKDOWN,
    ) -> CanvasId:
        """Create a document of a session, with a text that a person wrote."""
        name = CanvasId(canvas_id or unique("doc"))
        new = NewCanvas(
            account_id=user,
            canvas_id=name,
            agent_id="main",
            title="A document",
            spec=spec,
            state={},
            owner_session_key=to_session_key(SessionId(session)),
        )
        events = CanvasEvents(name, agent_id=user, event_id=new_event_id())
        assert await self.database.canvases.create(new, events.created(1, "A document")) is not None
        if text:
            await self.documents.put(THE_OWNER, name, text, None)
        return name

    async def start(self, session: str = "s", text: str = "noop") -> Claim:
        """Send a message to a session without unfinished runs, and claim its run."""
        run = await self.queue.start(THE_OWNER, session, text)
        claims = await self.database.runs.claim_queued(WorkerId(unique("wrk")), 1_000, CLAIM_SECONDS, 0)
        return next(claim for claim in claims if claim.run_id == run.run_id)

    # -- tools -----------------------------------------------------------------------------------------------

    async def call(self, claim: Claim, tool: str, **args: Any) -> dict[str, Any]:
        """Call a tool in a run and return its answer, which must not be an error of the registry."""
        result = await self.tools.use(
            ToolCall(CallId("call"), f"canvas_{tool}", args), ToolContext.of_run(claim)
        )
        assert not result.is_error, result.value
        return result.value

    async def fail(self, claim: Claim, tool: str, **args: Any) -> str:
        """Call a tool that must answer an error of the registry. Returns its message."""
        result = await self.tools.use(
            ToolCall(CallId("call"), f"canvas_{tool}", args), ToolContext.of_run(claim)
        )
        assert result.is_error, result.value
        return result.value

    async def check_out(self, claim: Claim, canvas_id: str | None = None) -> str:
        """Check out a document. Returns the lease's id."""
        answer = await self.call(
            claim, "check_out", **({} if canvas_id is None else {"canvas_id": canvas_id})
        )
        assert answer["ok"], answer
        return answer["lease_id"]

    async def edit(self, claim: Claim, lease_id: str, patch: str, **more: Any) -> dict[str, Any]:
        """Read the whole document and apply a patch."""
        shown = await self.call(claim, "read_all", lease_id=lease_id)
        if not shown["ok"]:
            return shown
        return await self.call(claim, "apply_patch", lease_id=lease_id, patch=patch, **more)

    # -- looking ---------------------------------------------------------------------------------------------

    async def get(self, canvas_id: str, principal: Principal = THE_OWNER) -> Document:
        return await self.documents.get(principal, canvas_id)

    async def text(self, canvas_id: str) -> str:
        return (await self.get(canvas_id)).text

    async def holder(self, canvas_id: str) -> str | None:
        """Return the run that has a live lease of the document."""
        held = (await self.get(canvas_id)).live_lease
        return None if held is None else held.run_id

    async def events(self, canvas_id: str, event_type: str) -> list[dict[str, Any]]:
        logged = await self.database.canvases.events_after(f"owner/{canvas_id}", 0, 10_000)
        return [msgspec.json.decode(event.data) for event in logged if event.type == event_type]

    async def expire(self, canvas_id: str, seconds: float = 0.1) -> None:
        """Let the lease of the document have expired some seconds ago, by the store's clock."""
        document = await self.get(canvas_id)
        assert isinstance(document.lease, Held)
        text = f"where account_id = 'owner' and canvas_id = '{canvas_id}'"
        if self.kind == "sqlite":
            passed = f"lease_expires_at = {round(document.now.timestamp() * 1e6) - round(seconds * 1e6)}"
            statement = f"update documents set {passed} {text}"
        else:
            passed = f"lease_expires_at = clock_timestamp() - interval '{seconds} seconds'"
            statement = f"update documents set {passed} {text}"
        await self.sql(statement)

    @property
    def kind(self) -> str:
        return "sqlite" if hasattr(self.database, "path") else "postgres"

    async def sql(self, text: str) -> list[dict[str, Any]]:
        """Run a statement on the database, bypassing the stores."""
        database: Any = self.database
        if self.kind == "sqlite":
            return await database.write(
                lambda connection: [dict(row) for row in connection.execute(text).fetchall()]
            )
        async with database.connection() as connection:
            return [dict(row) for row in await connection.fetch(text)]

    async def close(self) -> None:
        await self.audit.close()


@asynccontextmanager
async def open_instances(database_url: str, folder: Path) -> AsyncIterator[list[Instance]]:
    """Open two instances on one store: the migrated Postgres database, or a SQLite file of the folder."""
    databases: list[SqliteDatabase] | list[PostgresDatabase]
    if database_url:
        databases = [await open_postgres(database_url, timeout=TIMEOUT_SECONDS) for _ in range(2)]
    else:
        databases = [await open_sqlite(folder / "easel.db", synchronous="normal")] * 2
        await databases[0].migrate()
    instances = [Instance(database, folder) for database in databases]
    try:
        yield instances
    finally:
        for instance in instances:
            await instance.close()
        for database in dict.fromkeys(databases):
            await database.close()
