"""How an execution of an action goes on: each step is decided under its canvas's lock, and what it speaks of is kept before.

Owns fetching what a decision lacks, and trying again while the store is away. What is decided is `core.canvas.pressing`'s.
"""

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from easel.core.action.transitions import NeedsTools, PendingReply, Rules, StartedExecution, may_be_awaited
from easel.core.canvas.actions import Confirm
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Change
from easel.core.canvas.execution import Execution, ExecutionStatus, PendingLimit, StaleTransition
from easel.core.canvas.spec import CanvasSpec, SpecLimits, checked_spec
from easel.core.principal import Principal
from easel.core.stream.payload_limit import OffloadedValue
from easel.core.values.template import MissingArtifacts
from easel.errors import ActionFailed, HostError, Unavailable
from easel.host.artifacts import Artifacts
from easel.host.canvases.transactions import CanvasTransactions
from easel.host.ports import CanvasActionStore
from easel.host.tools.registry import ToolRegistry
from easel.ids import ArtifactId, CanvasId

if TYPE_CHECKING:
    from easel.core.action.policy import Definitions

MAX_SPECS = 256  # read specs that are remembered
ANY_SIZE = SpecLimits(
    **{limit.name: sys.maxsize for limit in fields(SpecLimits)}
)  # what is stored was held to the limits of then


@dataclass(frozen=True, slots=True)
class ActionLimits:
    at_once: int  # executions of one instance
    state_bytes: int
    lease_seconds: float  # how long an instance is believed to be alive
    poll_seconds: float
    confirm_seconds: float  # how long a person has to agree
    floor: Confirm
    confirmations: int = 20  # of one canvas, that may wait for a person at once


