"""Departures on every store: which runs and questions of a person who left are still to be ended. RS-76"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from easel.core.action.execution import ExecutionStatus
from easel.core.principal import Role
from easel.ids import AccountId
from tests.requirements import rule
from tests.stores.harness import CLAIM_SECONDS, A, Store, new_run
from tests.stores.test_executions_contract import create_canvas, new_execution, start_execution
from tests.stores.test_people_contract import ADA, BOB, WEB, make_team

if TYPE_CHECKING:
    from easel.core.people import Departure
    from easel.host.ports import DepartureStore, PeopleStore
    from easel.ids import RunId

LIMIT = 100


@pytest.fixture
def people(store: Store) -> PeopleStore:
    return store.database.people


@pytest.fixture
def departures(store: Store) -> DepartureStore:
    return store.database.departures


async def start_run(store: Store, by: str, account_id: AccountId = WEB) -> RunId:
    """Store a run that this person started, in a session of its own."""
    new = new_run(f"of-{by}-{account_id}", user=account_id)
    await store.runs.enqueue(new)
    await store.sql(f"update runs set started_by = '{by}' where run_id = '{new.run_id}'")
    return new.run_id


async def ask(store: Store, account_id: AccountId = WEB, **actor: str) -> str:
    """Store a question that waits for an answer."""
    asked = new_execution(
        ExecutionStatus.ASKED, account_id=account_id, actor={"kind": "user", "name": "a", **actor}
    )
    await start_execution(store.database.canvases, asked)
    return asked.event_id


async def only(departures: DepartureStore, account_id: str) -> Departure:
    [found] = [one for one in await departures.list_departures(LIMIT) if one.account_id == account_id]
    return found


@rule("RS-76", "RX-52")
async def test_runs_and_questions_of_who_left_are_listed_and_no_others(
    store: Store, people: PeopleStore, departures: DepartureStore
) -> None:
    await make_team(people, bob="member")
    for account_id in (WEB, AccountId(BOB)):
        await create_canvas(store.database.canvases, user=account_id)
    waiting = [await start_run(store, BOB), await start_run(store, BOB)]
    running = await start_run(store, BOB, AccountId(BOB))
    others = await start_run(store, ADA)
    asked = [await ask(store, userId=BOB), await ask(store, onBehalfOf=BOB)]
    await ask(store, userId=ADA)
    await ask(store, name=BOB)
    await ask(store, AccountId(BOB), userId=BOB)
    await people.remove_member(WEB, BOB)
    departure = await only(departures, WEB)
    assert (departure.user_id, departure.seconds < CLAIM_SECONDS) == (BOB, True)
    assert await departures.list_runs(departure, LIMIT) == waiting
    assert len(await departures.list_runs(departure, 1)) == 1
    assert await departures.list_questions(departure, LIMIT) == sorted(asked)
    claimed = {claim.run_id for claim in await store.runs.claim_queued(A, 9, CLAIM_SECONDS, 0)}
    assert {running, others} < claimed, "the claims of others stay"
    assert await departures.list_runs(departure, LIMIT) == waiting, "running or queued"


@rule("RS-76")
async def test_running_runs_of_who_left_are_ended_before_queued_ones(
    store: Store, people: PeopleStore, departures: DepartureStore
) -> None:
    await make_team(people, bob="member")
    first, last = [await start_run(store, BOB) for _ in range(2)]
    await store.sql(f"update runs set turn_no = null where run_id = '{first}'")
    held = f"owner_id = 'w', lease_until = {store.ago(0)}, started_at = {store.ago(0)}, turn_no = 1"
    await store.sql(f"update runs set status = 'running', {held} where run_id = '{last}'")
    await people.remove_member(WEB, BOB)
    departure = await only(departures, WEB)
    assert await departures.list_runs(departure, 1) == [last]
    assert await departures.list_runs(departure, LIMIT) == [last, first]


@rule("RS-76")
async def test_cancelled_and_ended_runs_are_listed_no_longer(
    store: Store, people: PeopleStore, departures: DepartureStore
) -> None:
    await make_team(people, bob="member")
    await start_run(store, BOB)
    await people.disable_person(BOB)
    departure = await only(departures, WEB)
    ended = f"status = 'cancelled', finished_at = {store.ago(0)}"
    for change in (f"cancel_requested_at = {store.ago(0)}", ended):
        await store.sql("update runs set cancel_requested_at = null, status = 'queued', finished_at = null")
        assert len(await departures.list_runs(departure, LIMIT)) == 1
        await store.sql(f"update runs set {change}")
        assert await departures.list_runs(departure, LIMIT) == []


@rule("RS-76")
async def test_person_who_came_back_keeps_later_runs_and_questions(
    store: Store, people: PeopleStore, departures: DepartureStore
) -> None:
    await make_team(people, bob="member")
    await create_canvas(store.database.canvases, user=WEB)
    before, asked_before = await start_run(store, BOB), await ask(store, userId=BOB)
    await people.remove_member(WEB, BOB)
    departure = await only(departures, WEB)
    # A request that was admitted before may store a run and a question after the departure.
    late, asked_late = await start_run(store, BOB), await ask(store, userId=BOB)
    assert await departures.list_runs(departure, LIMIT) == [before, late]
    assert await departures.list_questions(departure, LIMIT) == [asked_before, asked_late]
    await people.set_member(WEB, BOB, Role.VIEWER)
    assert await departures.list_runs(departure, LIMIT) == [before]
    assert await departures.list_questions(departure, LIMIT) == [asked_before]
    await people.disable_person(BOB)
    again = await only(departures, WEB)
    assert again.left_at > departure.left_at
    assert await departures.list_runs(again, LIMIT) == [before, late]


@rule("RS-76")
async def test_person_who_is_enabled_again_keeps_later_runs_in_the_own_account(
    store: Store, people: PeopleStore, departures: DepartureStore
) -> None:
    own = AccountId(BOB)
    await make_team(people, bob="member")
    before = await start_run(store, BOB, own)
    await people.disable_person(BOB)
    departure = await only(departures, BOB)
    await people.enable_person(BOB)
    await start_run(store, BOB, own)
    assert await departures.list_runs(departure, LIMIT) == [before]


@rule("RS-76")
async def test_departure_is_finished_unless_the_person_left_again(
    people: PeopleStore, departures: DepartureStore
) -> None:
    await make_team(people, bob="member")
    await people.remove_member(WEB, BOB)
    first = await only(departures, WEB)
    await people.set_member(WEB, BOB, Role.MEMBER)
    await people.remove_member(WEB, BOB)
    await departures.finish(first)
    second = await only(departures, WEB)
    await departures.finish(second)
    await departures.finish(second)
    assert await departures.list_departures(LIMIT) == []
