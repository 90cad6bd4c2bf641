"""Unknown members of bodies and queries over HTTP: ignored with warnings, or refused; and empty bodies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from easel.edges.http.routes import PUBLIC, ROUTES
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.chat import Chat, Complaint, Warned

if TYPE_CHECKING:
    import httpx2

    from easel.edges.http.calls import Row

COLOUR = "unknown member `colour` was ignored."
CLOSED = [row for row in ROUTES if row.access != PUBLIC]


def name_of(row: Row) -> str:
    return f"{row.method} {row.path}"


def path_of(row: Row) -> str:
    return row.path.replace("{", "").replace("}", "")


def message_of(answer: httpx2.Response) -> str:
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]["message"]


@rule("RS-67")
@pytest.mark.parametrize("row", CLOSED, ids=name_of)
def test_check_in_a_query_is_refused(small_easel: LiveEasel, row: Row) -> None:
    answer = small_easel.ask(row.method, f"{path_of(row)}?expectedRevision=1")
    assert "`expectedRevision` is refused" in message_of(answer)


@rule("RS-67")
def test_unknown_members_are_ignored_and_named(small_easel: LiveEasel) -> None:
    name = new_session()
    created = small_easel.post("/api/sessions?colour=red", {"session_id": name, "tilte": "t"})
    assert created.status_code == 201
    assert created.json()["warnings"] == [
        COLOUR,
        "unknown member `tilte` was ignored; did you mean `title`?",
    ]
    assert created.headers["content-length"] == str(len(created.content))
    listed = small_easel.get("/api/sessions?limt=1").json()
    assert listed["warnings"] == ["unknown member `limt` was ignored; did you mean `limit`?"]
    assert "warnings" not in small_easel.get("/api/sessions?limit=1").json()
    for body in (b"", b"null", b" "):
        empty = small_easel.ask("POST", "/api/runs", content=body)
        assert "missing required field" in message_of(empty), "it is an empty object"
    changed = small_easel.ask("PUT", "/api/settings", json={"provdier": "x"}).json()
    assert changed["warnings"] == ["unknown member `provdier` was ignored; did you mean `provider`?"]
    run = {"session_id": name, "message": "noop"}
    refused = message_of(small_easel.post("/api/runs", {**run, "idempotencyKey": "k"}))
    assert "did you mean `idempotency_key`?" in refused


@rule("RS-67")
def test_warnings_leave_the_other_members_as_they_were(easel: LiveEasel) -> None:
    run_id = easel.finish()
    value = '{"big":123456789012345678901234567890,"small":1.50}'
    text = f'{{"key":"k","value":{value},"source_node_id":"n"}}'
    refused = easel.ask("POST", f"/api/runs/{run_id}/whiteboard?colour=1", content=text.encode())
    assert refused.json()["error"]["details"]["warnings"] == [COLOUR]
    plain, warned = (easel.get(f"/api/runs/{run_id}{query}") for query in ("", "?colour=1"))
    assert warned.text == plain.text[:-1] + f',"warnings":["{COLOUR}"]}}'


@rule("RS-67")
def test_other_responses_have_the_warnings_in_a_header(small_easel: LiveEasel) -> None:
    streamed = small_easel.post(f"/api/chat/{new_session()}", {"message": "noop", "colour": "red"})
    assert json.loads(streamed.headers["x-easel-warnings"]) == [COLOUR]
    stored = small_easel.ask("POST", "/api/artifacts", content=b"bytes").json()["artifact_id"]
    bytes_ = small_easel.get(f"/api/artifacts/{stored}?färbe=%0d%0aset-cookie:x")
    assert (bytes_.content, json.loads(bytes_.headers["x-easel-warnings"])) == (
        b"bytes",
        ["unknown member `färbe` was ignored."],
    )


@rule("RS-67")
def test_rpc_has_the_warnings_of_the_call_and_of_its_params(small_easel: LiveEasel) -> None:
    answer = small_easel.post(
        "/api/rpc", {"method": "canvas.list", "parms": {}, "params": {"colour": "red"}}
    ).json()
    assert answer["warnings"] == [COLOUR, "unknown member `parms` was ignored; did you mean `params`?"]
    for params in (None, {}):
        assert "canvases" in small_easel.post("/api/rpc", {"method": "canvas.list", "params": params}).json()


@rule("RS-67", "RX-13")
def test_idempotency_key_of_a_header_counts_in_the_chat_too(small_easel: LiveEasel) -> None:
    path = f"/api/chat/{new_session()}"
    headers = {"Idempotency-Key": new_session(), "Accept": "application/json"}
    first, second = (small_easel.post(path, {"message": "noop"}, headers=headers).json() for _ in "12")
    assert first == second
    differing = small_easel.post(path, {"message": "noop", "idempotency_key": "other"}, headers=headers)
    assert "differ" in message_of(differing)


@rule("RS-67")
def test_key_in_a_header_that_is_not_read_is_named(small_easel: LiveEasel) -> None:
    """Regression: a repeated request looked harmless and was not."""
    call = {"method": "canvas.create", "params": {"title": "Plan"}}
    created = small_easel.post("/api/rpc", call, headers={"Idempotency-Key": "k"}).json()
    assert created["warnings"] == [
        "the header Idempotency-Key was ignored; this request has no key for repetitions."
    ]
    run = {"session_id": new_session(), "message": "noop"}
    started = small_easel.post("/api/runs", run, headers={"X-Idempotency-Key": "k"}).json()
    assert started["warnings"] == [
        "the header X-Idempotency-Key was ignored; did you mean `Idempotency-Key`?"
    ]
    assert "warnings" not in small_easel.post("/api/runs", run, headers={"Idempotency-Key": "k"}).json()


@rule("RS-67")
async def test_chat_names_unknown_members_and_goes_on(small_easel: LiveEasel) -> None:
    async with Chat.open(small_easel.base_url, new_session(), small_easel.token) as chat:
        await chat.send('{"type":"message","text":"noop","colour":"red"}')
        while not isinstance(heard := await chat.hear(), Warned):
            assert heard is not None
        assert heard.warnings == [COLOUR]
        await chat.send('{"type":"message","text":"noop","base_revision":"k"}')
        while not isinstance(heard := await chat.hear(), Complaint):
            assert heard is not None
        assert "`base_revision` is refused" in heard.message


@rule("RS-67")
@case("R1")
def test_hostile_body_gets_a_short_answer(small_easel: LiveEasel) -> None:
    unknown = {f"member{number}": 0 for number in range(20_000)} | {"x" * 1_000_000: 1}
    answer = small_easel.post("/api/sessions", {"session_id": new_session(), **unknown})
    assert answer.status_code == 400
    assert len(answer.content) < 4_000
    assert "20001 members are unknown" in answer.json()["error"]["message"]
