"""The system stream over HTTP: administrators read it, and nothing of it reaches anybody else by any transport."""

from __future__ import annotations

import ast
import contextlib
import json
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from easel.assembly import worker as assembly
from easel.core.audit.record import ACTIONS
from easel.core.principal import THE_OWNER, Principal
from easel.errors import ModelFailed, ToolFailed
from easel.host.audit import verify
from easel.host.auth import sign_in
from easel.host.runs.queue import RunQueue
from easel.ids import new_run_id
from easel.llm.scripted import ScriptedModel
from tests.edges.http.live import LiveEasel, new_session, script
from tests.host.conftest import TestTool
from tests.requirements import case, rule
from tests.support.postgres import Postgres
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from easel.core.run.conversation import Conversation, Part
    from easel.core.run.run import Run
    from easel.core.tool.definition import ToolDefinition

SOURCE = Path(__file__).resolve().parents[3] / "src" / "easel"
KEY = "sk-live-51HxQq9aZkPlanted"
BROKEN_RUN = new_run_id()
# What only operators may know of something that broke: names of files and functions, what was said inside, and the key.
INSIDE = (
    "Traceback",
    ".py",
    "deep_inside",
    "db.internal",
    "RuntimeError: ",
    "planted",
    KEY,
    "asyncpg",
    "sqlite3.",
    "Errno",
)


def deep_inside() -> None:
    raise RuntimeError(f"planted: 401 for api_key={KEY} at db.internal:5432")


async def break_down(_: Mapping[str, Any]) -> None:
    deep_inside()


async def fail(_: Mapping[str, Any]) -> None:
    raise ToolFailed(tool="probe__Fail", reason=f"the service refused the key {KEY}")


class ModelThatBreaks(ScriptedModel):
    """The scripted model, which breaks or fails when it is asked to."""

    async def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        if conversation.user_message == "break":
            deep_inside()
        if conversation.user_message == "fail":
            raise ModelFailed(reason=f"401: incorrect API key provided: {KEY}")
        async for part in super().reply(conversation, tools):
            yield part


async def get_or_break(self: RunQueue, principal: Principal, run_id: str, get: Any = RunQueue.get) -> Run:
    if run_id == BROKEN_RUN:
        deep_inside()
    return await get(self, principal, run_id)


