"""The audit trail over HTTP: administrators read it, and no transport shows it to anyone else."""

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

from easel.core.audit.record import ACTIONS
from easel.errors import ModelFailed, ToolFailed
from easel.host.audit.chain import verify
from easel.host.runs.queue import RunQueue
from easel.ids import new_run_id
from easel.llm import build as builders
from easel.llm.scripted import ScriptedModel
from tests.edges.http.live import LiveEasel, cookie_name, new_session, script
from tests.host.conftest import TestTool
from tests.requirements import case, rule
from tests.support.postgres import Postgres
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from easel.core.principal import Principal
    from easel.core.run.conversation import Conversation, Part
    from easel.core.run.run import Run
    from easel.core.tool.definition import ToolDefinition

SOURCE = Path(__file__).resolve().parents[3] / "src" / "easel"
KEY = "sk-live-51HxQq9aZkPlanted"
FAILING_RUN = new_run_id()
# Details of an exception that only operators may read: file and function names, its message, and the key.
INTERNAL_DETAILS = (
    "Traceback",
    ".py",
    "raise_deep_inside",
    "db.internal",
    "RuntimeError: ",
    "planted",
    KEY,
    "asyncpg",
    "sqlite3.",
    "Errno",
)


def raise_deep_inside() -> None:
    raise RuntimeError(f"planted: 401 for api_key={KEY} at db.internal:5432")


async def raise_error(_: Mapping[str, Any]) -> None:
    raise_deep_inside()


async def fail(_: Mapping[str, Any]) -> None:
    raise ToolFailed(tool="probe__Fail", reason=f"the service refused the key {KEY}")


class FailingModel(ScriptedModel):
    """The scripted model, which raises or fails if the message says so."""

    async def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        if conversation.user_message == "raise":
            raise_deep_inside()
        if conversation.user_message == "fail":
            raise ModelFailed(reason=f"401: incorrect API key provided: {KEY}")
        async for part in super().reply(conversation, tools):
            yield part


async def get_or_raise(self: RunQueue, principal: Principal, run_id: str, get: Any = RunQueue.get) -> Run:
    if run_id == FAILING_RUN:
        raise_deep_inside()
    return await get(self, principal, run_id)


@pytest.fixture(scope="module")
def failing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """Easel with a tool, a model and a route that raise, with internal details in the message."""
    tools = [TestTool("probe__Break", raise_error), TestTool("probe__Fail", fail)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builders, "ScriptedModel", FailingModel)
        patch.setattr(RunQueue, "get", get_or_raise)
        with LiveEasel(tmp_path_factory.mktemp("easel"), tools=tools) as live:
            yield live


def records(easel: LiveEasel, **filters: Any) -> list[dict[str, Any]]:
    answer = easel.get("/api/audit", params=filters)
    assert answer.status_code == 200, answer.text
    return answer.json()["records"]


def latest(easel: LiveEasel, action: str, **fields: Any) -> dict[str, Any]:
    """Wait for a record of this action with these fields or details, and return the newest."""

    def found() -> list[dict[str, Any]]:
        return [
            record
            for record in records(easel, action=action)
            if fields.items() <= {**record, **record.get("details", {})}.items()
        ]

    wait_for_sync(lambda: bool(found()), within=20, what=f"{action} is recorded")
    return found()[0]


# --- reading ------------------------------------------------------------------------------------------------


@rule("CC-14", "CC-06")
def test_administrator_reads_records(easel: LiveEasel) -> None:
    session = new_session()
    easel.post("/api/sessions", {"session_id": session})
    record = latest(easel, "session.created", subject=session)
    assert set(record) == {"seq", "at", "storage_class", "action", "actor", "subject", "metadata", "hash"}
    assert record["actor"] == {"account_id": "owner", "user_id": "owner", "name": "owner", "kind": "person"}
    assert (record["storage_class"], record["metadata"]) == ("audit", {"visibility": "system"})
    assert datetime.now(UTC) - datetime.fromisoformat(record["at"]) < timedelta(minutes=1)
    [stored] = easel.sql(f"select record, hash from audit where seq = {record['seq']}")
    assert stored["hash"] == record.pop("hash")
    assert json.loads(stored["record"]) == record


