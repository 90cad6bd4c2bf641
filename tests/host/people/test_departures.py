"""The work of people who left: ended in steps that may be repeated. RS-76"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.people import Departure
from easel.core.principal import PrincipalKind
from easel.errors import NotFound, RunFinished, Unavailable
from easel.host.people import departures as module
from easel.host.people.departures import Departures
from easel.ids import AccountId, RunId, UserId
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from easel.core.principal import Principal

LEFT = Departure(AccountId("web"), UserId("bob"), datetime(2026, 11, 20, tzinfo=UTC), 0.0)


@dataclass
class World:
    """The store, the queue and the confirmations, with the work that is still to be ended."""

    runs: list[str] = field(default_factory=list[str])
    questions: list[str] = field(default_factory=list[str])
    seconds: float = 0.0
    is_there: bool = True
    problem: Exception | None = None  # of the next cancel
    by: set[Any] = field(default_factory=set[Any])

    async def list_departures(self, limit: int) -> list[Departure]:
        departure = Departure(LEFT.account_id, LEFT.user_id, LEFT.left_at, self.seconds)
        return [departure][:limit] if self.is_there else []

    async def list_runs(self, _: Departure, limit: int) -> list[RunId]:
        return [RunId(run) for run in self.runs[:limit]]

    async def list_questions(self, _: Departure, limit: int) -> list[str]:
        return self.questions[:limit]

    async def finish(self, _: Departure) -> None:
        self.is_there = False

    async def cancel(self, principal: Principal, run_id: str) -> None:
        self.by.add((principal.account_id, principal.kind, principal.user_id))
        problem, self.problem = self.problem, None
        if isinstance(problem, Unavailable):
            raise problem
        self.runs.remove(run_id)
        if problem is not None:
            raise problem

    async def end_questions(self, account_id: AccountId, event_ids: Sequence[str]) -> None:
        assert account_id == "web"
        self.questions = [question for question in self.questions if question not in event_ids]


def departures_of(world: Any) -> Departures:
    return Departures(world, world, world)


@rule("RS-76", "RX-52")
async def test_work_of_who_left_is_ended_by_easel_and_the_departure_removed_later() -> None:
    world = World(["run_1", "run_2"], ["evt_1"])
    departures = departures_of(world)
    assert await departures.once() == 3
    assert (world.runs, world.questions, world.is_there) == ([], [], True)
    assert world.by == {(AccountId("web"), PrincipalKind.SERVICE, None)}
    world.runs = ["late"]  # of a request that was admitted before
    world.seconds = module.SETTLE_SECONDS
    assert await departures.once() == 1
    assert world.is_there, "it is removed by a pass that finds nothing"
    assert await departures.once() == 0
    assert not world.is_there


@rule("RS-76")
async def test_pass_that_is_interrupted_is_repeated() -> None:
    world = World(["run_1", "run_2"], ["evt_1"], module.SETTLE_SECONDS, problem=Unavailable(what="it"))
    departures = departures_of(world)
    with pytest.raises(Unavailable):
        await departures.once()
    assert (len(world.runs), world.is_there) == (2, True)
    world.problem = Unavailable(what="it")
    await departures.start_now()  # after a change that was stored: its request does not fail
    assert await departures.once() == 3
    assert await departures.once() == 0
    assert not world.is_there


@rule("RS-76")
@pytest.mark.parametrize("problem", [NotFound(what="run", id="r"), RunFinished(run_id="r", status="failed")])
async def test_run_that_ended_or_was_deleted_since_is_skipped(problem: Exception) -> None:
    world = World(["run_1", "run_2"], problem=problem)
    assert await departures_of(world).once() == 2
    assert world.runs == []


@rule("RS-76")
async def test_pass_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENDED", 2)
    world = World([f"run_{n}" for n in range(5)], seconds=module.SETTLE_SECONDS)
    departures = departures_of(world)
    assert [await departures.once() for _ in range(4)] == [2, 2, 1, 0]
    assert not world.is_there
