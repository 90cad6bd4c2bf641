"""The services of canvases, actions and refresh jobs on one store. Several of them may share a store, as
instances do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from easel.core.canvas.actions import Confirm
from easel.core.canvas.spec import SpecLimits
from easel.core.principal import THE_OWNER
from easel.host.actions.confirmations import Confirmations
from easel.host.actions.executor import ActionExecutor
from easel.host.actions.limits import ActionLimits
from easel.host.actions.live_output import LiveOutputs
from easel.host.actions.outcomes import ExecutionOutcomes
from easel.host.actions.refresh import RefreshLimits, RefreshScheduler
from easel.host.actions.request import ActionRequest
from easel.host.actions.service import ActionService
from easel.host.actions.transitions import ExecutionTransitions
from easel.host.canvases.agent_tools import canvas_tools
from easel.host.canvases.assets import AssetLimits, CanvasAssets
from easel.host.canvases.drafts import Draft
from easel.host.canvases.library import CanvasLibrary
from easel.host.canvases.transactions import CanvasTransactions
from easel.host.canvases.versions import CanvasVersions
from easel.host.canvases.views import CanvasViews
from easel.host.streams import RUNS, StreamQuota, TailMemory, Tails
from easel.host.tools.native import native_tools
from easel.host.tools.registry import ToolRegistry
from easel.ids import new_worker_id
from easel.stores.blobs.store import open_blobs

if TYPE_CHECKING:
    from easel.core.principal import Principal
    from easel.host.actions.result import ActionResult
    from easel.host.ports import Tool
    from tests.host.conftest import RunHarness

CLAIM_SECONDS = 30.0
POLL_SECONDS = 0.05
# Longer than any test, so that no tool times out on a slow machine.
TOOL_SECONDS = 60.0


class HostServices:
    def __init__(
        self,
        harness: RunHarness,
        *tools: Tool,
        unwatched: bool = True,
        poll_seconds: float = POLL_SECONDS,
        max_output: int = 2_000,
        max_running: int = 20,
        claim_seconds: float = CLAIM_SECONDS,
    ) -> None:
        self.harness = harness
        database = harness.database
        notifier, audit, instance = database.notifier, harness.audit, new_worker_id()
        self.blobs = blobs = open_blobs(str(database.path.parent / "blobs"))
        changes = CanvasTransactions(database.canvases, harness.artifacts, blobs, notifier, audit)
        self.tools = ToolRegistry(
            [*native_tools(), *tools], audit=audit, timeout_seconds=TOOL_SECONDS, max_result_bytes=100_000
        )
        self.assets = assets = CanvasAssets(database.canvases, changes, blobs, AssetLimits(10_000, 10))
        self.library = CanvasLibrary(
            database.canvases,
            changes,
            assets,
            self.tools,
            notifier=notifier,
            audit=audit,
            limits=SpecLimits(),
        )
        self.versions = CanvasVersions(database.canvas_versions, changes, assets, self.library.drafts, audit)
        self.views = CanvasViews(database.canvases, changes, view_ttl_seconds=60)
        self.tools.add(canvas_tools(self.library, self.views, database.runs, database.canvases))
        times = {"poll_seconds": 0.05, "heartbeat_seconds": 15, "stall_seconds": 30}
        self.runs = Tails(
            RUNS,
            database.runs,
            notifier,
            quota=StreamQuota(100),
            window=100,
            memory=TailMemory(10_000_000),
            **times,
        )
        records, artifacts = database.canvas_actions, harness.artifacts
        limits = ActionLimits(max_running, 100_000, claim_seconds, 0.05, 900, Confirm.NEVER)
        self.transitions = transitions = ExecutionTransitions(
            records, changes, artifacts, self.tools, audit=audit, limits=limits, instance_id=instance
        )
        outcomes = ExecutionOutcomes(records, changes, transitions, artifacts, audit=audit, limits=limits)
        self.executor = ActionExecutor(
            self.tools, harness.queue, self.runs, artifacts, answer_seconds=TOOL_SECONDS
        )
        self.actions = ActionService(
            records,
            changes,
            transitions,
            self.executor,
            outcomes,
            confirmations=Confirmations(
                records, changes, outcomes, artifacts, audit=audit, limits=limits, instance_id=instance
            ),
            outputs=LiveOutputs(changes, audit, max_output, CLAIM_SECONDS),
            notifier=notifier,
            audit=audit,
            limits=limits,
            instance_id=instance,
            single_process=False,
        )
        refresh_limits = RefreshLimits(10, CLAIM_SECONDS, poll_seconds, unwatched)
        self.refresh = RefreshScheduler(
            database.canvas_actions,
            self.actions,
            changes,
            audit,
            refresh_limits,
            instance_id=instance,
            random=lambda: 0.0,
        )

    async def create(
        self, spec: dict[str, Any], principal: Principal = THE_OWNER, canvas_id: str = "c"
    ) -> None:
        await self.library.create(principal, Draft(canvas_id=canvas_id, spec={"version": 1, **spec}))

    async def run(self, action_id: str, *, principal: Principal = THE_OWNER, **more: Any) -> ActionResult:
        return await self.actions.execute(
            principal,
            ActionRequest(
                action_id=action_id, **{"canvas_id": "c", "input": {}, "client_id": "test", **more}
            ),
        )

    async def state(self) -> Any:
        return (await self.library.get(THE_OWNER, "c")).canvas.state

    async def log(self, *types: str) -> list[tuple[str, dict[str, Any]]]:
        events = await self.harness.database.canvases.events_after("owner/c", 0, 1_000)
        return [
            (event.type, msgspec.json.decode(event.data))
            for event in events
            if not types or event.type in types
        ]

    async def close(self) -> None:
        await self.refresh.stop()
        await self.actions.stop()
        await self.runs.close()
