"""Runs over HTTP, on both stores: start, find, list and cancel them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.edges.http.live import WAITING, new_session, script
from tests.requirements import case, rule

if TYPE_CHECKING:
    from tests.edges.http.live import LiveEasel


# --- starting -----------------------------------------------------------------------------------------------


@rule("RX-31")
def test_run_is_stored_before_the_response(easel: LiveEasel) -> None:
    session = new_session()
    first = easel.start(WAITING, session)
    # Queued behind the first, so that no worker starts it.
    answer = easel.post("/api/runs", {"session_id": session, "message": "noop"})
    second = answer.json()["run_id"]
    assert (answer.status_code, answer.headers["content-type"]) == (202, "application/json")
    assert answer.json() == {"run_id": second, "status": "queued"}
    assert second.startswith("run_")
    assert easel.sql(f"select status, input_text from runs where run_id = '{second}'") == [
        {"status": "queued", "input_text": "noop"}
    ]
    easel.cancel(second)
    easel.cancel(first)


@rule("RX-31")
def test_any_message_text_and_plain_session_name_is_stored_as_sent(easel: LiveEasel) -> None:
    for name in ("a", "A.b_c:d-9", "agent:main:x", "9" * 128):
        assert easel.view(easel.start("noop", name))["session_id"] == name
    message = (
        "line\r\nline\ttab \u2028 e\u0301 \U0001f469\u200d\U0001f680 \x01\x7f \ufeff {{input.x}} <img "
        "onerror=1> \\u0000 %00"
    )
    assert easel.view(easel.start(message))["input_text"] == message


# --- finding ------------------------------------------------------------------------------------------------


@rule("RX-32")
def test_run_shows_its_current_status(easel: LiveEasel) -> None:
    session = new_session()
    active, waiting = easel.start(WAITING, session), easel.start("noop", session)
    easel.cancel(waiting)
    easel.cancel(active)
    easel.events(active)
    failed = easel.finish(script({"fail": "no luck"}))
    assert [easel.view(run_id)["status"] for run_id in (active, waiting, easel.finish(), failed)] == [
        "cancelled",
        "cancelled",
        "completed",
        "failed",
    ]
    assert "no luck" in easel.view(failed)["error_message"]


def test_timestamps_are_utc_and_in_order(easel: LiveEasel) -> None:
    run = easel.view(easel.finish())
    assert all(run[name].endswith("Z") for name in ("created_at", "started_at", "finished_at"))
    created, started, finished = (
        datetime.fromisoformat(run[name]) for name in ("created_at", "started_at", "finished_at")
    )
    assert created <= started <= finished
    assert abs(datetime.now(UTC) - finished) < timedelta(minutes=1)


# --- listing ------------------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first_and_by_session(easel: LiveEasel) -> None:
    session = new_session()
    mine = [easel.finish("noop", session) for _ in range(3)]
    other = easel.finish()
    everything = [run["run_id"] for run in easel.get("/api/runs").json()["runs"]]
    assert everything[:4] == [other, *reversed(mine)]
    of_session = easel.get("/api/runs", params={"session_id": session}).json()
    assert [run["run_id"] for run in of_session["runs"]] == list(reversed(mine))
    assert "next" not in of_session


def test_listed_run_equals_the_run_itself(easel: LiveEasel) -> None:
    run_id = easel.finish(script({"fail": "because"}))
    assert easel.get("/api/runs", params={"limit": 1}).json()["runs"] == [easel.view(run_id)]


STATUSES = [
    ("completed", {"completed"}),
    ("failed", {"failed"}),
    ("failed,cancelled", {"failed", "cancelled"}),
    ("queued, running", {"queued", "running"}),
    ("", {"completed", "failed", "cancelled", "queued", "running"}),
]


@pytest.mark.parametrize("statuses, expected", STATUSES)
def test_runs_are_listed_by_status(easel: LiveEasel, statuses: str, expected: set[str]) -> None:
    session = new_session()
    easel.finish("noop", session)
    easel.finish(script({"fail": "x"}), session)
    active = easel.start(WAITING, session)
    easel.stream_start(active)
    cancelled, waiting = easel.start("noop", session), easel.start("noop", session)
    easel.cancel(cancelled)
    try:
        found = easel.get("/api/runs", params={"session_id": session, "statuses": statuses}).json()["runs"]
        assert {run["status"] for run in found} == expected
        assert len(found) == len(expected)
    finally:
        easel.cancel(waiting)
        easel.cancel(active)


def test_pages_of_a_listing_have_every_run_once_despite_new_runs(easel: LiveEasel) -> None:
    session = new_session()
    started = [easel.start("noop", session) for _ in range(7)]
    seen: list[str] = []
    query = {"session_id": session, "limit": "3"}
    while True:
        page = easel.get("/api/runs", params=query).json()
        seen += [run["run_id"] for run in page["runs"]]
        if "next" not in page:
            break
        assert len(page["runs"]) == 3
        query["before"] = str(page["next"])
        easel.start("noop", session)  # newer than the cursor: it must not shift the pages
    assert seen == list(reversed(started))


# --- cancelling ---------------------------------------------------------------------------------------------


@rule("RX-12", "RX-27")
def test_cancel_of_a_running_run_returns_at_once_and_ends_it(easel: LiveEasel) -> None:
    run_id = easel.start(WAITING)
    easel.stream_start(run_id)
    answer = easel.cancel(run_id)
    assert answer.status_code == 202
    assert answer.json()["run_id"] == run_id
    assert answer.json()["cancel_requested_at"]
    requested_at = easel.sql(f"select cancel_requested_at from runs where run_id = '{run_id}'")[0][
        "cancel_requested_at"
    ]
    assert requested_at is not None
    last = easel.events(run_id)
    assert [(event.type, event.data.get("status")) for event in last[-3:]] == [
        ("message.completed", "cancelled"),
        ("run.status", "cancelled"),
        ("done", "cancelled"),
    ]
    assert easel.view(run_id)["status"] == "cancelled"
    assert easel.view(run_id)["last_seq"] == last[-1].seq
    again = easel.cancel(run_id)
    assert (again.status_code, again.json()["error"]["name"]) == (409, "RUN_FINISHED")
    assert again.json()["error"]["details"] == {"run_id": run_id, "status": "cancelled"}


@rule("RS-37", "RX-12")
def test_cancel_of_a_queued_run_ends_it_at_once(easel: LiveEasel) -> None:
    session = new_session()
    active = easel.start(WAITING, session)
    queued = easel.start("noop", session)
    answer = easel.cancel(queued)
    assert (answer.status_code, answer.json()["status"]) == (202, "cancelled")
    assert answer.json()["finished_at"]
    assert [(event.seq, event.type) for event in easel.events(queued)] == [(1, "run.status"), (2, "done")]
    easel.cancel(active)


# --- idempotency --------------------------------------------------------------------------------------------


def test_idempotency_key_in_header_and_body_is_the_same_key(easel: LiveEasel) -> None:
    body = {"session_id": new_session(), "message": "noop"}
    by_header = easel.post("/api/runs", body, headers={"Idempotency-Key": key(body)})
    by_field = easel.post("/api/runs", {**body, "idempotency_key": key(body)})
    by_both = easel.post(
        "/api/runs", {**body, "idempotency_key": key(body)}, headers={"Idempotency-Key": key(body)}
    )
    assert by_header.status_code == by_field.status_code == by_both.status_code == 202
    assert by_header.json() == by_field.json() == by_both.json()
    other = {**body, "idempotency_key": "one"}
    assert easel.post("/api/runs", other, headers={"Idempotency-Key": "two"}).status_code == 400


def key(body: dict[str, str]) -> str:
    return f"key of {body['session_id']}"


@pytest.mark.parametrize("change", [{"message": "another"}, {"session_id": "another-session"}])
def test_idempotency_key_with_another_body_is_refused(easel: LiveEasel, change: dict[str, str]) -> None:
    body = {"session_id": new_session(), "message": "noop"}
    easel.post("/api/runs", body, headers={"Idempotency-Key": key(body)})
    count = easel.sql("select count(*) as n from runs")
    answer = easel.post("/api/runs", {**body, **change}, headers={"Idempotency-Key": key(body)})
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == 409
    assert answer.json()["error"]["name"] == "IDEMPOTENCY_CONFLICT"
    assert easel.sql("select count(*) as n from runs") == count


@pytest.mark.parametrize("bad", ["", "x" * 201, "tab\there"])
def test_invalid_idempotency_key_is_refused_in_header_and_body(easel: LiveEasel, bad: str) -> None:
    body = {"session_id": new_session(), "message": "noop"}
    by_field = easel.post("/api/runs", {**body, "idempotency_key": bad})
    by_header = easel.post("/api/runs", body, headers={"Idempotency-Key": bad})
    assert (by_field.status_code, by_header.status_code) == (400, 400)


@case("J10")
@rule("RX-03")
def test_fifty_concurrent_requests_with_one_key_start_one_run(two_edges: LiveEasel) -> None:
    for attempt in range(4):
        body = {
            "session_id": new_session(),
            "message": script({"say": f"{attempt}"}),
            "idempotency_key": new_session(),
        }
        barrier = threading.Barrier(25, timeout=30)

        def send(
            number: int, body: dict[str, str] = body, barrier: threading.Barrier = barrier
        ) -> tuple[int, str]:
            barrier.wait()
            answer = two_edges.post("/api/runs", body, at=number % 2)
            return answer.status_code, answer.text

        with ThreadPoolExecutor(25) as pool:
            answers = set(pool.map(send, range(50)))
        assert len(answers) == 1
        assert next(iter(answers))[0] == 202
        assert len(two_edges.get("/api/runs", params={"session_id": body["session_id"]}).json()["runs"]) == 1
        changed = two_edges.post("/api/runs", {**body, "message": "other"}, at=1)
        assert changed.status_code == 409


@rule("RX-03")
def test_every_instance_shows_and_cancels_a_run(two_edges: LiveEasel) -> None:
    run_id = two_edges.start(WAITING, at=0)
    two_edges.stream_start(run_id, at=1)
    assert two_edges.view(run_id, at=0) == two_edges.view(run_id, at=1)
    assert two_edges.cancel(run_id, at=1).status_code == 202
    assert two_edges.events(run_id, at=0) == two_edges.events(run_id, at=1)
    assert two_edges.view(run_id, at=0) == two_edges.view(run_id, at=1)
