"""Reading and writing the boards of a run, for people over HTTP and for the run's own agent.

Owns the author of a write and the order of its steps: store offloaded values, store value and event in one
transaction, notify. The rules for keys, values and versions are in `core.run.boards`.
"""

from typing import Any

import msgspec

from easel.core.principal import Principal
from easel.core.run.boards import (
    DEFAULT_LIMITS,
    Board,
    BoardLimits,
    BoardValue,
    BoardWriteRequest,
    Written,
    prepare,
    to_board_key,
    to_edge_id,
)
from easel.core.run.run import Claim, ClaimLost
from easel.core.stream.notifications import RunAppended
from easel.errors import NotFound
from easel.host.artifacts.artifacts import restore
from easel.host.ports import ArtifactAccess, BoardStore, Notifier
from easel.ids import AccountId, RunId, is_generated_id


class Boards:
    def __init__(
        self,
        boards: BoardStore,
        artifacts: ArtifactAccess,
        notifier: Notifier,
        limits: BoardLimits = DEFAULT_LIMITS,
    ) -> None:
        self._boards = boards
        self._artifacts = artifacts
        self._notifier = notifier
        self._limits = limits

    async def write(
        self, principal: Principal, run_id: str, request: BoardWriteRequest, claim: Claim | None = None
    ) -> Written:
        """Write a value in the name of the principal, under the run's lock. CC-17, P4

        `claim` is that of the worker whose agent writes. Raises `ClaimLost` when the worker no longer has it.
        """
        write = prepare(
            request,
            self._limits,
            account_id=principal.account_id,
            run_id=_to_run_id(run_id),
            agent_id=principal.actor_id,
            kind=principal.actor_kind,
        )
        if write.offloaded:
            await self._artifacts.store(principal.account_id, write.offloaded)
        written = await self._boards.write(write, claim)
        if written is None:
            raise ClaimLost if claim is not None else NotFound(what="run", id=run_id)
        self._notifier.notify(RunAppended(write.run_id, written.seq))
        return written

    async def read(
        self, account_id: AccountId, run_id: str, board: Board, key: str, edge_id: str | None
    ) -> BoardValue:
        """Return one value. Raises `NotFound` for an unknown run or key."""
        board_key = to_board_key(board, key, edge_id)
        values = await self._boards.read(
            account_id, _to_run_id(run_id), board, edge_id=board_key.edge_id, key=board_key.key
        )
        if values is None:
            raise NotFound(what="run", id=run_id)
        if not values:
            raise NotFound(what=f"{board} key", id=key)
        return values[0]

    async def read_all(
        self, account_id: AccountId, run_id: str, board: Board, edge_id: str | None
    ) -> list[BoardValue]:
        """Return all values of a board, or of one edge of the blackboard."""
        edge = None if edge_id is None else to_edge_id(board, edge_id)
        values = await self._boards.read(account_id, _to_run_id(run_id), board, edge_id=edge, key=None)
        if values is None:
            raise NotFound(what="run", id=run_id)
        return values

    async def restore(self, account_id: AccountId, value: BoardValue) -> Any:
        """Return the value as it was written, with offloaded parts restored."""
        return await restore(self._artifacts, account_id, msgspec.json.decode(value.value))


def _to_run_id(run_id: str) -> RunId:
    if not is_generated_id(run_id):
        raise NotFound(what="run", id=run_id)
    return RunId(run_id)
