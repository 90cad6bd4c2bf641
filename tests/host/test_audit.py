"""How things reach the audit trail: at once, soon, or counted; and that nobody is harmed by a store that is away."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import structlog

from easel.core.audit.redaction import HIDDEN
from easel.core.principal import ANONYMOUS, THE_OWNER
from easel.core.run.conversation import ToolCall
from easel.core.tool.context import ToolContext
from easel.errors import BadInput, ModelFailed, ToolFailed, Unavailable
from easel.host import audit as story
from easel.host.audit import Audit, agent_of, verify
from easel.host.tools.registry import ToolRegistry
from easel.ids import OWNER, CallId
from tests.host.conftest import TestTool
from tests.requirements import case, rule
from tests.support.waiting import TIMEOUT_SECONDS, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from easel.core.audit.chain import End, Link
    from easel.core.audit.record import Entry
    from easel.host.ports import AuditStore
    from tests.host.conftest import Bench

KEY = "sk-live-51HxQq9aZkPlanted"


class FaultyStore:
    """A real chain that can be away, break, or be slow to answer."""

    def __init__(self, behind: AuditStore) -> None:
        self.behind = behind
        self.is_away = False
        self.is_broken = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked = 0

    async def append(self, entries: Sequence[Entry]) -> None:
        self.asked += 1
        await self.may_answer.wait()
        if self.is_away:
            raise Unavailable(what="The database")
        if self.is_broken:
            raise RuntimeError("no such table: audit")
        await self.behind.append(entries)

    async def get_end(self) -> End:
        return await self.behind.get_end()

    async def list_after(self, seq: int, last: int, limit: int) -> list[Link]:
        return await self.behind.list_after(seq, last, limit)

    async def list_records(self, **filters: Any) -> list[Link]:
        return await self.behind.list_records(**filters)


@pytest.fixture
def store(bench: Bench) -> FaultyStore:
    return FaultyStore(bench.database.audit)


@pytest.fixture(autouse=True)
def no_time_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "GATHER_SECONDS", 0.01)
    monkeypatch.setattr(story, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(
        story, "CLOSE_SECONDS", TIMEOUT_SECONDS
    )  # for a disk that is slow; whoever means a store that is away says so


@pytest_asyncio.fixture
async def audit(store: FaultyStore) -> AsyncIterator[Audit]:
    opened = Audit(store, secrets=["the owner's own words"], slow_seconds=0.5)
    yield opened
    await opened.close()


@pytest.fixture
def logged() -> Iterator[Sequence[Mapping[str, Any]]]:
    with structlog.testing.capture_logs() as kept:
        yield kept


def only_logged(logged: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [json.loads(line["record"]) for line in logged if line["event"] == "audit.only_logged"]


async def records(store: FaultyStore) -> list[dict[str, Any]]:
    return [json.loads(link.record) for link in await store.list_after(0, 2**62, 100_000)]


async def soon(holds: Callable[[], bool]) -> None:
    async def is_so() -> bool:
        return holds()

    await wait_for(is_so)


async def stored(store: FaultyStore, count: int) -> list[dict[str, Any]]:
    async def are_there() -> bool:
        return len(await records(store)) >= count

    await wait_for(are_there)
    found = await records(store)
    assert len(found) == count
    return found


# --- at once ----------------------------------------------------------------------------------------------------------


@rule("CC-06")
async def test_what_is_recorded_is_durable_when_it_returns(audit: Audit, store: FaultyStore) -> None:
    await audit.record(THE_OWNER, "session.deleted", subject="main", details={"runs": 3})
    [record] = await records(store)
    assert (record["action"], record["subject"], record["details"]) == (
        "session.deleted",
        "main",
        {"runs": 3},
    )
    assert record["actor"] == {"user_id": "owner", "name": "owner"}


async def test_a_record_that_the_store_cannot_take_now_fails_nobody_and_is_stored_when_it_is_back(
    audit: Audit, store: FaultyStore
) -> None:
    store.is_away = True
    await audit.record(THE_OWNER, "sign_out")
    assert await records(store) == []
    store.is_away = False
    [record] = await stored(store, 1)
    assert record["action"] == "sign_out"


async def test_an_action_that_does_not_exist_is_a_mistake_that_shows(
    audit: Audit, logged: Sequence[Mapping[str, Any]]
) -> None:
    with pytest.raises(KeyError):
        await audit.record(THE_OWNER, "session.danced")
    audit.note(THE_OWNER, "session.danced")
    assert [line["event"] for line in logged] == ["audit.not_noted"]


# --- soon -------------------------------------------------------------------------------------------------------------


async def test_notes_that_come_together_are_stored_together_and_in_order(
    audit: Audit, store: FaultyStore
) -> None:
    for nth in range(150):
        audit.note(None, "worker.error", subject=str(nth))
    found = await stored(store, 150)
    assert [record["subject"] for record in found] == [str(nth) for nth in range(150)]
    assert found[0]["actor"] == {"user_id": "easel", "name": "easel"}
    assert store.asked == 1


async def test_a_note_never_waits_for_the_store(audit: Audit, store: FaultyStore) -> None:
    store.may_answer.clear()
    audit.note(None, "worker.error", subject="1")
    await soon(lambda: store.asked > 0)
    audit.note(None, "worker.error", subject="2")  # returns, though the store is busy with the first
    assert await records(store) == []
    store.may_answer.set()
    assert [record["subject"] for record in await stored(store, 2)] == ["1", "2"]


async def test_a_note_never_fails_whatever_it_is_given(
    audit: Audit, store: FaultyStore, logged: Sequence[Mapping[str, Any]]
) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even that")

    audit.note(None, "worker.error", details={"value": Unspeakable()})
    audit.record_exception(None, "worker.error", Unspeakable(), reference="ref_1")
    assert [line["event"] for line in logged] == ["audit.not_noted", "audit.not_told"]
    [record] = await stored(store, 1)
    assert record["details"] == {"reference": "ref_1"}


@case("D1")
async def test_notes_wait_for_a_store_that_is_away_and_lose_nothing(audit: Audit, store: FaultyStore) -> None:
    store.is_away = True
    for nth in range(500):
        audit.note(None, "worker.error", subject=str(nth))
    await soon(lambda: store.asked >= 3)
    store.is_away = False
    assert [record["subject"] for record in await stored(store, 500)] == [str(nth) for nth in range(500)]


async def test_what_does_not_fit_is_logged_and_the_trail_says_how_much(
    audit: Audit, store: FaultyStore, monkeypatch: pytest.MonkeyPatch, logged: Sequence[Mapping[str, Any]]
) -> None:
    monkeypatch.setattr(story, "MAX_WAITING", 10)
    store.is_away = True
    for nth in range(25):
        audit.note(None, "worker.error", subject=str(nth))
    store.is_away = False
    found = await stored(store, 11)
    assert [record.get("subject") for record in found[:10]] == [str(nth) for nth in range(10)]
    assert (found[10]["action"], found[10]["details"]) == ("audit.overflowed", {"count": 15})
    assert [record["subject"] for record in only_logged(logged)] == [str(nth) for nth in range(10, 25)]
    audit.note(None, "worker.error")
    assert (await stored(store, 12))[11]["action"] == "worker.error", "the gap is told once"


async def test_a_store_that_refuses_loses_the_notes_to_the_log_and_goes_on(
    audit: Audit, store: FaultyStore, logged: Sequence[Mapping[str, Any]]
) -> None:
    store.is_broken = True
    audit.note(None, "worker.error", subject="lost")
    await soon(lambda: bool(only_logged(logged)))
    store.is_broken = False
    audit.note(None, "worker.error", subject="kept")
    assert [record["subject"] for record in await stored(store, 1)] == ["kept"]
    assert [record["subject"] for record in only_logged(logged)] == ["lost"]
    assert "audit.not_stored" in [line["event"] for line in logged]


# --- closing ----------------------------------------------------------------------------------------------------------


async def test_what_waits_is_stored_when_the_process_ends(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story, "GATHER_SECONDS", 60)
    audit = Audit(store)
    for nth in range(450):
        audit.note(None, "worker.error", subject=str(nth))
    audit.record_throttled(ANONYMOUS, "sign_in.failed")
    audit.record_throttled(ANONYMOUS, "sign_in.failed")
    await audit.close()
    found = await records(store)
    assert [record.get("subject") for record in found] == [*map(str, range(450)), None, None]
    assert [record["details"]["count"] for record in found[-2:]] == [1, 1]


@pytest.mark.parametrize("is_silent", [False, True], ids=["away", "silent"])
async def test_what_cannot_be_stored_at_the_end_is_logged_and_the_end_comes_soon(
    store: FaultyStore, logged: Sequence[Mapping[str, Any]], monkeypatch: pytest.MonkeyPatch, is_silent: bool
) -> None:
    monkeypatch.setattr(story, "CLOSE_SECONDS", 0.5)
    audit = Audit(store)
    store.is_away = True
    if is_silent:
        store.may_answer.clear()
    audit.note(None, "worker.error", subject="last words", details={"api_key": KEY})
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await audit.close()
    audit.note(None, "worker.error", subject="too late")
    assert [record["subject"] for record in only_logged(logged)] == ["last words", "too late"]
    assert KEY not in str(logged)


# --- counted ----------------------------------------------------------------------------------------------------------


async def test_a_flood_is_one_record_in_a_while_with_its_count(audit: Audit, store: FaultyStore) -> None:
    for nth in range(1_000):
        audit.record_throttled(ANONYMOUS, "sign_in.failed", details={"nth": nth}, every=0.3)
    [first, rest] = await stored(store, 2)
    assert first["details"] == {"nth": 0, "count": 1}
    assert rest["details"] == {"nth": 999, "count": 999}
    await soon(lambda: not audit._tallies)  # a whole while in which nothing happened
    audit.record_throttled(ANONYMOUS, "sign_in.failed", details={"nth": 1_000}, every=0.3)
    [*_, again] = await stored(store, 3)
    assert again["details"] == {"nth": 1_000, "count": 1}


async def test_one_actors_flood_hides_nothing_of_anothers(audit: Audit, store: FaultyStore) -> None:
    for _ in range(100):
        audit.record_throttled(ANONYMOUS, "guardrail.refused", details={"path": "/noise"})
    audit.record_throttled(THE_OWNER, "guardrail.refused", details={"path": "/mine"})
    audit.record_throttled(ANONYMOUS, "sign_in.failed")
    await audit.close()
    found = {
        (record["actor"]["name"], record["action"], record["details"]["count"])
        for record in await records(store)
    }
    assert found == {
        ("nobody", "guardrail.refused", 1),
        ("nobody", "guardrail.refused", 99),
        ("owner", "guardrail.refused", 1),
        ("nobody", "sign_in.failed", 1),
    }


@rule("CC-05")
async def test_only_what_is_slow_is_told(audit: Audit, store: FaultyStore) -> None:
    audit.slow("append.slow", 0.5, subject="run_1")
    audit.slow("append.slow", 0.501, subject="run_2")
    [record] = await stored(store, 1)
    assert (record["subject"], record["storage_class"], record["details"]) == (
        "run_2",
        "ops",
        {"seconds": 0.501, "count": 1},
    )


# --- what broke -------------------------------------------------------------------------------------------------------


def deep_inside(message: str) -> None:
    raise RuntimeError(message)


@rule("CC-05")
@case("P6")
async def test_what_broke_is_told_with_its_trace_and_without_secrets(
    audit: Audit, store: FaultyStore
) -> None:
    try:
        deep_inside(f"no luck with {KEY}, nor with the owner's own words")
    except RuntimeError as problem:
        audit.record_exception(agent_of(OWNER), "run.error", problem, reference="ref_1", subject="run_1")
    [record] = await stored(store, 1)
    assert record["actor"] == {"user_id": "owner", "name": "agent"}
    details = record["details"]
    assert (details["reference"], details["exception"]) == ("ref_1", "RuntimeError")
    assert details["message"] == f"no luck with {HIDDEN}, nor with {HIDDEN}"
    assert details["traceback"].startswith("Traceback (most recent call last):\n")
    assert "in deep_inside" in details["traceback"]
    assert KEY not in str(record)
    assert "own words" not in str(record)


async def test_a_failure_of_ours_tells_its_name_and_its_cause(audit: Audit, store: FaultyStore) -> None:
    problem = ModelFailed(reason="it is asleep")
    problem.__cause__ = ConnectionRefusedError(111, "refused")
    audit.record_exception(None, "run.failed", problem)
    [record] = await stored(store, 1)
    assert record["details"]["error"] == "MODEL_FAILED"
    assert record["details"]["cause"] == "ConnectionRefusedError: [Errno 111] refused"


@case("P6")
async def test_a_secret_that_becomes_known_later_is_hidden_from_then_on(audit: Audit) -> None:
    assert audit.redacted("rosebud-rosebud") == "rosebud-rosebud"
    audit.add_secret("rosebud-rosebud")
    assert audit.redacted("it is rosebud-rosebud") == f"it is {HIDDEN}"
    assert audit.redacted("the owner's own words") == HIDDEN, "what was known is not forgotten"


# --- the toolbox ------------------------------------------------------------------------------------------------------


async def use(bench: Bench, audit: Audit, tool: TestTool) -> Any:
    await bench.start("noop")
    [claim] = await bench.runs.claim_queued(bench.worker().worker_id, 1, 60, 0)
    box = ToolRegistry([tool], audit=audit, timeout_seconds=5, max_result_bytes=10_000)
    return claim, await box.use(ToolCall(CallId("call_1"), tool.name, {}), ToolContext.of_run(claim))


@rule("CC-05")
@case("P6")
async def test_a_tool_that_breaks_tells_the_model_that_it_did_and_operators_the_rest(
    bench: Bench, audit: Audit, store: FaultyStore
) -> None:
    async def break_down(_: Mapping[str, Any]) -> None:
        deep_inside(f"401 for {KEY} at db.internal:5432")

    claim, result = await use(bench, audit, TestTool("probe__Break", break_down))
    assert result.is_error
    for inside in (KEY, "db.internal", "Traceback", "deep_inside", ".py"):
        assert inside not in str(result.value)
    [record] = await stored(store, 1)
    assert (record["action"], record["subject"], record["details"]["tool"]) == (
        "tool.error",
        claim.run_id,
        "probe__Break",
    )
    assert "db.internal:5432" in record["details"]["message"]
    assert "in deep_inside" in record["details"]["traceback"]
    assert KEY not in str(record)


@case("P6")
async def test_the_reason_why_a_tool_failed_is_told_without_the_key_that_it_quotes(
    bench: Bench, audit: Audit
) -> None:
    async def fail(_: Mapping[str, Any]) -> None:
        raise ToolFailed(tool="probe__Fail", reason=f"the service refused the key {KEY}")

    _, result = await use(bench, audit, TestTool("probe__Fail", fail))
    assert result.value == f"probe__Fail: the service refused the key {HIDDEN}"


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_only_actions_that_exist_can_be_asked_for(audit: Audit) -> None:
    with pytest.raises(BadInput, match=r"sign_in\.failed"):
        await audit.list_records(action="sign_in.faild", limit=10)
    assert await audit.list_records(action="sign_in.failed", limit=10) == []


async def test_verifying_gives_the_place_after_every_page(
    audit: Audit, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story, "PAGE", 10)
    for _ in range(25):
        audit.note(None, "worker.error")
    await stored(store, 25)
    steps = [(reached.seq, reached.last, reached.is_end) async for reached in verify(store)]
    assert steps == [(10, 25, False), (20, 25, False), (25, 25, False), (25, 25, True)]
