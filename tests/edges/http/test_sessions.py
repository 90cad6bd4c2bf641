"""Sessions over HTTP: create, find, rename, read and delete them with everything in them."""

from __future__ import annotations

import asyncio
import base64
import random
from typing import TYPE_CHECKING

import pytest

from tests.edges.http.live import WAITING, in_time, new_session, script
from tests.requirements import case, rule
from tests.support.chat import Chat, Pong
from tests.support.encoded import say_in_pieces
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from tests.edges.http.live import LiveEasel
    from tests.support.sse import Event


def test_first_message_creates_and_titles_its_session(easel: LiveEasel) -> None:
    name = new_session()
    easel.finish(
        "What is\n  the  weather like today in a place whose name is much too long for any title bar?", name
    )
    session = easel.get(f"/api/sessions/{name}").json()
    assert (
        session["title"] == "What is the weather like today in a place whose name is much too long for any…"
    )
    assert len(session["title"]) <= 80
    assert (session["session_id"], session["key"]) == (name, f"agent:main:{name}")
    assert "active_run_id" not in session


def test_history_has_all_messages_whole_and_in_order(easel: LiveEasel) -> None:
    name, long = new_session(), "many words " * 1_000
    easel.finish(script({"say": long}), name)
    easel.finish(script({"fail": "no more"}), name)
    messages = easel.get(f"/api/sessions/{name}/messages").json()["messages"]
    assert [(message["role"], message.get("status")) for message in messages] == [
        ("user", None),
        ("assistant", "completed"),
        ("user", None),
        ("assistant", "failed"),
    ]
    assert messages[1]["text"] == long, "long plain text stays whole"
    assert messages[3]["error"] == "The model failed: no more"
    assert [message["seq"] for message in messages] == sorted(message["seq"] for message in messages)
    assert all(message["metadata"] == {"visibility": "public"} for message in messages)
    newest = easel.get(f"/api/sessions/{name}/messages", params={"limit": "1"}).json()
    assert newest["messages"] == messages[-1:]
    older = easel.get(f"/api/sessions/{name}/messages", params={"before": str(newest["next"])}).json()
    assert older["messages"] == messages[:-1]


@rule("RS-62", "CC-23", "CC-26")
@case("R3")
def test_text_is_a_string_with_references_on_every_transport(easel: LiveEasel) -> None:
    name = new_session()
    pixels, said = (base64.b64encode(random.Random(n).randbytes(30_000)).decode() for n in (3, 4))
    typed = f"[[artifact:art_{'0' * 64}]]"
    text = script(
        {"call": "gsv__Echo", "args": {"value": f"{typed} {pixels}"}},
        {"say": "It shows: "},
        *say_in_pieces(said),
        {"say": " and that is all."},
    )
    run_id = easel.start(text, name)
    events = easel.events(run_id)
    assert events[-1].data["status"] == "completed"
    [question, answer] = easel.get(f"/api/sessions/{name}/messages").json()["messages"]
    [marker] = question["attachments"]
    reference = f"[[artifact:art_{marker['sha256']}]]"
    assert question["text"] == text.replace(pixels, reference)
    assert easel.get(marker["uri"]).text == pixels
    [of_answer] = answer["attachments"]
    assert answer["text"] == f"It shows: [[artifact:art_{of_answer['sha256']}]] and that is all."
    assert easel.get(of_answer["uri"]).text == said
    [result] = [event for event in events if event.type == "tool.result"]
    assert result.data["result"] == f"{typed} {reference}", "the model gets the text with the references"
    deltas = [event.data for event in events if event.type == "message.delta"]
    assert "".join(data["text"] for data in deltas) == answer["text"]
    [completed] = [event.data for event in events if event.type == "message.completed"]
    assert (completed["text"], completed["attachments"]) == (answer["text"], [of_answer])
    view = easel.view(run_id)
    assert (view["input_text"], view["attachments"]) == (question["text"], [marker])
    [listed] = easel.get("/api/runs", params={"session_id": name}).json()["runs"]
    assert listed["truncated"] is True
    assert question["text"].startswith(listed["input_text"])
    probe = pixels[4_000:4_064]
    for table in (
        "runs",
        "run_events",
        "messages",
        "sessions",
        "boards",
        "canvases",
        "canvas_events",
        "audit",
    ):
        assert probe not in str(easel.sql(f"select * from {table}")), f"raw pixels in {table}"


@rule("RS-62", "RS-35")
async def test_long_question_reaches_the_chat_in_deltas(easel: LiveEasel) -> None:
    """The review's question of 3,240 characters was an object in the chat."""
    name, text = new_session(), "Please explain this in detail. " * 105
    events: list[Event] = []
    async with Chat.open(easel.base_url, name, easel.token) as chat:
        await asyncio.to_thread(easel.start, text, name)
        async for event in chat.events():
            events.append(event)
            if event.type == "message.completed":
                break
    *deltas, completed = [event.data for event in events]
    assert [event.type for event in events[:-1]] == ["message.delta"] * len(deltas)
    assert "".join(data["text"] for data in deltas) == text
    assert {(data["role"], data["message_id"]) for data in deltas} == {("user", completed["message_id"])}
    assert (completed["role"], completed["truncated"]) == ("user", True)
    assert text.startswith(completed["text"])
    [marker] = completed["attachments"]
    assert (await asyncio.to_thread(easel.get, marker["uri"])).text == text


