"""The limits of accounts in services: requests, streams and actions of all instances, bytes and tokens."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.account_limits import AccountLimits, Counts
from easel.core.principal import Principal
from easel.core.run.conversation import Text, Usage
from easel.core.run.status import Status
from easel.errors import HostError, TooLarge, TooMany
from easel.host import usage as module
from easel.host.artifacts.artifacts import Artifacts
from easel.host.runs.queue import RunQueue
from easel.host.streams import StreamQuota
from easel.host.usage import BURST_SECONDS, AccountBudget, AccountUsage
from easel.ids import AccountId
from tests.host.controlled_tool import SPEC, ControlledTool
from tests.host.services import HostServices
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tests.host.conftest import RunHarness

RATE = 10
ANNA, BEN = AccountId("anna"), AccountId("ben")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class CountingStore:
    """The counts of all instances in memory, and how often they were exchanged."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, Counts]] = {}
        self.exchanges = 0

    async def exchange(
        self, instance_id: str, counts: Mapping[str, Counts], seconds: float
    ) -> dict[str, Counts]:
        self.exchanges += 1
        self.counts.setdefault(instance_id, {}).update(counts)
        others = [own for name, own in self.counts.items() if name != instance_id]
        return {
            subject: Counts(
                *(
                    sum(own[subject].of(kind) for own in others if subject in own)
                    for kind in ("requests", "streams", "actions")
                )
            )
            for subject in counts
        }


class Instances:
    def __init__(self, *, is_shared: bool = True, **limits: int) -> None:
        self.clock, self.store = Clock(), CountingStore()
        self.all = [
            AccountUsage(
                AccountLimits(**limits),
                self.store,  # pyright: ignore[reportArgumentType]
                name,
                is_shared=is_shared,
                clock=self.clock,
            )
            for name in ("one", "two")
        ]

    async def second(self) -> None:
        self.clock.now += 1
        for instance in self.all:
            await instance.exchange()


def try_requests(usage: AccountUsage, count: int, account: AccountId = ANNA, token: str | None = None) -> int:
    """Return how many of these requests are answered."""
    answered = 0
    for _ in range(count):
        try:
            usage.count_request(Principal(account, "someone", token_id=token))
        except TooMany:
            continue
        answered += 1
    return answered


async def test_requests_over_the_rate_are_refused_with_the_name_and_the_time():
    instances = Instances(requests_per_second=RATE)
    usage = instances.all[0]
    assert try_requests(usage, 100) == RATE * BURST_SECONDS
    with pytest.raises(TooMany) as refused:
        usage.count_request(Principal(ANNA, "anna"))
    assert refused.value.details == {"limit": "requests_per_second", "maximum": RATE}
    assert refused.value.retry_after == 1
    assert try_requests(usage, 5, BEN) == 5, "another account"
    instances.clock.now += 0.5
    assert try_requests(usage, 100) == RATE // 2


async def test_a_token_has_a_limit_of_its_own_in_that_of_its_account():
    instances = Instances(requests_per_second=3, token_requests_per_second=1)
    usage = instances.all[0]
    assert try_requests(usage, 100, token="tok_1") == BURST_SECONDS
    with pytest.raises(TooMany) as refused:
        usage.count_request(Principal(ANNA, "anna", token_id="tok_1"))
    assert refused.value.details["limit"] == "token_requests_per_second"
    assert try_requests(usage, 4, token="tok_2") == 4


async def test_the_rate_holds_over_all_instances_within_seconds():
    instances = Instances(requests_per_second=RATE)
    answered = []
    for _ in range(30):
        answered.append(sum(try_requests(one, 100) for one in instances.all))
        await instances.second()
    after_burst = answered[15:]
    assert sum(after_burst) <= RATE * len(after_burst) * 1.1
    assert sum(after_burst) >= RATE * len(after_burst) * 0.5, "and no less than the account may have"


@pytest.mark.parametrize("kind", ["streams", "actions"])
async def test_streams_and_actions_of_all_instances_count(kind: Any):
    instances = Instances(streams=3, actions=3)
    here, there = instances.all
    for usage in (here, there, there):
        usage.check(kind, ANNA)
        usage.hold(kind, ANNA, 1)
    await instances.second()
    await instances.second()
    with pytest.raises(TooMany) as refused:
        here.check(kind, ANNA)
    assert refused.value.details == {"limit": kind, "maximum": 3}
    here.check(kind, BEN)
    there.hold(kind, ANNA, -1)
    await instances.second()
    await instances.second()
    here.check(kind, ANNA)


async def test_an_idle_account_costs_nothing_and_is_forgotten_only_when_that_changes_no_limit():
    instances = Instances(requests_per_second=RATE, streams=1)
    usage, store = instances.all[0], instances.store
    await instances.second()
    assert store.exchanges == 0
    assert try_requests(usage, 100) == RATE * BURST_SECONDS
    usage.hold("streams", ANNA, 1)
    await instances.second()
    await instances.second()
    assert try_requests(usage, 100) < RATE * BURST_SECONDS
    for _ in range(3 * BURST_SECONDS):
        await instances.second()
    with pytest.raises(TooMany):
        usage.check("streams", ANNA)  # still open
    usage.hold("streams", ANNA, -1)
    await instances.second()
    await instances.second()
    exchanges = store.exchanges
    await instances.second()
    assert store.exchanges == exchanges


