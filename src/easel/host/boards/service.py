"""Writing and reading the boards of a run, by people over HTTP and by the run's own agent.

Owns who is named as the author, and the order: what is too heavy is kept, then the value and its event are stored in
one transaction, then the bell is rung. What may be written where is the core's to say.
"""

from typing import Any

import msgspec

from easel.core.principal import Principal
from easel.core.run.boards import (
    Board,
    BoardLimits,
    BoardValue,
    BoardWriteRequest,
    Written,
    edge_of,
    place,
    prepare,
)
from easel.core.run.run import Claim, ClaimLost
from easel.core.stream.notifications import RunAppended
from easel.core.tool.context import ToolContext
from easel.errors import NotFound
from easel.host.artifacts import restore
from easel.host.ports import ArtifactAccess, BoardStore, Notifier
from easel.host.runs.log_writer import AGENT
from easel.ids import RunId, UserId, is_made_here


class Boards:
    def __init__(
        self, boards: BoardStore, keeper: ArtifactAccess, notifier: Notifier, limits: BoardLimits
    ) -> None:
        self._boards = boards
        self._keeper = keeper
        self._notifier = notifier
        self._limits = limits

    async def write(self, principal: Principal, run_id: str, ask: BoardWriteRequest) -> Written:
        """By whoever is signed in, and in that name: under the run's lock, without a claim. CC-17, P4"""
        written = await self._write(principal.user_id, _known(run_id), ask, agent_id=principal.user_id)
        if written is None:
            raise NotFound(what="run", id=run_id)
        return written

    async def write_as_agent(self, context: ToolContext, ask: BoardWriteRequest) -> Written:
        """By the run's own agent, as long as its worker holds the run; else nothing is stored."""
        written = await self._write(
            context.user_id, context.run.run_id, ask, agent_id=AGENT, claim=context.run
        )
        if written is None:
            raise ClaimLost
        return written

    async def _write(
        self,
        user_id: UserId,
        run_id: RunId,
        ask: BoardWriteRequest,
        *,
        agent_id: str,
        claim: Claim | None = None,
    ) -> Written | None:
        write = prepare(ask, self._limits, user_id=user_id, run_id=run_id, agent_id=agent_id)
        if write.offloaded:
            await self._keeper.store(user_id, write.offloaded)
        written = await self._boards.write(write, claim)
        if written is not None:
            self._notifier.notify(RunAppended(run_id, written.seq))
        return written

    async def read(
        self, user_id: UserId, run_id: str, board: Board, key: str, edge_id: str | None
    ) -> BoardValue:
        at = place(board, key, edge_id)
        found = await self._boards.read(user_id, _known(run_id), board, edge_id=at.edge_id, key=at.key)
        if found is None:
            raise NotFound(what="run", id=run_id)
        if not found:
            raise NotFound(what=f"{board} key", id=key)
        return found[0]

    async def read_all(
        self, user_id: UserId, run_id: str, board: Board, edge_id: str | None
    ) -> list[BoardValue]:
        """The whole board; of the blackboard also one edge alone."""
        edge = None if edge_id is None else edge_of(board, edge_id)
        found = await self._boards.read(user_id, _known(run_id), board, edge_id=edge, key=None)
        if found is None:
            raise NotFound(what="run", id=run_id)
        return found

    async def restore(self, user_id: UserId, found: BoardValue) -> Any:
        """The value as it was written, with what was moved out of it put back."""
        return await restore(self._keeper, user_id, msgspec.json.decode(found.value))


def _known(run_id: str) -> RunId:
    if not is_made_here(run_id):
        raise NotFound(what="run", id=run_id)
    return RunId(run_id)