@pytest.fixture(scope="module")
def breaking(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """Easel with a tool, a model and a route that break, and quote what nobody may hear."""
    tools = [TestTool("probe__Break", break_down), TestTool("probe__Fail", fail)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "ScriptedModel", ModelThatBreaks)
        patch.setattr(RunQueue, "get", get_or_break)
        with LiveEasel(tmp_path_factory.mktemp("easel"), tools=tools) as live:
            yield live


def records(easel: LiveEasel, **filters: Any) -> list[dict[str, Any]]:
    answer = easel.get("/api/audit", params=filters)
    assert answer.status_code == 200, answer.text
    return answer.json()["records"]


def latest(easel: LiveEasel, action: str, **wanted: Any) -> dict[str, Any]:
    """The newest record of this action with these details, which comes soon."""

    def found() -> list[dict[str, Any]]:
        return [
            one
            for one in records(easel, action=action)
            if wanted.items() <= {**one, **one.get("details", {})}.items()
        ]

    wait_for_sync(lambda: bool(found()), within=20, what=f"{action} is recorded")
    return found()[0]


# --- reading it ---------------------------------------------------------------------------------------------


@rule("CC-14", "CC-06")
def test_an_administrator_reads_what_was_recorded(easel: LiveEasel) -> None:
    session = new_session()
    easel.post("/api/sessions", {"session_id": session})
    record = latest(easel, "session.created", subject=session)
    assert set(record) == {"seq", "at", "storage_class", "action", "actor", "subject", "metadata", "hash"}
    assert record["actor"] == {"user_id": "owner", "name": "owner"}
    assert (record["storage_class"], record["metadata"]) == ("audit", {"visibility": "system"})
    assert datetime.now(UTC) - datetime.fromisoformat(record["at"]) < timedelta(minutes=1)
    [stored] = easel.sql(f"select record, hash from audit where seq = {record['seq']}")
    assert stored["hash"] == record.pop("hash")
    assert json.loads(stored["record"]) == record


def test_pages_follow_each_other_newest_first_and_filters_hold(easel: LiveEasel) -> None:
    for _ in range(5):
        easel.post("/api/sessions", {"session_id": new_session()})
    first = easel.get("/api/audit", params={"limit": 2}).json()
    second = easel.get("/api/audit", params={"limit": 2, "before": first["next"]}).json()
    seqs = [one["seq"] for one in first["records"] + second["records"]]
    assert seqs == sorted(seqs, reverse=True)
    assert len(set(seqs)) == 4
    assert {one["action"] for one in records(easel, action="session.created")} == {"session.created"}
    assert {one["storage_class"] for one in records(easel, storage_class="audit")} == {"audit"}
    now = datetime.now(UTC)
    assert records(easel, since=(now + timedelta(hours=1)).isoformat().replace("+00:00", "Z")) == []
    assert records(easel, until="2020-01-01T00:00:00Z") == []
    assert "next" not in easel.get("/api/audit", params={"until": "2020-01-01T00:00:00Z"}).json()


BAD = [
    "limit=0",
    "limit=201",
    "limit=x",
    "before=-1",
    "action=session.danced",
    "storage_class=stream",
    "since=yesterday",
    "until=2026-11-15T09:00:00",
    "since=0001-01-01T00:00:00%2B01:00",
    "until=0001-01-01T13:59:59%2B14:00",
    "since=9999-12-31T23:59:59-00:01",
]


@pytest.mark.parametrize(
    "edge", ["0001-01-01T00:00:00Z", "0001-01-01T14:00:00%2B14:00", "9999-12-31T23:59:59Z"]
)
def test_the_first_and_the_last_moment_that_there_are_can_be_asked_for(easel: LiveEasel, edge: str) -> None:
    assert easel.get(f"/api/audit?since={edge}&until={edge}").json() == {"records": []}


@pytest.mark.parametrize("query", BAD)
def test_a_question_that_does_not_fit_is_told_what_would(easel: LiveEasel, query: str) -> None:
    answer = easel.get(f"/api/audit?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["name"] == "BAD_INPUT"


@rule("CC-05", "CC-12")
def test_who_does_not_administer_may_not_look_and_that_is_recorded(
    small_easel: LiveEasel, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody_special = Principal(THE_OWNER.user_id, "somebody")
    monkeypatch.setattr(sign_in, "THE_OWNER", nobody_special)
    answer = small_easel.get("/api/audit")
    monkeypatch.undo()
    assert answer.status_code == 403
    assert "records" not in answer.text
    record = latest(small_easel, "guardrail.refused", path="/api/audit")
    assert record["actor"]["name"] == "somebody"
    assert record["details"]["error"] == "FORBIDDEN"


def test_a_record_that_somebody_has_spoilt_is_still_listed(small_easel: LiveEasel) -> None:
    small_easel.post("/api/sessions", {"session_id": new_session()})
    seq = records(small_easel)[0]["seq"]
    small_easel.sql(f"update audit set record = '{{\"seq\":' where seq = {seq}")
    [shown] = [one for one in records(small_easel) if one["seq"] == seq]
    assert shown["details"] == {"unreadable": True}


# --- what is recorded ---------------------------------------------------------------------------------------


@case("P6")
def test_signing_in_and_out_is_recorded_without_the_token(easel: LiveEasel) -> None:
    with easel.stranger() as browser:
        cookie = browser.get("/", params={"token": easel.token}).cookies["easel"]
        assert latest(easel, "sign_in.succeeded")["details"] == {"by": "link", "address": "127.0.0.1"}
        browser.post("/sign-in", data={"token": easel.token})
        assert latest(easel, "sign_in.succeeded")["details"]["by"] == "form"
        browser.post("/sign-out")
        assert latest(easel, "sign_out")["actor"] == {"user_id": "owner", "name": "owner"}
        before = len(records(easel, action="sign_out"))
        browser.cookies.clear()
        browser.post("/sign-out")
    assert len(records(easel, action="sign_out")) == before, "who was not in cannot leave"
    everything = json.dumps(easel.sql("select record from audit"))
    assert easel.token not in everything
    assert cookie not in everything


WAYS = [
    # shown                                                        as
    ({"url": "/", "params": {"token": "wrong-token-1"}}, "link"),
    ({"method": "POST", "url": "/sign-in", "data": {"token": "wrong-token-2"}}, "form"),
    ({"url": "/api/runs", "headers": {"Authorization": "Bearer wrong-token-3"}}, "token"),
    ({"url": "/api/runs", "headers": {"Cookie": "easel=wrong-token-4"}}, "cookie"),
]


@case("P6")
@pytest.mark.parametrize("shown, by", WAYS, ids=[by for _, by in WAYS])
def test_a_wrong_token_is_recorded_and_not_what_it_was(
    small_easel: LiveEasel, shown: dict[str, Any], by: str
) -> None:
    with small_easel.stranger() as stranger:
        assert stranger.request(**{"method": "GET", **shown}).status_code == 401
        record = latest(small_easel, "sign_in.failed", by=by)
    assert record["actor"] == {"user_id": "", "name": "nobody"}
    assert record["details"]["address"] == "127.0.0.1"
    assert "wrong-token" not in json.dumps(small_easel.sql("select record from audit"))


def test_who_shows_nothing_has_not_tried_to_get_in(tmp_path: Path) -> None:
    with LiveEasel(tmp_path, with_worker=False) as easel, easel.stranger() as stranger:
        stranger.get("/api/runs", headers={"Authorization": "Bearer wrong"})
        assert stranger.get("/api/runs").status_code == 401
        stranger.get("/api/runs", headers={"Cookie": "easel=wrong"})
        latest(easel, "sign_in.failed", by="cookie")  # what came before it is counted by then
        assert sum(record["details"]["count"] for record in records(easel, action="sign_in.failed")) == 2


@case("R4")
def test_a_thousand_guesses_are_a_few_records_that_count_them(tmp_path: Path) -> None:
    guesses = 300
    with LiveEasel(tmp_path, with_worker=False) as easel, easel.stranger() as stranger:
        began = time.monotonic()
        for nth in range(guesses):
            stranger.get("/api/runs", headers={"Authorization": f"Bearer guess-{nth}"})

        def counted() -> int:
            return sum(
                record["details"]["count"] for record in records(easel, action="sign_in.failed", limit=200)
            )

        wait_for_sync(lambda: counted() == guesses, within=20, what="every guess is counted")
        assert len(records(easel, action="sign_in.failed", limit=200)) <= time.monotonic() - began + 2


@case("O7")
@rule("CC-05")
@pytest.mark.parametrize(
    "headers, error",
    [({"Origin": "https://evil.example"}, "FORBIDDEN"), ({"Host": "evil.example"}, "WRONG_HOST")],
    ids=["origin", "host"],
)
def test_what_a_guardrail_refused_is_recorded(easel: LiveEasel, headers: dict[str, str], error: str) -> None:
    path = f"/api/runs/{new_run_id()}"
    assert easel.get(path, headers=headers).status_code in (403, 421)
    wait_for_sync(
        lambda: any(one["details"]["path"] == path for one in records(easel, action="guardrail.refused")),
        within=20,
        what="it is told",
    )
    record = latest(easel, "guardrail.refused", path=path)
    assert (record["storage_class"], record["details"]["error"]) == ("audit", error)


@rule("CC-05")
def test_a_slow_answer_is_noted_for_operators_alone(tmp_path: Path) -> None:
    with LiveEasel(tmp_path, settings={"slow_seconds": 0.000_1}) as easel:
        answer = easel.get("/api/tools")
        record = latest(easel, "http.slow", route="/api/tools")
        assert record["storage_class"] == "ops"
        assert record["details"]["seconds"] > 0
        assert not {"server-timing", "x-response-time", "x-process-time"} & set(answer.headers)
        easel.finish()  # a stream is watched, last of all; whatever is told of it is stored when Easel has stopped
    with contextlib.closing(sqlite3.connect(tmp_path / "easel.db")) as database:
        told = [
            json.loads(record)["details"]
            for (record,) in database.execute("select record from audit where action = 'http.slow'")
        ]
    assert {"/api/tools", "/api/runs"} <= {one["route"] for one in told}
    assert "/api/runs/{run_id}/events" not in {one["route"] for one in told}


def used_actions() -> dict[str, str]:
    """Every action that the source tells of, and where."""
    found: dict[str, str] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        attr="record" | "note" | "record_throttled" | "record_exception", value=owner
                    ),
                    args=[_, ast.Constant(value=str(action)), *_],
                ):
                    pass
                case ast.Call(
                    func=ast.Attribute(attr="record_slow", value=owner),
                    args=[ast.Constant(value=str(action)), *_],
                ):
                    pass
                case _:
                    continue
            if "audit" in ast.unparse(owner):
                found[action] = f"{path.name}:{node.lineno}"
    return found


def test_every_action_that_is_told_of_exists() -> None:
    used = used_actions()
    assert {action: where for action, where in used.items() if action not in ACTIONS} == {}
    assert {"sign_out", "sign_in.failed", "http.error", "http.slow", "tool.error", "run.error"} <= set(used)


# --- what broke stays inside --------------------------------------------------------------------------------


def check_nothing_inside(text: str, what: str) -> None:
    for inside in INSIDE:
        assert inside not in text, f"{what}: {inside} in {text[:2000]}"


def all_that_is_sent(easel: LiveEasel, run_id: str, session: str) -> dict[str, str]:
    """Everything that a user's browser can get of a run, on every transport, debug tooling switched on."""
    sent = {
        f"{path}{query}": easel.get(f"{path}{query}").text
        for path in (f"/api/runs/{run_id}/events", f"/sse/run/{run_id}")
        for query in ("", "?debug=1")
    }
    sent |= {
        path: easel.get(path).text
        for path in (
            f"/api/runs/{run_id}",
            f"/api/sessions/{session}",
            f"/api/sessions/{session}/messages",
            "/api/runs",
            "/api/sessions",
        )
    }
    url = (
        easel.base_url.replace("http", "ws", 1)
        + f"/ws/chat/{session}?last_event_id=0&debug=1&token={easel.token}"
    )
    with connect(url) as chat:
        frames: list[str] = []
        while not any('"message.completed"' in frame and '"assistant"' in frame for frame in frames):
            frames.append(str(chat.recv(timeout=20)))
    return {**sent, "/ws/chat": "\n".join(frames)}


@rule("CC-05", "CC-13", "RS-06")
@case("P6")
@pytest.mark.parametrize(
    "message, action",
    [
        (script({"call": "probe__Break", "args": {}}, {"say": "and on"}), "tool.error"),
        ("break", "run.error"),
    ],
    ids=["a tool", "the model"],
)
def test_a_run_in_which_something_breaks_shows_nothing_of_its_inside(
    breaking: LiveEasel, message: str, action: str
) -> None:
    session = new_session()
    run_id = breaking.finish(message, session)
    for what, text in all_that_is_sent(breaking, run_id, session).items():
        check_nothing_inside(text, what)
    record = latest(breaking, action, subject=run_id)
    assert record["storage_class"] == "ops"
    details = record["details"]
    assert details["exception"] == "RuntimeError"
    assert "db.internal:5432" in details["message"]
    assert details["traceback"].startswith("Traceback (most recent call last)")
    assert "in deep_inside" in details["traceback"]
    assert KEY not in json.dumps(record)


@rule("CC-05")
def test_the_reference_that_a_user_reads_finds_the_record(breaking: LiveEasel) -> None:
    run_id = breaking.finish("break")
    record = latest(breaking, "run.error", subject=run_id)
    assert record["details"]["reference"] in breaking.view(run_id)["error_message"]


@case("P6")
@pytest.mark.parametrize(
    "message", ["fail", script({"call": "probe__Fail", "args": {}})], ids=["the model", "a tool"]
)
def test_the_reason_of_a_failure_is_told_without_the_key_that_it_quotes(
    breaking: LiveEasel, message: str
) -> None:
    session = new_session()
    run_id = breaking.finish(message, session)
    for what, text in all_that_is_sent(breaking, run_id, session).items():
        assert KEY not in text, what
    assert "key" in breaking.stream(run_id).text, "that it was the key may be told"
    assert KEY not in json.dumps(breaking.sql("select record from audit"))


@rule("CC-05")
@case("P6")
def test_a_route_that_breaks_tells_a_reference_and_operators_the_rest(breaking: LiveEasel) -> None:
    answer = breaking.get(f"/api/runs/{BROKEN_RUN}")
    assert answer.status_code == 500
    check_nothing_inside(answer.text, "the answer")
    reference = answer.json()["error"]["details"]["reference"]
    record = latest(breaking, "http.error", reference=reference)
    assert record["actor"]["name"] == "owner"
    assert record["details"]["path"] == f"/api/runs/{BROKEN_RUN}"
    assert "db.internal:5432" in record["details"]["message"]
    assert "in deep_inside" in record["details"]["traceback"]
    assert KEY not in json.dumps(record)


@case("R6")
def test_nothing_that_a_stranger_sends_begins_a_line_or_colours_a_record(breaking: LiveEasel) -> None:
    breaking.get("/api/runs/%0d%0aforged%1b%5b31m%c2%9b%e2%80%a8", headers={"Origin": "https://evil.example"})
    title = "\r\n\x1b[31m" * 10_000
    session = new_session()
    breaking.post("/api/sessions", {"session_id": session})
    breaking.ask("PATCH", f"/api/sessions/{session}", json={"title": title})
    latest(breaking, "guardrail.refused")
    for row in breaking.sql("select record from audit"):
        assert row["record"].isprintable(), row["record"][:500]
        assert len(row["record"]) < 6_000


# --- a database that is lost --------------------------------------------------------------------------------


@rule("CC-05")
@case("D1")
def test_a_lost_database_leaks_nothing_and_is_told_to_operators_when_it_is_back(tmp_path: Path) -> None:
    with (
        Postgres(fsync=False) as server,
        LiveEasel(tmp_path, server.create_database(), settings={"claim_seconds": 2.0}) as easel,
    ):
        session = new_session()
        run_id = easel.finish("noop", session)
        server.stop("immediate")
        wait_for_sync(lambda: easel.get("/readyz").status_code == 503, within=60, what="/readyz notices")
        asks = [
            ("GET", f"/api/runs/{run_id}"),
            ("GET", f"/api/runs/{run_id}/events"),
            ("GET", f"/sse/run/{run_id}"),
            ("GET", "/api/audit"),
        ]
        asks += [
            ("POST", f"/api/runs/{run_id}/cancel"),
            ("DELETE", f"/api/sessions/{session}"),
            ("GET", f"/api/sessions/{session}/messages"),
        ]
        for method, path in asks:
            answer = easel.ask(method, path)
            assert answer.status_code == 503, (path, answer.text)
            check_unreachable(answer.text, path)
        with pytest.raises(InvalidStatus) as refused:
            connect(easel.base_url.replace("http", "ws", 1) + f"/ws/chat/{session}?token={easel.token}")
        check_unreachable(refused.value.response.body.decode(), "/ws/chat")
        with easel.stranger() as browser:  # who signs in meanwhile is let in, and recorded afterwards
            assert browser.get("/", params={"token": easel.token}).status_code == 303
        server.start()
        wait_for_sync(lambda: easel.get("/readyz").status_code == 200, within=60, what="ready again")
        record = latest(easel, "database.unavailable")
        assert record["storage_class"] == "ops"
        assert record["details"]["exception"]
        assert latest(easel, "sign_in.succeeded")["details"]["by"] == "link"
        assert easel.do(snapshot(easel)), "what was told late is part of the one chain"


def check_unreachable(text: str, what: str) -> None:
    check_nothing_inside(text, what)
    for word in ("5432", "127.0.0.1", "refused", "socket", "postgres", "Connection"):
        assert word not in text, f"{what}: {text}"


async def snapshot(easel: LiveEasel) -> bool:
    steps = [reached async for reached in verify(easel.instances[0].opened.audit)]
    return steps[-1].is_end