class ExecutionTransitions:
    def __init__(
        self,
        actions: CanvasActionStore,
        changes: CanvasTransactions,
        artifacts: Artifacts,
        tools: ToolRegistry,
        limits: ActionLimits,
        *,
        told: Callable[[HostError], str],
    ) -> None:
        self._actions = actions
        self._changes = changes
        self._artifacts = artifacts
        self._tools = tools
        self._limits = limits
        self._told = told
        self._specs: OrderedDict[tuple[str, str, Any, int], CanvasSpec] = OrderedDict()

    async def begin(
        self,
        principal: Principal,
        canvas_id: CanvasId,
        rule: Callable[[CanvasSnapshot, CanvasSpec, Rules], StartedExecution],
        *,
        is_repeatable: bool = True,
    ) -> tuple[StartedExecution, Canvas]:
        """What the decision lacks is fetched, and it is made anew: most need nothing."""
        definitions: Definitions | None = None
        fetched: dict[ArtifactId, bytes] = {}
        begun: list[StartedExecution] = []

        def decide(snapshot: CanvasSnapshot) -> tuple[Change, Iterable[OffloadedValue]]:
            limits = self._limits
            rules = Rules(
                definitions=definitions,
                floor=limits.floor,
                state_bytes=limits.state_bytes,
                told=self._told,
                waiting=PendingLimit(limits.confirmations, limits.confirm_seconds),
                fetched=fetched,
            )
            begun[:] = [rule(snapshot, self._spec(snapshot.canvas), rules)]
            return begun[0].change, begun[0].offloaded

        while True:
            try:
                canvas = await self._make(
                    principal,
                    canvas_id,
                    decide,
                    seconds=self._limits.lease_seconds,
                    is_repeatable=is_repeatable,
                )
            except NeedsTools:
                definitions = await self._tools.definitions(principal.user_id)
            except MissingArtifacts as lacking:
                fetched |= {
                    name: await self._artifacts.read(principal.user_id, name) for name in lacking.artifact_ids
                }
            else:
                return begun[0], canvas

    async def adopt(
        self, principal: Principal, lost: Execution, owner_ids: Sequence[str], owner_id: str
    ) -> tuple[StartedExecution, Canvas] | None:
        """What another instance has left, and what a run was started for: it is this one's now. None: there is nothing to wait for."""
        execution = await self._actions.get(lost.user_id, lost.event_id)
        if execution is None:
            return None  # it went with its canvas
        canvas = (await self._changes.find(principal, lost.canvas_id)).canvas
        action = self._spec(canvas).actions.get(lost.action_id)
        if not may_be_awaited(action, execution):
            return None
        awaited = await self._actions.adopt(lost, owner_ids, owner_id, self._limits.lease_seconds)
        if awaited is None:
            return None
        sent = PendingReply(action.session_key or canvas.session_key, awaited)
        return StartedExecution(
            Change(events=[], is_mutation=False), replace(execution, owner_id=owner_id), action, sent
        ), canvas

    async def end(
        self,
        principal: Principal,
        execution: Execution,
        decide: Callable[[CanvasSnapshot], Change],
        offloaded: Iterable[OffloadedValue] = (),
        *,
        is_patient: bool = True,
    ) -> int:
        """The revision with it. `Overtaken` by who has taken it up. What was given up on meanwhile is not stored late; how it went is worth waiting for the store. CV-23"""
        clock = asyncio.get_running_loop().time
        until = clock() + (self._limits.lease_seconds if is_patient else 0)
        sent: Unavailable | None = None
        is_repeated = False
        while True:
            try:
                return await self._end_once(principal, execution, decide, offloaded, is_repeated=is_repeated)
            except Unavailable as problem:
                sent = problem if "mayBeStored" in problem.details else sent
                if clock() >= until:
                    raise sent or problem from problem
                is_repeated = True
                await asyncio.sleep(self._limits.poll_seconds)

    async def _end_once(
        self,
        principal: Principal,
        execution: Execution,
        decide: Callable[[CanvasSnapshot], Change],
        offloaded: Iterable[OffloadedValue],
        *,
        is_repeated: bool,
    ) -> int:
        try:
            return (
                await self._make(
                    principal, execution.canvas_id, lambda snapshot: (decide(snapshot), offloaded)
                )
            ).revision
        except StaleTransition:
            stored = await self._actions.get(execution.user_id, execution.event_id)
            if (
                is_repeated
                and stored is not None
                and stored.status is ExecutionStatus.COMPLETED
                and stored.revision is not None
            ):
                return stored.revision  # it was stored the first time, and only the answer was lost
            if stored is not None and stored.status in (ExecutionStatus.RUNNING, ExecutionStatus.COMPLETED):
                raise  # somebody else goes on with it, or has
            raise ActionFailed(
                problem="It was given up on before it ended: its result is not stored."
            ) from None

    async def _make(
        self,
        principal: Principal,
        canvas_id: CanvasId,
        decide: Callable[[CanvasSnapshot], tuple[Change, Iterable[OffloadedValue]]],
        *,
        seconds: float = 0,
        is_repeatable: bool = True,
    ) -> Canvas:
        kept: set[ArtifactId] = set()

        def checked(snapshot: CanvasSnapshot) -> Change:
            change, offloaded = decide(snapshot)
            heavy = [*offloaded, *(one for event in change.events for one in event.offloaded)]
            if lacking := [one for one in heavy if one.artifact_id not in kept]:
                raise _NeedsKeeping(lacking)
            return change

        while True:
            try:
                made = await self._changes.apply(
                    principal, canvas_id, checked, seconds=seconds, is_repeatable=is_repeatable
                )
            except _NeedsKeeping as lacking:
                await self._artifacts.store(principal.user_id, lacking.offloaded)
                kept |= {offloaded.artifact_id for offloaded in lacking.offloaded}
            else:
                return made.snapshot.canvas

    def _spec(self, canvas: Canvas) -> CanvasSpec:
        """Read once for each version."""
        key = (canvas.user_id, canvas.canvas_id, canvas.created_at, canvas.spec_revision)
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = checked_spec(canvas.spec, ANY_SIZE)
            while len(self._specs) > MAX_SPECS:
                self._specs.popitem(last=False)
        return spec


class _NeedsKeeping(Exception):
    def __init__(self, offloaded: list[OffloadedValue]) -> None:
        super().__init__()
        self.offloaded = offloaded
