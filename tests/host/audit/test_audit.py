"""How records reach the audit trail: at once, queued or throttled, and while the database is unavailable."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import structlog

from easel.core.audit.redaction import HIDDEN
from easel.core.principal import ANONYMOUS
from easel.core.run.conversation import ToolCall
from easel.core.tool.context import ToolContext
from easel.errors import BadInput, ModelFailed, ToolFailed, Unavailable
from easel.host.audit import audit as audit_module
from easel.host.audit import chain as audit_chain
from easel.host.audit.audit import Audit
from easel.host.audit.chain import AuditRetention, verify
from easel.host.tools.registry import ToolRegistry
from easel.ids import OWNER, AccountId, CallId, RunId
from tests.host.conftest import TestTool
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER, agent_of
from tests.support.waiting import TIMEOUT_SECONDS, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from easel.core.audit.chain import ChainEnd, Checkpoint, Link
    from easel.core.audit.record import Entry
    from easel.host.ports import AuditStore
    from tests.host.conftest import RunHarness

KEY = "sk-live-51HxQq9aZkPlanted"


class FaultyStore:
    """A real chain that can be unavailable, fail, or hang."""

    def __init__(self, store: AuditStore) -> None:
        self._store = store
        self.is_unavailable = False
        self.is_failing = False
        self.is_answer_lost = False  # the next append is stored and fails
        self.may_continue = asyncio.Event()
        self.may_continue.set()
        self.append_count = 0

    async def append(self, entries: Sequence[Entry], *, is_repeat: bool = False) -> None:
        self.append_count += 1
        await self.may_continue.wait()
        if self.is_unavailable:
            raise Unavailable(what="The database")
        if self.is_failing:
            raise RuntimeError("no such table: audit")
        await self._store.append(entries, is_repeat=is_repeat)
        if self.is_answer_lost:
            self.is_answer_lost = False
            raise Unavailable(what="The database")

    async def get_checkpoint(self) -> Checkpoint | None:
        return await self._store.get_checkpoint()

    async def signing_key(self) -> str | None:
        return await self._store.signing_key()

    async def shorten(self, checkpoint: Checkpoint) -> int:
        return await self._store.shorten(checkpoint)

    async def get_end(self) -> ChainEnd:
        return await self._store.get_end()

    async def list_after(self, seq: int, last: int, limit: int) -> list[Link]:
        return await self._store.list_after(seq, last, limit)

    async def list_records(self, account_id: AccountId, **filters: Any) -> list[Link]:
        return await self._store.list_records(account_id, **filters)


@pytest.fixture
def store(harness: RunHarness) -> FaultyStore:
    return FaultyStore(harness.database.audit)


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "BATCH_SECONDS", 0.01)
    monkeypatch.setattr(audit_module, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(audit_module, "CLOSE_SECONDS", TIMEOUT_SECONDS)  # for a slow disk


@pytest_asyncio.fixture
async def audit(store: FaultyStore) -> AsyncIterator[Audit]:
    audit = Audit(store, secrets=["the owner's own words"], slow_seconds=0.5)
    yield audit
    await audit.close()


@pytest.fixture
def logged() -> Iterator[Sequence[Mapping[str, Any]]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


def only_logged(logged: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [json.loads(line["record"]) for line in logged if line["event"] == "audit.not_stored"]


async def records(store: FaultyStore) -> list[dict[str, Any]]:
    return [json.loads(link.record) for link in await store.list_after(0, 2**62, 100_000)]


async def wait_for_records(store: FaultyStore, count: int) -> list[dict[str, Any]]:
    async def are_stored() -> bool:
        return len(await records(store)) >= count

    await wait_for(are_stored)
    found = await records(store)
    assert len(found) == count
    return found


# --- record -------------------------------------------------------------------------------------------------


@rule("CC-06")
async def test_record_is_durable_when_it_returns(audit: Audit, store: FaultyStore) -> None:
    await audit.record(THE_OWNER, "session.deleted", subject="main", details={"runs": 3})
    [record] = await records(store)
    assert (record["action"], record["subject"], record["details"]) == (
        "session.deleted",
        "main",
        {"runs": 3},
    )
    assert record["actor"] == {"account_id": "owner", "user_id": "owner", "name": "owner", "kind": "person"}


async def test_record_is_queued_while_the_database_is_unavailable(audit: Audit, store: FaultyStore) -> None:
    store.is_unavailable = True
    await audit.record(THE_OWNER, "sign_out")
    assert await records(store) == []
    store.is_unavailable = False
    [record] = await wait_for_records(store, 1)
    assert record["action"] == "sign_out"


async def test_unknown_action_raises_or_is_logged(audit: Audit, logged: Sequence[Mapping[str, Any]]) -> None:
    with pytest.raises(KeyError):
        await audit.record(THE_OWNER, "session.danced")
    audit.note(THE_OWNER, "session.danced")
    assert [line["event"] for line in logged] == ["audit.note_error"]


# --- note ---------------------------------------------------------------------------------------------------


async def test_notes_are_stored_in_one_batch_and_in_order(audit: Audit, store: FaultyStore) -> None:
    for nth in range(150):
        audit.note(None, "worker.error", subject=str(nth))
    found = await wait_for_records(store, 150)
    assert [record["subject"] for record in found] == [str(nth) for nth in range(150)]
    assert found[0]["actor"] == {"account_id": "", "name": "easel", "kind": "service"}
    assert store.append_count == 1


async def test_note_does_not_wait_for_the_store(audit: Audit, store: FaultyStore) -> None:
    store.may_continue.clear()
    audit.note(None, "worker.error", subject="1")
    await wait_for(lambda: store.append_count > 0)
    audit.note(None, "worker.error", subject="2")  # returns although the store is busy with the first
    assert await records(store) == []
    store.may_continue.set()
    assert [record["subject"] for record in await wait_for_records(store, 2)] == ["1", "2"]


async def test_note_never_raises(
    audit: Audit, store: FaultyStore, logged: Sequence[Mapping[str, Any]]
) -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("__str__ fails")

    audit.note(None, "worker.error", details={"value": UnprintableError()})
    audit.record_exception(None, "worker.error", UnprintableError(), reference="ref_1")
    assert [line["event"] for line in logged] == ["audit.note_error", "audit.describe_error"]
    [record] = await wait_for_records(store, 1)
    assert record["details"] == {"reference": "ref_1"}


@case("D1")
async def test_notes_are_kept_while_the_database_is_unavailable(audit: Audit, store: FaultyStore) -> None:
    store.is_unavailable = True
    for nth in range(500):
        audit.note(None, "worker.error", subject=str(nth))
    await wait_for(lambda: store.append_count >= 3)
    store.is_unavailable = False
    assert [record["subject"] for record in await wait_for_records(store, 500)] == [
        str(nth) for nth in range(500)
    ]


async def test_notes_over_the_queue_limit_are_logged_and_counted_in_the_trail(
    audit: Audit, store: FaultyStore, monkeypatch: pytest.MonkeyPatch, logged: Sequence[Mapping[str, Any]]
) -> None:
    monkeypatch.setattr(audit_module, "MAX_QUEUED", 10)
    store.is_unavailable = True
    for nth in range(25):
        audit.note(None, "worker.error", subject=str(nth))
    store.is_unavailable = False
    found = await wait_for_records(store, 11)
    assert [record.get("subject") for record in found[:10]] == [str(nth) for nth in range(10)]
    assert (found[10]["action"], found[10]["details"]) == ("audit.overflowed", {"count": 15})
    assert [record["subject"] for record in only_logged(logged)] == [str(nth) for nth in range(10, 25)]
    audit.note(None, "worker.error")
    assert (await wait_for_records(store, 12))[11]["action"] == "worker.error", (
        "the overflow is recorded once"
    )


async def test_notes_that_the_store_rejects_are_logged(
    audit: Audit, store: FaultyStore, logged: Sequence[Mapping[str, Any]]
) -> None:
    store.is_failing = True
    audit.note(None, "worker.error", subject="rejected")
    await wait_for(lambda: bool(only_logged(logged)))
    store.is_failing = False
    audit.note(None, "worker.error", subject="stored")
    assert [record["subject"] for record in await wait_for_records(store, 1)] == ["stored"]
    assert [record["subject"] for record in only_logged(logged)] == ["rejected"]
    assert "audit.store_error" in [line["event"] for line in logged]


@rule("CC-06")
@pytest.mark.parametrize("is_queued", [False, True], ids=["record", "note"])
async def test_record_whose_answer_was_lost_is_stored_once(
    audit: Audit, store: FaultyStore, is_queued: bool
) -> None:
    store.is_answer_lost = True
    if is_queued:
        audit.note(None, "worker.error", subject="first")
    else:
        await audit.record(ANONYMOUS, "sign_out", subject="first")
    audit.note(None, "worker.error", subject="second")
    await wait_for_records(store, 2)
    await audit.close()
    assert [record["subject"] for record in await records(store)] == ["first", "second"]


# --- retention ----------------------------------------------------------------------------------------------

KEY_OF_CHECKPOINTS = "k" * 32


def retention(store: FaultyStore, audit: Audit, *, days: float, now: datetime) -> AuditRetention:
    return AuditRetention(store, audit, days=days, key=KEY_OF_CHECKPOINTS, now=lambda: now)


@rule("RS-69")
async def test_old_records_are_removed_page_by_page_and_the_removal_is_recorded(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_chain, "PAGE_SIZE", 3)
    day = datetime(2026, 1, 1, tzinfo=UTC)
    times = (day + timedelta(days=nth) for nth in count())
    audit = Audit(store, now=lambda: next(times))
    for nth in range(10):
        await audit.record(ANONYMOUS, "sign_out", subject=str(nth))
    removal = retention(store, audit, days=2, now=day + timedelta(days=9, hours=1))
    assert await removal.once() == 8
    assert await removal.once() == 0
    await audit.close()
    found = await records(store)
    assert [record.get("subject") for record in found] == ["8", "9", None]
    assert found[-1]["action"] == "audit.shortened"
    assert found[-1]["details"] == {"records": 8, "days": 2}
    end = [reached async for reached in verify(store, key=KEY_OF_CHECKPOINTS)][-1]
    assert end.is_end
    assert end.start is not None
    assert end.start.seq == 8


class ShortenedMeanwhile(FaultyStore):
    """A chain from which another worker removes records before one of them is read."""

    def __init__(self, store: AuditStore, removal: AuditRetention) -> None:
        super().__init__(store)
        self._removal = removal

    async def list_after(self, seq: int, last: int, limit: int) -> list[Link]:
        await self._removal.once()
        return await super().list_after(seq, last, limit)


@rule("RS-69")
@pytest.mark.parametrize("removed", [3, 5])
async def test_removal_by_another_worker_is_not_taken_for_a_missing_record(
    store: FaultyStore, removed: int, logged: Sequence[Mapping[str, Any]]
) -> None:
    day = datetime(2026, 1, 1, tzinfo=UTC)
    times = (day + timedelta(days=nth) for nth in count())
    audit = Audit(store, now=lambda: next(times))
    for nth in range(5):
        await audit.record(ANONYMOUS, "sign_out", subject=str(nth))

    def remove(days: float) -> AuditRetention:
        return retention(store, Audit(store), days=days, now=day + timedelta(days=5))

    same: Any = ShortenedMeanwhile(store, remove(4.5))
    assert await retention(same, audit, days=3.5, now=day + timedelta(days=5)).once() == 0
    assert not [entry for entry in logged if entry["event"] == "audit.not_shortened"]
    same = ShortenedMeanwhile(store, remove(5.5 - removed))
    end = [reached async for reached in verify(same, key=KEY_OF_CHECKPOINTS)][-1]
    assert (end.problem, end.is_end) == (None, True)
    assert end.seq >= 5, "the removal is on record, too, sooner or later"
    assert end.start is not None
    assert end.start.seq == removed


@rule("RS-69")
async def test_records_are_kept_without_a_limit(store: FaultyStore, audit: Audit) -> None:
    await audit.record(ANONYMOUS, "sign_out")
    assert await retention(store, audit, days=0, now=datetime(2100, 1, 1, tzinfo=UTC)).once() == 0
    assert len(await records(store)) == 1


# --- closing ------------------------------------------------------------------------------------------------


async def test_close_stores_what_is_queued(store: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "BATCH_SECONDS", 60)
    audit = Audit(store)
    for nth in range(450):
        audit.note(None, "worker.error", subject=str(nth))
    audit.record_throttled(ANONYMOUS, "sign_in.failed")
    audit.record_throttled(ANONYMOUS, "sign_in.failed")
    await audit.close()
    found = await records(store)
    assert [record.get("subject") for record in found] == [*map(str, range(450)), None, None]
    assert [record["details"]["count"] for record in found[-2:]] == [1, 1]


@pytest.mark.parametrize("hangs", [False, True], ids=["unavailable", "hanging"])
async def test_close_logs_what_cannot_be_stored_in_time(
    store: FaultyStore, logged: Sequence[Mapping[str, Any]], monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    monkeypatch.setattr(audit_module, "CLOSE_SECONDS", 0.1)
    audit = Audit(store)
    store.is_unavailable = True
    if hangs:
        store.may_continue.clear()
    audit.note(None, "worker.error", subject="last", details={"api_key": KEY})
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await audit.close()
    audit.note(None, "worker.error", subject="too late")
    assert [record["subject"] for record in only_logged(logged)] == ["last", "too late"]
    assert KEY not in str(logged)


# --- throttling ---------------------------------------------------------------------------------------------


async def test_repetitions_are_one_record_per_interval_with_a_count(audit: Audit, store: FaultyStore) -> None:
    for nth in range(1_000):
        audit.record_throttled(ANONYMOUS, "sign_in.failed", details={"nth": nth}, every=0.1)
    [first, rest] = await wait_for_records(store, 2)
    assert first["details"] == {"nth": 0, "count": 1}
    assert rest["details"] == {"nth": 999, "count": 999}
    await wait_for(lambda: not audit._throttled)  # an interval without repetitions
    audit.record_throttled(ANONYMOUS, "sign_in.failed", details={"nth": 1_000}, every=0.1)
    [*_, again] = await wait_for_records(store, 3)
    assert again["details"] == {"nth": 1_000, "count": 1}


async def test_actors_and_actions_are_throttled_separately(audit: Audit, store: FaultyStore) -> None:
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
async def test_only_slow_operations_are_recorded(audit: Audit, store: FaultyStore) -> None:
    audit.record_slow("append.slow", 0.5, subject="run_1")
    audit.record_slow("append.slow", 0.501, subject="run_2")
    [record] = await wait_for_records(store, 1)
    assert (record["subject"], record["storage_class"], record["details"]) == (
        "run_2",
        "ops",
        {"seconds": 0.501, "count": 1},
    )


# --- exceptions ---------------------------------------------------------------------------------------------


def raise_deep_inside(message: str) -> None:
    raise RuntimeError(message)


@rule("CC-05")
@case("P6")
async def test_exception_is_recorded_with_its_traceback_and_without_secrets(
    audit: Audit, store: FaultyStore
) -> None:
    try:
        raise_deep_inside(f"no luck with {KEY}, nor with the owner's own words")
    except RuntimeError as problem:
        audit.record_exception(
            agent_of(OWNER, RunId("run_1")), "run.error", problem, reference="ref_1", subject="run_1"
        )
    [record] = await wait_for_records(store, 1)
    assert record["actor"] == {
        "account_id": "owner",
        "name": "main",
        "kind": "agent",
        "run_id": "run_1",
    }
    details = record["details"]
    assert (details["reference"], details["exception"]) == ("ref_1", "RuntimeError")
    assert details["message"] == f"no luck with {HIDDEN}, nor with {HIDDEN}"
    assert details["traceback"].startswith("Traceback (most recent call last):\n")
    assert "in raise_deep_inside" in details["traceback"]
    assert KEY not in str(record)
    assert "own words" not in str(record)


async def test_host_error_is_recorded_with_its_code_and_cause(audit: Audit, store: FaultyStore) -> None:
    problem = ModelFailed(reason="timeout")
    problem.__cause__ = ConnectionRefusedError(111, "refused")
    audit.record_exception(None, "run.failed", problem)
    [record] = await wait_for_records(store, 1)
    assert record["details"]["error"] == "MODEL_FAILED"
    assert record["details"]["cause"] == "ConnectionRefusedError: [Errno 111] refused"


@case("P6")
async def test_added_secret_is_redacted_from_then_on(audit: Audit) -> None:
    assert audit.redact("rosebud-rosebud") == "rosebud-rosebud"
    audit.add_secret("rosebud-rosebud")
    assert audit.redact("it is rosebud-rosebud") == f"it is {HIDDEN}"
    assert audit.redact("the owner's own words") == HIDDEN, "earlier secrets stay known"


# --- tools --------------------------------------------------------------------------------------------------


async def use_tool(harness: RunHarness, audit: Audit, tool: TestTool) -> Any:
    await harness.start("noop")
    [claim] = await harness.runs.claim_queued(harness.worker().worker_id, 1, 60, 0)
    tools = ToolRegistry([tool], audit=audit, timeout_seconds=5, max_result_bytes=10_000)
    return claim, await tools.use(ToolCall(CallId("call_1"), tool.name, {}), ToolContext.of_run(claim))


@rule("CC-05")
@case("P6")
async def test_exception_of_a_tool_is_recorded_in_full_and_hidden_from_the_model(
    harness: RunHarness, audit: Audit, store: FaultyStore
) -> None:
    async def fail(_: Mapping[str, Any]) -> None:
        raise_deep_inside(f"401 for {KEY} at db.internal:5432")

    claim, result = await use_tool(harness, audit, TestTool("probe__Break", fail))
    assert result.is_error
    for inside in (KEY, "db.internal", "Traceback", "raise_deep_inside", ".py"):
        assert inside not in str(result.value)
    [record] = await wait_for_records(store, 1)
    assert (record["action"], record["subject"], record["details"]["tool"]) == (
        "tool.error",
        claim.run_id,
        "probe__Break",
    )
    assert "db.internal:5432" in record["details"]["message"]
    assert "in raise_deep_inside" in record["details"]["traceback"]
    assert KEY not in str(record)


@case("P6")
async def test_failure_message_of_a_tool_is_redacted(harness: RunHarness, audit: Audit) -> None:
    async def fail(_: Mapping[str, Any]) -> None:
        raise ToolFailed(tool="probe__Fail", reason=f"the service refused the key {KEY}")

    _, result = await use_tool(harness, audit, TestTool("probe__Fail", fail))
    assert result.value == f"probe__Fail: the service refused the key {HIDDEN}"


# --- reading ------------------------------------------------------------------------------------------------


async def test_listing_an_unknown_action_is_refused(audit: Audit) -> None:
    with pytest.raises(BadInput, match=r"sign_in\.failed"):
        await audit.list_records(THE_OWNER, action="sign_in.faild", limit=10)
    assert await audit.list_records(THE_OWNER, action="sign_in.failed", limit=10) == []


async def test_verification_reports_progress_after_every_page(
    audit: Audit, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_chain, "PAGE_SIZE", 10)
    for _ in range(25):
        audit.note(None, "worker.error")
    await wait_for_records(store, 25)
    steps = [(step.seq, step.last, step.is_end) async for step in verify(store)]
    assert steps == [(10, 25, False), (20, 25, False), (25, 25, False), (25, 25, True)]
