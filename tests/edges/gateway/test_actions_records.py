"""What is kept of every action, on either store, and for whom: a record beside the canvas and a link in the audit's chain."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from easel.core.principal import THE_OWNER
from easel.errors import NotFound
from easel.host.actions.request import ActionRequest
from easel.ids import UserId
from tests.edges.gateway.acting import Board, audited, calls, refused, sets
from tests.requirements import rule
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.edges.gateway.acting import Bench
    from tests.edges.http.live import LiveEasel
    from tests.support.gateway import GatewayClient


@rule("CV-48", "RS-15", "CV-22")
async def test_every_outcome_has_its_record_and_its_link_in_the_audit(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    actions = {
        "done": calls(bench.act),
        "fails": calls(bench.fail, args={"name": "x"}),
        "asks": calls(bench.act, confirm="always"),
        "patch": sets("/n", 1),
        "cannot": {"kind": "state.patch", "patch": [{"op": "remove", "path": "/none"}]},
    }
    board = await Board.made(presser, actions)
    before = int(time.time() * 1000)
    await board.press("done")
    await refused(board.press("fails"))
    await board.confirm(await board.press("asks"), approve=False)
    await board.confirm(await board.press("asks"))
    await board.press("asks")
    await board.press("patch")
    await refused(board.press("cannot"))
    records = await board.records()
    told = [(record["actionId"], record["status"]) for record in reversed(records)]
    assert told == [
        ("done", "completed"),
        ("fails", "failed"),
        ("asks", "refused"),
        ("asks", "completed"),
        ("asks", "asked"),
        ("patch", "completed"),
        ("cannot", "failed"),
    ]
    client_id = records[0]["actor"]["clientId"]
    for record in records:
        assert record["actor"] == {
            "userId": "owner",
            "kind": "user",
            "name": "owner",
            "clientId": client_id,
            "trigger": "client",
        }
        assert record.get("tool") == actions[record["actionId"]].get("tool")
        assert record["askedAt"] >= before
        assert ("startedAt" in record) == (record["status"] in ("completed", "failed"))
        assert ("endedAt" in record) == (record["status"] != "asked")
        assert ("error" in record) == (record["status"] == "failed")
    assert [record.get("confirmedBy") for record in records if record["actionId"] == "asks"] == [
        None,
        "owner",
        "owner",
    ]
    page = await board.records(limit=3)
    assert page + await board.records(before=page[-1]["eventId"], limit=200) == records
    assert (await refused(board.records(before="\x00"))).code == 400

    async def all_audited() -> bool:
        return len(audited(acting, "canvas.action", board.name)) == 6

    await wait_for(all_audited)
    links = {
        link["details"]["eventId"]: link["details"]["status"]
        for link in audited(acting, "canvas.action", board.name)
    }
    assert links == {record["eventId"]: record["status"] for record in records if record["status"] != "asked"}
    assert len(audited(acting, "canvas.confirmed", board.name)) == 1


@rule("CV-08", "CV-36")
async def test_another_users_canvas_is_not_found_and_neither_is_what_waits_there(
    presser: GatewayClient, bench: Bench, acting: LiveEasel
) -> None:
    board = await Board.made(presser, {"go": calls(bench.act, confirm="always"), "patch": sets("/n", 1)})
    asked = await board.press("go", requestId="r")
    stranger = replace(THE_OWNER, user_id=UserId("stranger"), name="stranger")
    services = acting.instances[0].services
    ask = ActionRequest(canvas_id=board.name, action_id="patch", input={}, client_id="x", request_id="r")
    for attempt in (
        services.actions.execute(stranger, ask),
        services.actions.confirm(stranger, asked["confirmationId"], "x", approve=True),
        services.actions.confirm(stranger, asked["confirmationId"], "x", approve=False),
        services.actions.waiting(stranger, board.name),
        services.actions.records(stranger, board.name, before=None, limit=10),
        services.canvases.accept(stranger, board.name, 1),
    ):
        with pytest.raises(NotFound):
            await asyncio.to_thread(acting.do, attempt)
    assert await board.revision() == 1
    assert [one["status"] for one in await board.records()] == ["asked"]
    for method in ("canvas.confirmations", "canvas.records"):
        assert (await refused(presser.call(method, canvasId="none"))).code == 404
