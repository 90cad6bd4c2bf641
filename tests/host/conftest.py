"""A SQLite store with a manual clock, and a harness that runs workers on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.run.limits import LoopLimits
from easel.core.tool.definition import ToolDefinition
from easel.host.artifacts.artifacts import Artifacts
from easel.host.audit import audit as audit_module
from easel.host.audit.audit import Audit
from easel.host.runs.context import ContextSource
from easel.host.runs.execution import RunExecution
from easel.host.runs.hidden_updates import HiddenUpdates
from easel.host.runs.images import ImageReader
from easel.host.runs.queue import RunQueue
from easel.host.runs.tool_loop import ToolLoop
from easel.host.runs.turns import TurnLoader
from easel.host.runs.worker import RunWorker, WorkerLimits
from easel.host.tools.native import native_tools
from easel.host.tools.registry import ToolRegistry
from easel.ids import new_worker_id
from easel.llm.scripted import ScriptedModel
from easel.stores.blobs.store import open_blobs
from easel.stores.sqlite import SqliteDatabase, open_sqlite
from easel.stores.sqlite.database import wall_clock
from tests.support.fixed_model import FixedModel
from tests.support.leases import keep_leases
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from easel.core.run.run import Run
    from easel.core.stream.log import LoggedEvent
    from easel.core.tool.context import ToolContext
    from easel.host.ports import Model, RunStore, Tool
    from easel.ids import RunId


class TurnableClock:
    def __init__(self) -> None:
        self.ahead = 0.0
        self._stopped_at: int | None = None

    def stop(self) -> None:
        """Stop the clock, so that it advances only by `ahead`, however slow the machine is."""
        self._stopped_at = wall_clock()

    def __call__(self) -> int:
        return (wall_clock() if self._stopped_at is None else self._stopped_at) + int(self.ahead * 1_000_000)


@dataclass
class TestTool:
    """A tool that calls a function of the test."""

    __test__ = False
    name: str
    work: Callable[[Mapping[str, Any]], Awaitable[Any]]
    read_only: bool = False
    idempotent: bool = False
    definition: ToolDefinition = field(init=False)

    def __post_init__(self) -> None:
        self.definition = ToolDefinition(
            self.name, "For a test.", {"type": "object"}, read_only=self.read_only, idempotent=self.idempotent
        )

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        return await self.work(args)


class RunHarness:
    """The queue, the store and the workers of runs."""

    def __init__(self, database: SqliteDatabase, clock: TurnableClock) -> None:
        self.database = database
        self.clock = clock
        self.runs: RunStore = database.runs
        self.audit = Audit(database.audit)
        self.blobs = open_blobs(str(database.path.parent / "blobs"))
        self.artifacts = Artifacts(database.artifacts, self.blobs, max_bytes=10_000_000, grace_seconds=3600)
        self.queue = RunQueue(
            database.runs,
            self.artifacts,
            database.notifier,
            self.audit,
            canvases=database.canvases,
            max_attempts=3,
            max_message_bytes=100_000,
        )

    async def sql(self, text: str) -> None:
        """Execute a statement on the database, bypassing the stores."""
        await self.database.write(lambda connection: connection.execute(text).fetchall())

    def worker(self, *tools: Tool, model: Model | None = None, runs: Any = None, **options: Any) -> RunWorker:
        sources = options.pop("sources", ())
        registry = ToolRegistry(
            [*native_tools(), *tools],
            audit=self.audit,
            timeout_seconds=30,
            max_result_bytes=10_000,
            sources=sources,
        )
        limits = {
            "slots": 8,
            "claim_seconds": 15.0,
            "poll_seconds": 0.05,
            "drain_seconds": 5.0,
            "run_timeout_seconds": 60.0,
            **options,
        }
        store = runs or self.runs
        execution = self.execution(registry, model, store, limits)
        return RunWorker(
            new_worker_id(),
            store,
            self.artifacts,
            self.database.notifier,
            execution,
            limits=WorkerLimits(**limits),
            audit=self.audit,
        )

    def execution(
        self, registry: ToolRegistry, model: Model | None, runs: Any, limits: dict[str, Any]
    ) -> RunExecution:
        """Build the execution of runs. Takes its own options out of `limits`."""
        documents, leases = limits.pop("documents", None), limits.pop("leases", None)
        choice, budget = limits.pop("choice", None), limits.pop("budget", None)
        names = ("max_steps", "max_rejected_patches", "max_tokens")
        loop_limits = LoopLimits(**{name: limits.pop(name) for name in names if name in limits})
        images = ImageReader(self.artifacts, max_bytes=100_000)
        turns = TurnLoader(
            limits.pop("turns", self.database.runs), self.artifacts, images, max_result_bytes=2_000
        )
        contexts = ContextSource(turns, images, documents, max_result_bytes=2_000)
        loop = ToolLoop(
            FixedModel(model or ScriptedModel(), choice),
            registry,
            contexts,
            leases or keep_leases(self.database, self.artifacts),
            limits=loop_limits,
            budget=budget,
        )
        return RunExecution(
            runs,
            self.artifacts,
            loop,
            HiddenUpdates(documents),
            audit=self.audit,
            timeout_seconds=limits.pop("run_timeout_seconds"),
        )

    async def start(self, message: str, session: str = "s") -> RunId:
        return (await self.queue.start(THE_OWNER, session, message)).run_id

    async def run(self, run_id: RunId) -> Run:
        return await self.queue.get(THE_OWNER, run_id)

    async def log(self, run_id: RunId) -> list[LoggedEvent]:
        return await self.runs.events_after(run_id, 0, 10_000)

    async def types(self, run_id: RunId) -> list[str]:
        return [event.type for event in await self.log(run_id)]


@pytest.fixture
def clock() -> TurnableClock:
    return TurnableClock()


@pytest_asyncio.fixture
async def harness(
    tmp_path: Path, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RunHarness]:
    # Queued audit records must be stored when the audit is closed, on a slow disk too.
    monkeypatch.setattr(audit_module, "CLOSE_SECONDS", 60.0)
    database = await open_sqlite(tmp_path / "easel.db", clock=clock, synchronous="normal")
    await database.migrate()
    harness = RunHarness(database, clock)
    yield harness
    await harness.audit.close()
    await database.close()