async def test_zero_is_no_limit_and_one_instance_exchanges_nothing():
    instances = Instances(
        is_shared=False, requests_per_second=0, token_requests_per_second=0, streams=0, actions=0
    )
    usage = instances.all[0]
    assert try_requests(usage, 10_000, token="tok_1") == 10_000
    for _ in range(100):
        usage.check("streams", ANNA)
        usage.hold("streams", ANNA, 1)
    await instances.second()
    assert instances.store.exchanges == 0


def test_streams_of_an_instance_count_for_their_account():
    usage = Instances(streams=2).all[0]
    quota = StreamQuota(100, usage)
    for _ in range(2):
        quota.check(ANNA)
        quota.count(ANNA, 1)
    with pytest.raises(TooMany) as refused:
        quota.check(ANNA)
    assert refused.value.details["limit"] == "streams"
    quota.check(BEN)
    quota.count(ANNA, -1)
    quota.check(ANNA)


async def test_actions_at_once_of_an_account_are_refused_and_freed(harness: RunHarness):
    tool = ControlledTool()
    services = await HostServices.open(harness, tool, account_limits="actions=1")
    await services.create(SPEC)
    first = asyncio.ensure_future(services.run("go"))
    await tool.started.wait()
    with pytest.raises(TooMany) as refused:
        await services.run("go")
    assert refused.value.details == {"limit": "actions", "maximum": 1}
    tool.finish()
    await first
    await services.run("go")
    await services.close()


# --- totals -------------------------------------------------------------------------------------------------


async def content(size: int, fill: bytes) -> AsyncIterator[bytes]:
    yield fill * size


async def test_uploads_over_the_stored_bytes_are_refused_until_something_is_deleted(harness: RunHarness):
    budget = AccountBudget(AccountLimits(stored_mb=1), harness.database.usage)
    artifacts = Artifacts(
        harness.database.artifacts, harness.blobs, max_bytes=10_000_000, grace_seconds=3600, budget=budget
    )
    await artifacts.upload(THE_OWNER, content(1_000_000, b"x"))
    with pytest.raises(TooLarge) as refused:
        await artifacts.upload(THE_OWNER, content(1, b"y"))
    assert refused.value.details == {"limit": "stored_mb", "maximum": 1}
    await harness.sql("delete from artifacts")
    await artifacts.upload(THE_OWNER, content(1, b"y"))


class CountingModel:
    is_remote = False

    def __init__(self, tokens: int) -> None:
        self.tokens, self.calls = tokens, 0

    async def reply(self, *_: Any) -> AsyncIterator[Any]:
        self.calls += 1
        yield Text("answer")
        yield Usage(input_tokens=self.tokens - 1, output_tokens=1)


async def test_run_over_the_tokens_of_the_day_fails_and_says_when_it_ends(harness: RunHarness):
    now = datetime(2026, 11, 20, 23, 0, 0, tzinfo=UTC)
    clock = {"now": now}
    model = CountingModel(60)
    budget = AccountBudget(
        AccountLimits(model_tokens_per_day=100), harness.database.usage, now=lambda: clock["now"]
    )
    worker = harness.worker(model=model, budget=budget)  # pyright: ignore[reportArgumentType]

    async def run(session: str) -> Any:
        run_id = await harness.start("hello", session)
        while not (ended := await harness.run(run_id)).is_terminal:
            await worker.once()
            await asyncio.sleep(0.01)
        return ended

    assert [(await run(session)).status for session in "ab"] == [Status.COMPLETED] * 2
    failed = await run("c")
    assert (failed.status, model.calls) == (Status.FAILED, 2)
    assert failed.error_message == (
        "This account has reached its limit model_tokens_per_day=100; try again in 3600 s."
    )
    clock["now"] = datetime(2026, 11, 21, 0, 0, 1, tzinfo=UTC)
    assert (await run("d")).status is Status.COMPLETED


# --- queued runs --------------------------------------------------------------------------------------------


async def test_queued_runs_are_counted_more_often_near_the_limit_and_the_limit_holds(harness: RunHarness):
    queue = RunQueue(
        harness.runs, harness.artifacts, harness.database.notifier, harness.audit,
        canvases=harness.database.canvases, max_attempts=3, max_message_bytes=1_000, max_queued=40,
    )  # fmt: skip
    counted: list[int] = []
    enqueue = harness.runs.enqueue

    async def counting(new: Any) -> Any:
        counted.append(new.max_queued)
        return await enqueue(new)

    harness.runs.enqueue = counting  # pyright: ignore[reportAttributeAccessIssue]
    started = 0
    with pytest.raises(TooMany) as refused:  # noqa: PT012 - which of them is refused is the question
        while True:
            await queue.start(THE_OWNER, f"s{started}", "noop")
            started += 1
    assert refused.value.details == {"limit": "queued_runs", "maximum": 40}
    assert started == 40
    assert 0 < sum(limit > 0 for limit in counted) < 40
    with pytest.raises(HostError):
        await queue.start(THE_OWNER, "again", "noop")
    assert (await harness.runs.queue_depth()).ready == 40


def test_instance_whose_counts_were_lost_for_a_moment_costs_no_requests():
    usage = module._Usage(100, 0.0)  # pyright: ignore[reportPrivateUsage]
    for others in (1_000, 1_005, 0, 0, 1_010, 1_020):
        usage.note_others(Counts(others, 0, 0))
    assert usage.allowance == usage.burst - 5 - 10
