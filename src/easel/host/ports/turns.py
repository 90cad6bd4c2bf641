"""Port of the context of a run: the earlier turns of its session."""

from collections.abc import Collection, Sequence
from typing import Protocol

from easel.core.run.past_turn import PastTurn
from easel.core.run.run import Claim
from easel.core.stream.log import LoggedEvent
from easel.ids import RunId


class TurnStore(Protocol):
    async def list_turns(self, claim: Claim, *, before: RunId, limit: int) -> list[PastTurn]:
        """Return ended turns of the claim's session before the run `before`, newest first."""
        ...

    async def read_logs(
        self, run_ids: Sequence[RunId], types: Collection[str]
    ) -> dict[RunId, list[LoggedEvent]]:
        """Return the events of these types of each log, in order, in one query."""
        ...
