"""`session.send`, on either store: a message goes through the ordinary chat, and its answer comes back where it is asked for."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.gateway.action_fixtures import CanvasClient, expect_refusal
from tests.edges.http.live import WAITING, LiveEasel, new_session, script
from tests.requirements import rule
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.edges.gateway.action_fixtures import ControlledTools
    from tests.support.gateway import GatewayClient


def says(message: str, **more: Any) -> dict[str, Any]:
    return {"kind": "session.send", "message": message, **more}


def answers(text: str, **more: Any) -> dict[str, Any]:
    return says(script({"say": text}), **more)


async def messages(easel: LiveEasel, session: str) -> list[dict[str, Any]]:
    answer = await asyncio.to_thread(easel.get, f"/api/sessions/{session}/messages")
    assert answer.status_code == 200, answer.text
    return answer.json()["messages"]


async def runs_of(easel: LiveEasel, session: str) -> list[str]:
    return [
        row["run_id"]
        for row in await asyncio.to_thread(
            easel.sql, f"select run_id from runs where session_id = '{session}'"
        )
    ]


# --- sending ------------------------------------------------------------------------------------------------------------


@rule("CV-24", "CV-43", "CV-39")
async def test_a_message_is_sent_and_not_waited_for_unless_its_answer_is_to_be_kept(
    action_client: GatewayClient, action_easel: LiveEasel
) -> None:
    session = new_session()
    canvas = await CanvasClient.create(
        action_client, {"go": says(WAITING)}, ownerSessionKey=f"agent:main:{session}"
    )
    await canvas.listen()
    answer = await canvas.run("go")
    assert answer["result"] == {
        "runId": (await runs_of(action_easel, session))[0],
        "sessionKey": f"agent:main:{session}",
    }
    assert (answer["status"], answer["revision"]) == ("completed", 1)
    assert [one.event for one in await action_client.events(2)] == [
        "canvas.action.started",
        "canvas.action.finished",
    ]
    assert (await asyncio.to_thread(action_easel.view, answer["result"]["runId"]))["status"] in (
        "queued",
        "running",
    )
    assert [one["role"] for one in await messages(action_easel, session)] == ["user"], (
        "in the session's own thread"
    )
    await asyncio.to_thread(action_easel.cancel, answer["result"]["runId"])


@rule("CV-24", "CV-43", "RS-43", "RS-12")
async def test_an_answer_that_is_to_be_kept_is_waited_for_and_stored(
    action_client: GatewayClient, action_easel: LiveEasel
) -> None:
    session = new_session()
    actions = {
        "go": answers("forty-two", saveAs="plan.answer"),
        "list": answers("again", saveAs="all", saveMode="append"),
        "merge": answers("no object", saveAs="plan", saveMode="merge"),
    }
    canvas = await CanvasClient.create(action_client, actions, ownerSessionKey=f"agent:main:{session}")
    await canvas.listen()
    answer = await canvas.run("go")
    assert (answer["result"], answer["revision"]) == ("forty-two", 2)
    assert [one.event for one in await action_client.events(3)] == [
        "canvas.action.started",
        "canvas.updated",
        "canvas.action.finished",
    ]
    await asyncio.gather(canvas.run("list"), canvas.run("list"))
    state = await canvas.state()
    assert (state["plan"]["answer"]["ok"], state["plan"]["answer"]["result"]) == (True, "forty-two")
    assert [one["result"] for one in state["all"]] == ["again", "again"]
    assert "only an object" in (await expect_refusal(canvas.run("merge"))).error["message"]
    roles = [one["role"] for one in await messages(action_easel, session)]
    assert sorted(roles) == ["assistant"] * 4 + ["user"] * 4, "an ordinary conversation, that goes on"


@rule("CV-24")
async def test_a_message_goes_to_its_session_or_to_the_canvass_own(
    action_client: GatewayClient, action_easel: LiveEasel
) -> None:
    mine, other, helper = new_session(), new_session(), f"agent:helper:{new_session()}"
    actions = {
        "own": answers("own", saveAs="own"),
        "other": answers("other", saveAs="other", sessionKey=f"agent:main:{other}"),
        "helper": answers("helper", saveAs="helper", sessionKey=helper),
    }
    canvas = await CanvasClient.create(action_client, actions, ownerSessionKey=f"agent:main:{mine}")
    for action, session in (("own", mine), ("other", other), ("helper", helper)):
        assert await runs_of(action_easel, session) == [], "it is not there yet"
        assert (await canvas.run(action))["result"] == action
        assert len(await runs_of(action_easel, session)) == 1
        assert [one["role"] for one in await messages(action_easel, session)] == ["user", "assistant"]
    agents = await CanvasClient.create(action_client, {"go": says("noop")}, agentId=f"a-{mine}")
    assert (await agents.run("go"))["result"]["sessionKey"] == f"agent:a-{mine}:main"


@rule("CV-26", "CV-27", "CV-28")
async def test_a_message_has_its_placeholders_filled_once(
    action_client: GatewayClient, action_easel: LiveEasel
) -> None:
    session = new_session()
    action = says(
        "About {{state.what}}, {{input.how}}{{state.none}}: {{nothing}}",
        sessionKey=f"agent:main:{session}",
        saveAs="x",
    )
    canvas = await CanvasClient.create(action_client, {"go": action}, state={"what": "{{input.how}}"})
    await canvas.run("go", how="now")
    first = (await messages(action_easel, session))[0]
    assert (first["role"], first["text"]) == ("user", "About {{input.how}}, now: {{nothing}}")


@rule("CV-36", "CV-43")
async def test_one_request_is_one_message(action_client: GatewayClient, action_easel: LiveEasel) -> None:
    session = new_session()
    canvas = await CanvasClient.create(
        action_client, {"go": answers("once", saveAs="x")}, ownerSessionKey=f"agent:main:{session}"
    )
    told = await asyncio.gather(*(canvas.run("go", requestId="r") for _ in range(8)))
    assert [one == told[0] for one in told] == [True] * 8
    assert len(await runs_of(action_easel, session)) == 1


# --- how it may go ------------------------------------------------------------------------------------------------------


@rule("CV-42", "CV-43")
async def test_a_run_that_fails_fails_its_action_with_the_reason(action_client: GatewayClient) -> None:
    message = script({"say": "half a word"}, {"fail": "the model is on strike"})
    canvas = await CanvasClient.create(
        action_client, {"go": says(message, saveAs="x")}, ownerSessionKey=f"agent:main:{new_session()}"
    )
    await canvas.listen()
    problem = await expect_refusal(canvas.run("go"))
    assert (problem.code, "the model is on strike" in problem.error["message"]) == (500, True)
    assert [one.event for one in await action_client.events(2)] == [
        "canvas.action.started",
        "canvas.action.failed",
    ]
    assert (await canvas.state(), (await canvas.records())[0]["status"]) == ({}, "failed")


@rule("CV-42", "CV-43")
async def test_a_run_that_is_cancelled_fails_its_action(
    action_client: GatewayClient, action_easel: LiveEasel
) -> None:
    session = new_session()
    canvas = await CanvasClient.create(
        action_client, {"go": says(WAITING, saveAs="x")}, ownerSessionKey=f"agent:main:{session}"
    )
    press = asyncio.create_task(canvas.run("go"))

    async def is_started() -> bool:
        return bool(await runs_of(action_easel, session))

    await wait_for(is_started)
    [run_id] = await runs_of(action_easel, session)
    await asyncio.to_thread(action_easel.cancel, run_id)
    problem = await expect_refusal(press)
    assert (problem.code, "cancelled" in problem.error["message"]) == (500, True)
    assert await canvas.state() == {}


@rule("CV-23", "CV-24")
async def test_a_run_that_takes_too_long_is_not_waited_for_and_its_late_answer_is_not_stored(
    action_client: GatewayClient, action_easel: LiveEasel, tools: ControlledTools
) -> None:
    session = new_session()
    message = script({"call": tools.hold.name, "args": {"name": session}}, {"say": "at last"})
    canvas = await CanvasClient.create(
        action_client,
        {"go": says(message, saveAs="x", timeoutMs=50)},
        ownerSessionKey=f"agent:main:{session}",
    )
    problem = await expect_refusal(canvas.run("go"))
    assert (problem.code, "0.05 s" in problem.error["message"]) == (504, True)
    tools.gate.release(session)

    async def has_answered() -> bool:
        return [
            one["text"] for one in await messages(action_easel, session) if one["role"] == "assistant"
        ] == ["at last"]

    await wait_for(has_answered)
    assert (await canvas.state(), await canvas.revision()) == ({}, 1)


@rule("CV-42")
async def test_a_message_that_is_too_large_or_empty_fails(
    action_client: GatewayClient, action_easel: LiveEasel
) -> None:
    session = new_session()
    canvas = await CanvasClient.create(
        action_client, {"go": says("{{input.x}}", saveAs="x")}, ownerSessionKey=f"agent:main:{session}"
    )
    assert (await expect_refusal(canvas.run("go", x="y" * 300_000))).code == 413
    assert (await expect_refusal(canvas.run("go"))).code == 400
    assert await runs_of(action_easel, session) == []
    assert [one["status"] for one in await canvas.records()] == ["failed", "failed"]


@rule("RS-35", "CC-23", "RS-43")
@pytest.mark.parametrize("heavy", ["base64", "text"])
async def test_a_heavy_answer_is_whole_in_the_answer_and_light_in_the_tables(
    action_client: GatewayClient, action_easel: LiveEasel, heavy: str
) -> None:
    text = (
        base64.b64encode(secrets.token_bytes(4_000)).decode()
        if heavy == "base64"
        else "a long story, that goes on. " * 300
    )
    canvas = await CanvasClient.create(
        action_client,
        {"go": says("{{input.script}}", saveAs="x")},
        ownerSessionKey=f"agent:main:{new_session()}",
    )
    assert (await canvas.run("go", script=script({"say": text})))["result"] == text
    saved = (await canvas.state())["x"]["result"]
    if heavy == "text":
        assert saved == text
        return
    assert (await asyncio.to_thread(action_easel.get, saved["uri"])).text == text
    rows = action_easel.sql(f"select answer from canvas_actions where canvas_id = '{canvas.name}'")
    assert text not in json.dumps([str(row) for row in rows])
