"""What a tool says while an action runs, told to whoever watches the canvas: as events of its log, so that every transport has them.

Owns the pace and the way into the log. A tool never waits for it and never fails by it: a store that is slow gets more at a time, one that is
away misses some of it, and that is said. It goes in only while the execution runs, in the same transaction that sees that it does; the last of it
goes in with the end.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from easel.core.action.output import GATHER_SECONDS, LiveText, Said, after_saying, saying
from easel.core.canvas.canvas import CanvasSnapshot, Change
from easel.core.canvas.execution import Execution, StaleTransition
from easel.core.principal import Principal
from easel.core.run.deltas import HELD_SECONDS
from easel.errors import HostError
from easel.host.audit import Audit
from easel.host.canvases.transactions import CanvasTransactions

LAST_SECONDS = (
    1.0  # how long an end waits for what is on its way into the log, so that nothing before it is missing
)

log = structlog.get_logger("actions")


def nobody_cares() -> None:
    """For where it makes no difference that an execution has ended elsewhere."""


class LiveOutput:
    """Of one execution, on the instance that hears it."""

    def __init__(
        self,
        outputs: "LiveOutputs",
        principal: Principal,
        execution: Execution,
        text: LiveText,
        on_over: Callable[[], None],
    ) -> None:
        self._outputs = outputs
        self._who = principal
        self._execution = execution
        self._text = text
        self._on_over = on_over
        self._timer: asyncio.TimerHandle | None = None
        self._pump: asyncio.Task[None] | None = None
        self._rest: Sequence[Said] | None = None  # what goes in with the end; after that nothing is told

    def hear(self, text: str) -> None:
        self._text.hear(text)
        self._wait()

    async def before(self, decide: Callable[[CanvasSnapshot], Change]) -> Callable[[CanvasSnapshot], Change]:
        """This end, with what was said before it."""
        return after_saying(self._execution, await self._ended(), decide)

    def resume(self) -> None:
        """It was not its end. What was to go in with that may have been stored, and is not told twice."""
        if self._rest:
            self._text.lost()
        self._rest = None
        self._wait()

    async def close(self) -> None:
        """All of it is told, where somebody else tells the end."""
        if said := await self._ended():
            self._rest = []
            await self._tell(said)

    def drop(self) -> None:
        """It has ended, and there is nothing more to tell."""
        self._rest = []
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _ended(self) -> Sequence[Said]:
        if self._rest is None:
            self._rest = []
            self._stop_timer()
            if self._pump is not None:
                await asyncio.wait([self._pump], timeout=LAST_SECONDS)
            self._rest = self._text.tell(is_end=True) if self._text.has_more else []
        return self._rest

    def _wait(self, seconds: float = GATHER_SECONDS) -> None:
        if self._timer is None and self._pump is None and self._text.has_more and self._rest is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._pump = asyncio.create_task(self._once())

    async def _once(self) -> None:
        said = self._text.tell()
        try:
            if said:
                await self._tell(said)
        finally:
            self._pump = None
            self._wait(GATHER_SECONDS if said else HELD_SECONDS)

    async def _tell(self, said: Sequence[Said]) -> None:
        try:
            decide = saying(self._execution, said)
            await self._outputs.changes.apply(
                self._who, self._execution.canvas_id, decide, seconds=self._outputs.seconds
            )
        except StaleTransition:
            self.drop()
            self._on_over()
        except HostError as problem:
            log.info("actions.output_lost", event_id=self._execution.event_id, problem=problem.code)
            self._text.lost()
        except Exception:  # whatever it is, the tool goes on
            log.exception("actions.output_error", event_id=self._execution.event_id)
            self.drop()


@dataclass(slots=True)
class LiveOutputs:
    changes: CanvasTransactions
    audit: Audit
    most_bytes: int  # of one execution
    seconds: (
        float  # how long an execution is believed to run; whoever hears it say something knows that it does
    )

    def open(
        self, principal: Principal, execution: Execution, on_over: Callable[[], None] = nobody_cares
    ) -> LiveOutput:
        return LiveOutput(self, principal, execution, LiveText(self.most_bytes, self.audit.redacted), on_over)
