"""What an action does in the world, and for how long somebody waits for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from easel.core.principal import THE_OWNER
from easel.errors import TimedOut
from easel.host.canvas_endings import Records
from easel.host.canvas_work import _within
from tests.host.stage import Stage
from tests.requirements import case, rule

if TYPE_CHECKING:
    from tests.host.conftest import Bench


@rule("CV-23")
@case("X8")
async def test_what_does_not_let_itself_be_stopped_is_not_heard_when_it_ends_after_all() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "too late"
        return "in time"

    with pytest.raises(TimedOut):
        await _within(10, "Stubborn", stubborn())
    assert await _within(None, "Quick", asyncio.sleep(0, "in time")) == "in time"


@rule("CV-48")
async def test_records_that_are_old_go_all_of_them_in_one_round(bench: Bench) -> None:
    stage = Stage(bench)
    await stage.create({"actions": {"set": {"kind": "state.patch", "patch": [{"op": "add", "path": "/n", "value": 1}]}}})
    for _ in range(26):
        await asyncio.gather(*(stage.press("set") for _ in range(20)))  # more than one statement takes
    pruning = asyncio.create_task(Records(bench.database.canvas_actions, 1e-6).prune_forever())
    try:
        async with asyncio.timeout(10):
            while await stage.actions.records(THE_OWNER, "c", before=None, limit=1):  # noqa: ASYNC110 - the store tells nobody
                await asyncio.sleep(0.01)
    finally:
        pruning.cancel()
    for_ever = Records(bench.database.canvas_actions, 0)
    await stage.press("set")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(for_ever.prune_forever(), 0.05)
    assert await stage.actions.records(THE_OWNER, "c", before=None, limit=1)
    await stage.close()
