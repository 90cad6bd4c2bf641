"""Actions of kind session.send, on both stores: the message, its run and its reply."""

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
from tests.support.encoded import say_in_pieces

if TYPE_CHECKING:
    from tests.support.gateway import GatewayClient


def send(message: str, **options: Any) -> dict[str, Any]:
    return {"kind": "session.send", "message": message, **options}


def send_for_reply(text: str, **options: Any) -> dict[str, Any]:
    return send(script({"say": text}), **options)


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


# --- sending --------------------------------------------------------------------------------------


@rule("CV-24", "CV-43", "CV-39")
async def test_message_without_save_target_returns_its_run_at_once(
    action_client: GatewayClient, action_easel: LiveEasel
) -> None:
    session = new_session()
    canvas = await CanvasClient.create(
        action_client, {"go": send(WAITING)}, ownerSessionKey=f"agent:main:{session}"
    )
    await canvas.listen()
    answer = await canvas.run("go")
    assert answer["result"] == {
        "runId": (await runs_of(action_easel, session))[0],
        "sessionKey": f"agent:main:{session}",
    }
    assert (answer["status"], answer["revision"]) == ("completed", 1)
    assert [event.event for event in await action_client.events(2)] == [
        "canvas.action.started",
        "canvas.action.finished",
    ]
    assert (await asyncio.to_thread(action_easel.view, answer["result"]["runId"]))["status"] in (
        "queued",
        "running",
    )
    assert [message["role"] for message in await messages(action_easel, session)] == ["user"], (
        "in the thread of the session"
    )
    await asyncio.to_thread(action_easel.cancel, answer["result"]["runId"])


@rule("CV-24", "CV-43", "RS-43", "RS-12")
async def test_reply_of_a_message_with_save_target_is_saved(
    action_client: GatewayClient, action_easel: LiveEasel
) -> None:
    session = new_session()
    actions = {
        "go": send_for_reply("forty-two", saveAs="plan.answer"),
        "list": send_for_reply("again", saveAs="all", saveMode="append"),
        "merge": send_for_reply("no object", saveAs="plan", saveMode="merge"),
    }
    canvas = await CanvasClient.create(action_client, actions, ownerSessionKey=f"agent:main:{session}")
    await canvas.listen()
    answer = await canvas.run("go")
    assert (answer["result"], answer["revision"]) == ("forty-two", 2)
    assert [event.event for event in await action_client.events(3)] == [
        "canvas.action.started",
        "canvas.updated",
        "canvas.action.finished",
    ]
    await asyncio.gather(canvas.run("list"), canvas.run("list"))
    state = await canvas.state()
    assert (state["plan"]["answer"]["ok"], state["plan"]["answer"]["result"]) == (True, "forty-two")
    assert [outcome["result"] for outcome in state["all"]] == ["again", "again"]
    assert "must be an object" in (await expect_refusal(canvas.run("merge"))).error["message"]
    roles = [message["role"] for message in await messages(action_easel, session)]
    assert sorted(roles) == ["assistant"] * 4 + ["user"] * 4, "an ordinary thread"


# --- failures -------------------------------------------------------------------------------------


@rule("CV-42", "CV-43")
async def test_failed_run_fails_its_action_with_the_reason(action_client: GatewayClient) -> None:
    message = script({"say": "half a word"}, {"fail": "the model is on strike"})
    canvas = await CanvasClient.create(
        action_client, {"go": send(message, saveAs="x")}, ownerSessionKey=f"agent:main:{new_session()}"
    )
    await canvas.listen()
    problem = await expect_refusal(canvas.run("go"))
    assert (problem.code, "the model is on strike" in problem.error["message"]) == (500, True)
    assert [event.event for event in await action_client.events(2)] == [
        "canvas.action.started",
        "canvas.action.failed",
    ]
    assert (await canvas.state(), (await canvas.records())[0]["status"]) == ({}, "failed")


@rule("RS-62", "CC-23", "RS-43")
@pytest.mark.parametrize("kind", ["base64", "text"])
async def test_large_reply_is_a_string_with_references(
    action_client: GatewayClient, action_easel: LiveEasel, kind: str
) -> None:
    text = (
        base64.b64encode(secrets.token_bytes(4_000)).decode()
        if kind == "base64"
        else "a long story, that goes on. " * 300
    )
    canvas = await CanvasClient.create(
        action_client,
        {"go": send("{{input.script}}", saveAs="x")},
        ownerSessionKey=f"agent:main:{new_session()}",
    )
    result = (await canvas.run("go", script=script({"say": "See "}, *say_in_pieces(text))))["result"]
    assert (await canvas.state())["x"]["result"] == result
    if kind == "text":
        assert result == f"See {text}"
        return
    name = result.removeprefix("See [[artifact:").removesuffix("]]")
    assert (await asyncio.to_thread(action_easel.get, f"/api/artifacts/{name}")).text == text
    rows = action_easel.sql(f"select answer from executions where canvas_id = '{canvas.name}'")
    assert text not in json.dumps([str(row) for row in rows])
