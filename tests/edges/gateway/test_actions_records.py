"""Records of actions and their audit trail, on both stores."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.edges.gateway.action_fixtures import (
    CanvasClient,
    audit_records,
    call_tool,
    expect_refusal,
    set_state,
)
from tests.requirements import rule
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.edges.gateway.action_fixtures import ControlledTools
    from tests.edges.http.live import LiveEasel
    from tests.support.gateway import GatewayClient


@rule("CV-48", "RS-15", "CV-22")
async def test_every_outcome_has_a_record_and_an_audit_record(
    action_client: GatewayClient, tools: ControlledTools, action_easel: LiveEasel
) -> None:
    actions = {
        "done": call_tool(tools.act),
        "fails": call_tool(tools.fail, args={"name": "x"}),
        "asks": call_tool(tools.act, confirm="always"),
        "patch": set_state("/n", 1),
        "cannot": {"kind": "state.patch", "patch": [{"op": "remove", "path": "/none"}]},
    }
    canvas = await CanvasClient.create(action_client, actions)
    before = int(time.time() * 1000)
    await canvas.run("done")
    await expect_refusal(canvas.run("fails"))
    await canvas.confirm(await canvas.run("asks"), approve=False)
    await canvas.confirm(await canvas.run("asks"))
    await canvas.run("asks")
    await canvas.run("patch")
    await expect_refusal(canvas.run("cannot"))
    records = await canvas.records()
    outcomes = [(record["actionId"], record["status"]) for record in reversed(records)]
    assert outcomes == [
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
            "accountId": "owner",
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
    page = await canvas.records(limit=3)
    assert page + await canvas.records(before=page[-1]["eventId"], limit=200) == records
    assert (await expect_refusal(canvas.records(before="\x00"))).code == 400

    async def all_audited() -> bool:
        return len(audit_records(action_easel, "canvas.action", canvas.name)) == 6

    await wait_for(all_audited)
    statuses = {
        record["details"]["eventId"]: record["details"]["status"]
        for record in audit_records(action_easel, "canvas.action", canvas.name)
    }
    assert statuses == {
        record["eventId"]: record["status"] for record in records if record["status"] != "asked"
    }
    assert len(audit_records(action_easel, "canvas.confirmed", canvas.name)) == 1