def test_records_are_paged_newest_first_and_filtered(easel: LiveEasel) -> None:
    for _ in range(5):
        easel.post("/api/sessions", {"session_id": new_session()})
    first = easel.get("/api/audit", params={"limit": 2}).json()
    second = easel.get("/api/audit", params={"limit": 2, "before": first["next"]}).json()
    seqs = [record["seq"] for record in first["records"] + second["records"]]
    assert seqs == sorted(seqs, reverse=True)
    assert len(set(seqs)) == 4
    assert {record["action"] for record in records(easel, action="session.created")} == {"session.created"}
    assert {record["storage_class"] for record in records(easel, storage_class="audit")} == {"audit"}
    now = datetime.now(UTC)
    assert records(easel, since=(now + timedelta(hours=1)).isoformat().replace("+00:00", "Z")) == []
    assert records(easel, until="2020-01-01T00:00:00Z") == []
    assert "next" not in easel.get("/api/audit", params={"until": "2020-01-01T00:00:00Z"}).json()


INVALID_QUERIES = [
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
    "time", ["0001-01-01T00:00:00Z", "0001-01-01T14:00:00%2B14:00", "9999-12-31T23:59:59Z"]
)
def test_first_and_last_representable_time_are_accepted(easel: LiveEasel, time: str) -> None:
    assert easel.get(f"/api/audit?since={time}&until={time}").json() == {"records": []}


