"""Fair claiming on every store: accounts are served in turn, however many runs one of them has queued."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.requirements import rule
from tests.stores.harness import (
    CLAIM_SECONDS,
    A,
    Store,
    assert_stored,
    closing_events,
    ending_batch,
    new_run,
)

if TYPE_CHECKING:
    from easel.core.run.run import Claim
    from easel.host.ports import RunStore
    from easel.ids import AccountId

MANY = 10_000


async def enqueue(runs: RunStore, account: AccountId, *sessions: str) -> None:
    for session in sessions:
        await runs.enqueue(new_run(session, user=account))


async def claim(runs: RunStore, count: int, after_turn: int = 0) -> list[Claim]:
    """Claim the next runs, one at a time as a worker with one slot does."""
    return [one for _ in range(count) for one in await runs.claim_queued(A, 1, CLAIM_SECONDS, after_turn)]


async def claim_accounts(runs: RunStore, count: int) -> str:
    return " ".join([one.account_id for one in await claim(runs, count)])


async def queue_many(store: Store, account: AccountId, count: int) -> None:
    """Queue runs in sessions of their own, with the turns that `enqueue` gives one after the other."""
    [first] = await claim_next_turn(store, account)
    numbers = (
        f"generate_series(1, {count}) as numbers(n)"
        if store.kind == "postgres"
        else f"(with recursive r(n) as (select 1 union all select n + 1 from r where n < {count})"
        " select n from r) as numbers"
    )
    queue_no = ("", "") if store.kind == "postgres" else (", queue_no", ", 1000 + n")
    await store.sql(
        "insert into sessions (account_id, session_id, active_run_id)"
        f" select '{account}', 's' || n, 'run_{account}' || n from {numbers}"
    )
    await store.sql(
        f"insert into runs (run_id, account_id, session_id, status, input_text, turn_no{queue_no[0]})"
        f" select 'run_{account}' || n, '{account}', 's' || n, 'queued', 'x', {first} + n{queue_no[1]}"
        f" from {numbers}"
    )


async def claim_next_turn(store: Store, account: AccountId) -> list[int]:
    await enqueue(store.runs, account, "first")
    return [row["turn_no"] for row in await store.sql("select max(turn_no) as turn_no from runs")]


@rule("RX-22")
async def test_accounts_are_served_in_turn_and_runs_of_one_account_in_order(store: Store):
    runs, anna, ben = store.runs, await store.add_user("anna"), await store.add_user("ben")
    await enqueue(runs, anna, "1", "2", "3", "4")
    await enqueue(runs, ben, "1", "2")
    claims = await claim(runs, 6)
    assert " ".join(one.account_id for one in claims) == "anna ben anna ben anna anna"
    assert "".join(one.session_id for one in claims if one.account_id == "anna") == "1234"


async def test_one_run_waits_for_at_most_one_of_ten_thousand_others(store: Store):
    """Also while they are executed, and however a worker searches the queue."""
    runs, busy, late = store.runs, await store.add_user("busy"), await store.add_user("late")
    await queue_many(store, busy, MANY)
    await enqueue(runs, late, "first")
    assert "late" in await claim_accounts(runs, 2)
    taken = await runs.claim_queued(A, 3_000, CLAIM_SECONDS, 0)
    assert {one.account_id for one in taken} == {"busy"}
    await enqueue(runs, late, "second")
    newest = max(one.turn_no for one in taken)
    assert "late" in {one.account_id for one in await claim(runs, 2, after_turn=newest)}


async def test_an_idle_account_saves_up_no_turns(store: Store):
    runs, busy, idle = store.runs, await store.add_user("busy"), await store.add_user("idle")
    await enqueue(runs, busy, *map(str, range(20)))
    await claim(runs, 15)
    await enqueue(runs, idle, "1", "2", "3", "4", "5")
    served = await claim_accounts(runs, 6)
    assert served.count("idle") == served.count("busy") == 3


async def test_an_account_that_always_has_one_run_queued_does_not_overtake_a_waiting_one(store: Store):
    runs, quick, slow = store.runs, await store.add_user("quick"), await store.add_user("slow")
    await enqueue(runs, slow, *map(str, range(5)))
    served = ""
    for session in map(str, range(6)):
        await enqueue(runs, quick, session)
        served += (await claim(runs, 1))[0].account_id[0]
    assert served.count("s") >= 3


async def test_runs_that_get_the_turn_of_their_session_are_served_in_turn_too(store: Store):
    runs, busy, late = store.runs, await store.add_user("busy"), await store.add_user("late")
    for session in "abcde":
        await enqueue(runs, busy, session, session)
    ready = await claim(runs, 5)
    await enqueue(runs, late, "1", "2", "3")
    for one in ready:
        assert assert_stored(await runs.append(ending_batch(one, 1))).turn_passed
    served = await claim_accounts(runs, 6)
    assert served.count("late") == served.count("busy") == 3


async def test_cancelled_and_released_runs_delay_no_other_account(store: Store):
    runs, busy, late = store.runs, await store.add_user("busy"), await store.add_user("late")
    await enqueue(runs, busy, *map(str, range(6)))
    released = await claim(runs, 2)
    for one in released:
        await runs.release_claim(one)
    for row in await store.sql("select run_id, session_id from runs where session_id in ('2', '3')"):
        await runs.request_cancel(busy, row["run_id"], closing_events(row["run_id"]))
    await enqueue(runs, late, "1")
    assert [one.run_id for one in await claim(runs, 2)] == [one.run_id for one in released], "their old place"
    assert "late" in await claim_accounts(runs, 2)