def test_session_is_created_with_or_without_an_id(easel: LiveEasel) -> None:
    made = easel.post("/api/sessions", {"title": "  Two   words "})
    assert made.status_code == 201
    assert made.json()["title"] == "Two words"
    name = made.json()["session_id"]
    assert easel.post("/api/sessions", {"session_id": name}).status_code == 409
    assert easel.get(f"/api/sessions/{name}/messages").json() == {"messages": []}
    renamed = easel.ask("PATCH", f"/api/sessions/{name}", json={"title": "Another"})
    assert (renamed.status_code, renamed.json()["title"]) == (200, "Another")


@pytest.mark.parametrize(
    "body",
    [{"session_id": "../x"}, {"session_id": ""}, {"title": ""}, {"title": "a\u202eb"}, {"title": "x" * 201}],
)
def test_session_with_an_invalid_id_or_title_is_refused(easel: LiveEasel, body: dict[str, str]) -> None:
    answer = easel.post("/api/sessions", body)
    assert (answer.status_code, answer.json()["error"]["name"]) == (400, "BAD_INPUT")


def test_listing_is_searched_and_paged(easel: LiveEasel) -> None:
    mark = new_session()
    names = [f"{mark}-{n}" for n in range(5)]
    for name in names:
        easel.post("/api/sessions", {"session_id": name, "title": f"page {name}"})
    seen: list[str] = []
    before = None
    while True:
        query = {"search": mark.upper(), "limit": "2", **({"before": before} if before else {})}
        page = easel.get("/api/sessions", params=query).json()
        seen += [session["session_id"] for session in page["sessions"]]
        if (before := page.get("next")) is None:
            break
    assert seen == names[::-1]
    assert easel.get("/api/sessions", params={"search": "nothing has this"}).json() == {"sessions": []}
    for bad in ("x", "1.", "9" * 18 + ".a", "1.a/b"):
        assert easel.get("/api/sessions", params={"before": bad}).status_code == 400


def test_deleting_a_session_deletes_and_stops_its_runs(easel: LiveEasel) -> None:
    name = new_session()
    done, working = easel.finish("noop", name), easel.start(WAITING, name)
    easel.stream_start(working)
    assert easel.ask("DELETE", f"/api/sessions/{name}").status_code == 204
    assert easel.ask("DELETE", f"/api/sessions/{name}").status_code == 404
    for path in (
        f"/api/sessions/{name}",
        f"/api/sessions/{name}/messages",
        f"/api/runs/{done}",
        f"/api/runs/{working}",
    ):
        assert easel.get(path).status_code == 404
    assert easel.stream(working).status_code == 404
    wait_for_sync(
        lambda: "easel_runs_running 0.0" in easel.get("/metrics").text, within=30, what="its worker let go"
    )
    easel.finish("noop", name)
    assert len(easel.get(f"/api/sessions/{name}/messages").json()["messages"]) == 2, (
        "the name can be used anew"
    )


def test_stream_of_a_deleted_session_ends(easel: LiveEasel) -> None:
    name = new_session()
    run_id = easel.start(WAITING, name)
    with (
        easel.stranger() as http,
        http.stream("GET", f"/api/runs/{run_id}/events", headers=easel.bearer) as stream,
    ):
        lines = in_time(stream.iter_lines())
        while "run.start" not in next(lines):
            pass
        easel.ask("DELETE", f"/api/sessions/{name}")
        assert not any("done" in line for line in lines), "the stream ends without an event `done`"


@rule("RX-47")
def test_chat_route_uses_the_queue_and_the_log(easel: LiveEasel) -> None:
    name = new_session()
    answer = easel.post(f"/api/chat/{name}", {"message": script({"say": "hello"})})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    run_id = answer.headers["x-run-id"]
    assert [frame for frame in answer.text.split("\n\n") if frame.startswith("id: ")] == [
        frame for frame in easel.stream(run_id).text.split("\n\n") if frame.startswith("id: ")
    ]
    assert easel.view(run_id)["session_id"] == name
    queued = easel.post(f"/api/chat/{name}", {"message": "noop"}, headers={"accept": "application/json"})
    assert (queued.status_code, queued.json()["status"]) == (202, "queued")


async def test_chat_answers_a_ping_with_a_pong(small_easel: LiveEasel) -> None:
    """A page asks whether a silent connection still carries an answer."""
    async with Chat.open(small_easel.base_url, new_session(), small_easel.token) as chat:
        await chat.send('{"type":"ping"}')
        assert await chat.hear() == Pong()