@pytest.mark.parametrize("query", INVALID_QUERIES)
def test_invalid_query_is_refused(easel: LiveEasel, query: str) -> None:
    answer = easel.get(f"/api/audit?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["name"] == "BAD_INPUT"


def test_unreadable_record_is_listed(small_easel: LiveEasel) -> None:
    small_easel.post("/api/sessions", {"session_id": new_session()})
    seq = records(small_easel)[0]["seq"]
    small_easel.sql(f"update audit set record = '{{\"seq\":' where seq = {seq}")
    [record] = [record for record in records(small_easel) if record["seq"] == seq]
    assert record["details"] == {"unreadable": True}


# --- what is recorded ---------------------------------------------------------------------------------------


@case("P6")
def test_sign_in_and_sign_out_are_recorded_without_the_token(easel: LiveEasel) -> None:
    with easel.stranger() as browser:
        cookie = browser.get("/", params={"token": easel.token}).cookies[cookie_name(easel.base_url)]
        assert latest(easel, "sign_in.succeeded")["details"] == {"by": "link", "address": "127.0.0.1"}
        browser.post("/sign-in", data={"token": easel.token})
        assert latest(easel, "sign_in.succeeded")["details"]["by"] == "form"
        browser.post("/sign-out")
        assert latest(easel, "sign_out")["actor"] == {
            "account_id": "owner",
            "user_id": "owner",
            "name": "owner",
            "kind": "person",
        }
        before = len(records(easel, action="sign_out"))
        browser.cookies.clear()
        browser.post("/sign-out")
    assert len(records(easel, action="sign_out")) == before, "a browser that is not signed in cannot sign out"
    everything = json.dumps(easel.sql("select record from audit"))
    assert easel.token not in everything
    assert cookie not in everything


WRONG_CREDENTIALS = [
    ({"url": "/", "params": {"token": "wrong-token-1"}}, "link"),
    ({"method": "POST", "url": "/sign-in", "data": {"token": "wrong-token-2"}}, "form"),
    ({"url": "/api/runs", "headers": {"Authorization": "Bearer wrong-token-3"}}, "token"),
    ({"url": "/api/runs"}, "cookie"),
]


@case("P6")
@pytest.mark.parametrize("request_, by", WRONG_CREDENTIALS, ids=[by for _, by in WRONG_CREDENTIALS])
def test_wrong_token_is_recorded_without_its_value(
    small_easel: LiveEasel, request_: dict[str, Any], by: str
) -> None:
    if by == "cookie":
        request_ = {**request_, "headers": {"Cookie": f"{cookie_name(small_easel.base_url)}=wrong-token-4"}}
    with small_easel.stranger() as stranger:
        assert stranger.request(**{"method": "GET", **request_}).status_code == 401
        record = latest(small_easel, "sign_in.failed", by=by)
    assert record["actor"] == {"account_id": "", "name": "nobody"}
    assert record["details"]["address"] == "127.0.0.1"
    assert "wrong-token" not in json.dumps(small_easel.sql("select record from audit"))


def test_request_without_credentials_is_not_recorded_as_a_failed_sign_in(tmp_path: Path) -> None:
    with LiveEasel(tmp_path, with_worker=False) as easel, easel.stranger() as stranger:
        stranger.get("/api/runs", headers={"Authorization": "Bearer wrong"})
        assert stranger.get("/api/runs").status_code == 401
        stranger.get("/api/runs", headers={"Cookie": f"{cookie_name(easel.base_url)}=wrong"})
        latest(easel, "sign_in.failed", by="cookie")  # the ones before are counted by then
        assert sum(record["details"]["count"] for record in records(easel, action="sign_in.failed")) == 2


@case("R4")
def test_many_wrong_tokens_are_counted_in_a_few_records(tmp_path: Path) -> None:
    guesses = 100
    with LiveEasel(tmp_path, with_worker=False) as easel, easel.stranger() as stranger:
        started_at = time.monotonic()
        for nth in range(guesses):
            stranger.get("/api/runs", headers={"Authorization": f"Bearer guess-{nth}"})

        def counted() -> int:
            return sum(
                record["details"]["count"] for record in records(easel, action="sign_in.failed", limit=200)
            )

        wait_for_sync(lambda: counted() == guesses, within=20, what="every guess is counted")
        assert len(records(easel, action="sign_in.failed", limit=200)) <= time.monotonic() - started_at + 2


@case("O7")
@rule("CC-05")
@pytest.mark.parametrize(
    "headers, error",
    [({"Origin": "https://evil.example"}, "FORBIDDEN"), ({"Host": "evil.example"}, "WRONG_HOST")],
    ids=["origin", "host"],
)
def test_refusal_by_a_guardrail_is_recorded(easel: LiveEasel, headers: dict[str, str], error: str) -> None:
    path = f"/api/runs/{new_run_id()}"
    assert easel.get(path, headers=headers).status_code in (403, 421)
    record = latest(easel, "guardrail.refused", path=path)
    assert (record["storage_class"], record["details"]["error"]) == ("audit", error)


@rule("CC-05")
def test_slow_response_is_recorded_and_not_shown_to_the_client(tmp_path: Path) -> None:
    with LiveEasel(tmp_path, settings={"slow_seconds": 0.000_1}) as easel:
        answer = easel.get("/api/tools")
        record = latest(easel, "http.slow", route="/api/tools")
        assert record["storage_class"] == "ops"
        assert record["details"]["seconds"] > 0
        assert not {"server-timing", "x-response-time", "x-process-time"} & set(answer.headers)
        easel.finish()  # reads a stream; its records are stored when Easel has stopped
        easel.get(easel.ask("POST", "/api/artifacts", content=b"bytes").json()["uri"])
    with contextlib.closing(sqlite3.connect(tmp_path / "easel.db")) as database:
        routes = {
            json.loads(record)["details"]["route"]
            for (record,) in database.execute("select record from audit where action = 'http.slow'")
        }
    assert {"/api/tools", "/api/runs"} <= routes
    of_the_client = {"/api/runs/{run_id}/events", "/api/artifacts", "/api/artifacts/{artifact_id}"}
    assert not routes & of_the_client, "the client determines how long they take"


def used_actions() -> dict[str, str]:
    """Return every action that the source records, and where."""
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
                    func=ast.Name("to_host_error"), args=[_, owner, _, ast.Constant(value=str(action))]
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


def test_every_recorded_action_is_in_the_table() -> None:
    used = used_actions()
    assert {action: where for action, where in used.items() if action not in ACTIONS} == {}
    assert {"sign_out", "sign_in.failed", "http.error", "http.slow", "tool.error", "run.error"} <= set(used)


# --- exceptions ---------------------------------------------------------------------------------------------


def check_no_internal_details(text: str, what: str) -> None:
    for detail in INTERNAL_DETAILS:
        assert detail not in text, f"{what}: {detail} in {text[:2000]}"


def all_responses(easel: LiveEasel, run_id: str, session: str) -> dict[str, str]:
    """Return everything that a user can read of a run, on every transport and in debug mode."""
    responses = {
        f"{path}{query}": easel.get(f"{path}{query}").text
        for path in (f"/api/runs/{run_id}/events", f"/sse/run/{run_id}")
        for query in ("", "?debug=1")
    }
    responses |= {
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
    return {**responses, "/ws/chat": "\n".join(frames)}


@rule("CC-05", "CC-13", "RS-06")
@case("P6")
@pytest.mark.parametrize(
    "message, action",
    [
        (script({"call": "probe__Break", "args": {}}, {"say": "and on"}), "tool.error"),
        ("raise", "run.error"),
    ],
    ids=["a tool", "the model"],
)
def test_exception_in_a_run_shows_no_internal_details_to_the_user(
    failing: LiveEasel, message: str, action: str
) -> None:
    session = new_session()
    run_id = failing.finish(message, session)
    for what, text in all_responses(failing, run_id, session).items():
        check_no_internal_details(text, what)
    record = latest(failing, action, subject=run_id)
    assert record["storage_class"] == "ops"
    details = record["details"]
    assert details["exception"] == "RuntimeError"
    assert "db.internal:5432" in details["message"]
    assert details["traceback"].startswith("Traceback (most recent call last)")
    assert "in raise_deep_inside" in details["traceback"]
    assert KEY not in json.dumps(record)
    if message == "raise":
        assert details["reference"] in failing.view(run_id)["error_message"], "it identifies the record"


@case("P6")
@pytest.mark.parametrize(
    "message", ["fail", script({"call": "probe__Fail", "args": {}})], ids=["the model", "a tool"]
)
def test_failure_message_is_redacted(failing: LiveEasel, message: str) -> None:
    session = new_session()
    run_id = failing.finish(message, session)
    for what, text in all_responses(failing, run_id, session).items():
        assert KEY not in text, what
    assert "key" in failing.stream(run_id).text, "the reason stays readable"
    assert KEY not in json.dumps(failing.sql("select record from audit"))


@rule("CC-05")
@case("P6")
def test_exception_in_a_route_shows_only_a_reference_to_the_client(failing: LiveEasel) -> None:
    answer = failing.get(f"/api/runs/{FAILING_RUN}")
    assert answer.status_code == 500
    check_no_internal_details(answer.text, "the response")
    reference = answer.json()["error"]["details"]["reference"]
    record = latest(failing, "http.error", reference=reference)
    assert record["actor"]["name"] == "owner"
    assert record["details"]["path"] == f"/api/runs/{FAILING_RUN}"
    assert "db.internal:5432" in record["details"]["message"]
    assert "in raise_deep_inside" in record["details"]["traceback"]
    assert KEY not in json.dumps(record)


@case("R6")
def test_control_characters_of_a_request_are_escaped_in_records(failing: LiveEasel) -> None:
    failing.get("/api/runs/%0d%0aforged%1b%5b31m%c2%9b%e2%80%a8", headers={"Origin": "https://evil.example"})
    title = "\r\n\x1b[31m" * 10_000
    session = new_session()
    failing.post("/api/sessions", {"session_id": session})
    failing.ask("PATCH", f"/api/sessions/{session}", json={"title": title})
    latest(failing, "guardrail.refused")
    for row in failing.sql("select record from audit"):
        assert row["record"].isprintable(), row["record"][:500]
        assert len(row["record"]) < 6_000


# --- database unavailable -----------------------------------------------------------------------------------


@rule("CC-05")
@case("D1")
def test_unavailable_database_leaks_nothing_and_is_recorded_afterwards(tmp_path: Path) -> None:
    with (
        Postgres(fsync=False) as server,
        LiveEasel(tmp_path, server.create_database(), settings={"claim_seconds": 2.0}) as easel,
    ):
        session = new_session()
        run_id = easel.finish("noop", session)
        server.stop("immediate")
        wait_for_sync(lambda: easel.get("/readyz").status_code == 503, within=60, what="/readyz notices")
        requests = [
            ("GET", f"/api/runs/{run_id}"),
            ("GET", f"/api/runs/{run_id}/events"),
            ("GET", f"/sse/run/{run_id}"),
            ("GET", "/api/audit"),
        ]
        requests += [
            ("POST", f"/api/runs/{run_id}/cancel"),
            ("DELETE", f"/api/sessions/{session}"),
            ("GET", f"/api/sessions/{session}/messages"),
        ]
        for method, path in requests:
            answer = easel.ask(method, path)
            assert answer.status_code == 503, (path, answer.text)
            check_no_database_details(answer.text, path)
        with pytest.raises(InvalidStatus) as refused:
            connect(easel.base_url.replace("http", "ws", 1) + f"/ws/chat/{session}?token={easel.token}")
        check_no_database_details(refused.value.response.body.decode(), "/ws/chat")
        with easel.stranger() as browser:  # is refused now, and recorded afterwards
            assert browser.get("/", params={"token": easel.token}).status_code == 503
            assert browser.get("/", params={"token": "wrong"}).status_code == 401
        server.start()
        wait_for_sync(lambda: easel.get("/readyz").status_code == 200, within=60, what="ready again")
        record = latest(easel, "database.unavailable")
        assert record["storage_class"] == "ops"
        assert record["details"]["exception"]
        assert latest(easel, "sign_in.failed")["details"]["by"] == "link"
        assert easel.do(is_chain_intact(easel)), "late records are part of the chain"


def check_no_database_details(text: str, what: str) -> None:
    check_no_internal_details(text, what)
    for word in ("5432", "127.0.0.1", "refused", "socket", "postgres", "Connection"):
        assert word not in text, f"{what}: {text}"


async def is_chain_intact(easel: LiveEasel) -> bool:
    steps = [step async for step in verify(easel.instances[0].opened.audit)]
    return steps[-1].is_end
