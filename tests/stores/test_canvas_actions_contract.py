"""Executions of actions on every store: each step once, with its canvas and its events in one transaction, or not at all."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.action.output import OutputChunk, append_output
from easel.core.canvas.canvas import CanvasSnapshot, Change, NewCanvas
from easel.core.canvas.events import CanvasEvents
from easel.core.canvas.execution import (
    EXECUTION_TRANSITIONS,
    TERMINAL,
    DuplicateRequest,
    Execution,
    ExecutionStatus,
    StaleTransition,
    Transition,
)
from easel.core.stream.payload_limit import offload_large_values
from easel.ids import OWNER, CanvasId, UserId, new_event_id
from tests.requirements import case, rule
from tests.stores.harness import CONSTRAINT_ERRORS, Store, new_run
from tests.support.artifacts import new as an_artifact

if TYPE_CHECKING:
    from easel.host.ports import CanvasActionStore, CanvasStore

NAME = CanvasId("cockpit")
ANN = UserId("ann")
EVENTS = CanvasEvents(NAME, agent_id="owner", event_id="evt_1")
HERE, THERE = "ins_here", "ins_there"
LEASE = 600.0


@pytest.fixture
def canvases(store: Store) -> CanvasStore:
    return store.database.canvases


@pytest.fixture
def actions(store: Store) -> CanvasActionStore:
    return store.database.canvas_actions


async def made(canvases: CanvasStore, name: str = NAME, user: UserId = OWNER) -> None:
    new = NewCanvas(
        user_id=user, canvas_id=CanvasId(name), agent_id="main", title="Cockpit", spec={}, state={"n": 0}
    )
    assert await canvases.create(new, EVENTS.created(1, "Cockpit")) is not None


def an_execution(status: ExecutionStatus = ExecutionStatus.RUNNING, **more: Any) -> Execution:
    given: dict[str, Any] = {
        "user_id": OWNER,
        "canvas_id": NAME,
        "event_id": new_event_id(),
        "action_id": "deploy",
        "status": status,
        "actor": {"clientId": "laptop", "name": "Ann ü"},
        "tool": "server-a__Bash",
        "owner_id": None if status is ExecutionStatus.ASKED else HERE,
    }
    return Execution(**given | more)


async def take(canvases: CanvasStore, step: Transition, *, seconds: float = LEASE, **state: Any) -> None:
    """A step with one event, and with a change of the state where one is given."""
    one = step.execution

    def decide(snapshot: CanvasSnapshot) -> Change:
        canvas = snapshot.canvas
        event = EVENTS.action(
            "started", canvas.revision, {"eventId": one.event_id, "actionId": one.action_id}
        )
        return Change(
            events=[event],
            is_mutation=bool(state),
            state={**canvas.state, **state} if state else None,
            transition=step,
        )

    assert await canvases.change(one.user_id, one.canvas_id, decide, seconds=seconds) is not None


async def begin(
    canvases: CanvasStore, execution: Execution | None = None, *, seconds: float = LEASE
) -> Execution:
    execution = execution or an_execution()
    if execution.status is ExecutionStatus.REFUSED:  # only a pending confirmation can be refused
        await take(canvases, Transition(replace(execution, status=ExecutionStatus.ASKED)), seconds=seconds)
        await take(canvases, Transition(execution, from_status=ExecutionStatus.ASKED))
    else:
        await take(canvases, Transition(execution), seconds=seconds)
    return execution


def ending(
    execution: Execution, status: ExecutionStatus = ExecutionStatus.COMPLETED, **more: Any
) -> Transition:
    return Transition(
        replace(execution, status=status, answer={"result": 1}, **more), from_status=ExecutionStatus.RUNNING
    )


def agreeing(
    execution: Execution, owner: str = HERE, status: ExecutionStatus = ExecutionStatus.RUNNING
) -> Transition:
    return Transition(
        replace(execution, status=status, owner_id=owner, confirmed_by="Ann"),
        from_status=ExecutionStatus.ASKED,
    )


async def found(actions: CanvasActionStore, execution: Execution) -> Execution:
    stored = await actions.get(execution.user_id, execution.event_id)
    assert stored is not None
    return stored


async def snapshot(canvases: CanvasStore) -> tuple[int, Any, int]:
    canvas = await canvases.get(OWNER, NAME)
    assert canvas is not None
    return canvas.canvas.revision, canvas.canvas.state, canvas.canvas.last_seq


# --- one execution ------------------------------------------------------------------------------------------------------


@rule("CV-48", "RS-15")
async def test_a_record_has_who_what_when_and_how_it_went(
    canvases: CanvasStore, actions: CanvasActionStore
) -> None:
    await made(canvases)
    execution = await begin(canvases, an_execution(request_id="r1"))
    running = await found(actions, execution)
    assert (running.status, running.actor, running.tool) == (
        ExecutionStatus.RUNNING,
        {"clientId": "laptop", "name": "Ann ü"},
        "server-a__Bash",
    )
    assert (running.owner_id, running.request_id, running.ended_at, running.answer) == (
        HERE,
        "r1",
        None,
        None,
    )
    assert running.created_at is not None
    assert running.started_at is not None
    assert running.started_at >= running.created_at
    await take(canvases, ending(execution), done=True)
    over = await found(actions, execution)
    assert (over.status, over.answer, over.revision) == (ExecutionStatus.COMPLETED, {"result": 1}, 2)
    assert over.ended_at is not None
    assert over.started_at is not None
    assert over.ended_at >= over.started_at
    assert 0 <= over.age_seconds < 60


@rule("CV-42", "CV-45")
async def test_error_name_of_an_earlier_version_is_read_as_todays_name(
    canvases: CanvasStore, actions: CanvasActionStore
) -> None:
    await made(canvases)
    execution = await begin(canvases, an_execution())
    failed = replace(
        execution,
        status=ExecutionStatus.FAILED,
        answer={"error": {"code": 500, "name": "DAMAGED", "message": "m"}},
    )
    await take(canvases, Transition(failed, from_status=ExecutionStatus.RUNNING))
    stored = await found(actions, execution)
    assert stored.answer == {"error": {"code": 500, "name": "CORRUPT_DATA", "message": "m"}}


@rule("CV-22", "CV-48")
@pytest.mark.parametrize(
    "status, starts",
    [(ExecutionStatus.RUNNING, True), (ExecutionStatus.COMPLETED, True), (ExecutionStatus.REFUSED, False)],
)
async def test_what_was_asked_begins_when_it_was_agreed_to(
    canvases: CanvasStore, actions: CanvasActionStore, status: ExecutionStatus, starts: bool
) -> None:
    """A patch of the state is completed by the same step; what is refused never began."""
    await made(canvases)
    execution = await begin(canvases, an_execution(ExecutionStatus.ASKED, resolved={"kind": "tool.call"}))
    asked = await found(actions, execution)
    assert (asked.started_at, asked.owner_id, asked.resolved) == (None, None, {"kind": "tool.call"})
    await take(canvases, agreeing(execution, status=status))
    after = await found(actions, execution)
    assert (after.started_at is not None, after.confirmed_by) == (starts, "Ann")
    assert (after.ended_at is not None) == status.is_terminal
    assert after.created_at == asked.created_at


@rule("CV-22")
@case("X6")
async def test_what_was_asked_comes_back_exactly_as_it_was(
    canvases: CanvasStore, actions: CanvasActionStore
) -> None:
    await made(canvases)
    text = '{"z":1,"a":[1.0,1e2,12345678901234567890,-0.0,0.1],"é":"\\u2028\\"","b":{"y":null,"x":""}}'
    resolved = msgspec.json.decode(text)
    execution = await begin(canvases, an_execution(ExecutionStatus.ASKED, resolved=resolved))
    back = (await found(actions, execution)).resolved
    assert msgspec.json.encode(back) == msgspec.json.encode(resolved), "its order and its numbers too"


# --- once ---------------------------------------------------------------------------------------------------------------


@rule("CV-36")
async def test_a_request_has_one_execution_and_its_second_stores_nothing(
    canvases: CanvasStore, actions: CanvasActionStore, store: Store
) -> None:
    await made(canvases)
    await made(canvases, "other")
    await store.add_user(ANN)
    await made(canvases, user=ANN)
    first = await begin(canvases, an_execution(request_id="r1"))
    before = await snapshot(canvases)
    again = an_execution(request_id="r1")
    with pytest.raises(DuplicateRequest):
        await take(canvases, Transition(again), lost="update")
    assert await snapshot(canvases) == before, "neither its event nor its change"
    assert await actions.get(OWNER, again.event_id) is None
    stored = await actions.find_by_request_id(OWNER, NAME, "r1")
    assert stored is not None
    assert stored.event_id == first.event_id
    # A request's name is its caller's own, on its own canvas; what has none never meets another.
    await begin(canvases, an_execution(request_id="r1", canvas_id=CanvasId("other")))
    await begin(canvases, an_execution(request_id="r1", user_id=ANN))
    await begin(canvases)
    await begin(canvases)


@rule("CV-36")
async def test_a_request_that_comes_many_times_at_once_begins_once(
    canvases: CanvasStore, store: Store
) -> None:
    await made(canvases)
    tries = [take(canvases, Transition(an_execution(request_id="r1")), n=number) for number in range(20)]
    ends = await asyncio.gather(*tries, return_exceptions=True)
    assert sorted(type(end).__name__ for end in ends) == ["DuplicateRequest"] * 19 + ["NoneType"]
    assert len(await store.sql("select event_id from canvas_actions")) == 1
    assert (await snapshot(canvases))[2] == 2


@rule("CV-22")
@case("X6")
async def test_a_confirmation_is_used_once_however_many_agree_at_once(
    canvases: CanvasStore, actions: CanvasActionStore
) -> None:
    await made(canvases)
    execution = await begin(canvases, an_execution(ExecutionStatus.ASKED))
    ends = await asyncio.gather(
        *(take(canvases, agreeing(execution, f"ins_{number}")) for number in range(10)),
        *(
            take(canvases, agreeing(execution, f"ins_{number}", ExecutionStatus.REFUSED))
            for number in range(10, 20)
        ),
        return_exceptions=True,
    )
    assert sorted(type(end).__name__ for end in ends) == ["NoneType"] + ["StaleTransition"] * 19
    assert (await found(actions, execution)).owner_id == f"ins_{ends.index(None)}"
    assert (await snapshot(canvases))[2] == 3


@rule("CV-23", "CV-42")
async def test_an_execution_ends_once_and_what_comes_late_is_not_stored(
    canvases: CanvasStore, actions: CanvasActionStore
) -> None:
    await made(canvases)
    execution = await begin(canvases)
    tries = [
        take(
            canvases,
            ending(execution, (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED)[n % 2]),
            **{f"k{n}": n},
        )
        for n in range(20)
    ]
    ends = await asyncio.gather(*tries, return_exceptions=True)
    assert sorted(type(end).__name__ for end in ends) == ["NoneType"] + ["StaleTransition"] * 19
    winner = ends.index(None)
    assert await snapshot(canvases) == (2, {"n": 0, f"k{winner}": winner}, 3), (
        "its change, its event, and no other"
    )
    assert (await found(actions, execution)).status is (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED)[
        winner % 2
    ]


@rule("CV-23")
@pytest.mark.parametrize(
    "step",
    [
        lambda one: ending(one, owner_id=THERE),  # somebody else's
        agreeing,  # was never asked
        lambda one: ending(replace(one, event_id=new_event_id())),  # was never begun
        lambda one: ending(replace(one, user_id=ANN)),  # another user's
    ],
)
async def test_a_step_that_does_not_lead_out_of_where_it_is_changes_nothing(
    canvases: CanvasStore, actions: CanvasActionStore, store: Store, step: Any
) -> None:
    await made(canvases)
    await store.add_user(ANN)
    await made(canvases, user=ANN)
    execution = await begin(canvases)
    before = await snapshot(canvases), await found(actions, execution)
    with pytest.raises(StaleTransition):
        await take(canvases, step(execution), stolen=True)
    after = await snapshot(canvases), await found(actions, execution)
    assert (after[0], replace(after[1], age_seconds=0)) == (before[0], replace(before[1], age_seconds=0))


# --- the dead -----------------------------------------------------------------------------------------------------------


@rule("CV-42")
async def test_what_is_not_renewed_is_lost_when_its_time_is_over(
    canvases: CanvasStore, actions: CanvasActionStore, store: Store
) -> None:
    await made(canvases)
    kept, dropped, ended, asked = [
        await begin(canvases, an_execution(status))
        for status in (
            ExecutionStatus.RUNNING,
            ExecutionStatus.RUNNING,
            ExecutionStatus.RUNNING,
            ExecutionStatus.ASKED,
        )
    ]
    await take(canvases, ending(ended))
    assert await actions.find_orphaned([], LEASE, 10) == [], "their time has not come"
    await store.sql(f"update canvas_actions set lease_until = {store.ago(1)} where status = 'running'")
    held = await actions.renew(HERE, [kept.event_id, ended.event_id, asked.event_id], LEASE)
    assert held == {kept.event_id}, "who is told what is still theirs stops the rest"
    assert await actions.renew(THERE, [dropped.event_id], LEASE) == set()
    [lost] = await actions.find_orphaned([], LEASE, 10)
    assert (lost.event_id, lost.owner_id, lost.actor) == (dropped.event_id, HERE, dropped.actor), (
        "named, so it can be told in its name"
    )
    await take(
        canvases,
        Transition(
            replace(lost, status=ExecutionStatus.FAILED, answer={"error": {}}),
            from_status=ExecutionStatus.RUNNING,
        ),
    )
    assert await actions.find_orphaned([], LEASE, 10) == []
    assert (await found(actions, kept)).status is ExecutionStatus.RUNNING


@rule("CV-22", "CV-48")
async def test_a_question_that_nobody_answered_is_found_when_its_time_is_over(
    canvases: CanvasStore, actions: CanvasActionStore, store: Store
) -> None:
    await made(canvases)
    late, early, answered = [await begin(canvases, an_execution(ExecutionStatus.ASKED)) for _ in range(3)]
    await take(canvases, agreeing(answered))
    await store.sql(
        f"update canvas_actions set created_at = {store.ago(300)} where event_id <> '{early.event_id}'"
    )
    assert await actions.find_orphaned([], 400, 10) == []
    [lost] = await actions.find_orphaned([], 200, 10)
    assert (lost.event_id, lost.status, lost.actor) == (late.event_id, ExecutionStatus.ASKED, late.actor)
    await take(
        canvases, Transition(replace(lost, status=ExecutionStatus.REFUSED), from_status=ExecutionStatus.ASKED)
    )
    assert await actions.find_orphaned([], 200, 10) == []
    over = await found(actions, late)
    assert (over.status, over.confirmed_by, over.started_at, over.ended_at is not None) == (
        ExecutionStatus.REFUSED,
        None,
        None,
        True,
    )
    with pytest.raises(StaleTransition):
        await take(canvases, agreeing(late))


@rule("CV-37", "CV-42")
async def test_what_is_said_is_told_only_while_it_runs(
    canvases: CanvasStore, actions: CanvasActionStore
) -> None:
    await made(canvases)
    execution = await begin(canvases)

    async def say(one: Execution, text: str) -> None:
        assert (
            await canvases.change(
                one.user_id, one.canvas_id, append_output(one, [OutputChunk(text)]), seconds=LEASE
            )
            is not None
        )

    await say(execution, "one")
    with pytest.raises(StaleTransition):
        await say(replace(execution, owner_id=THERE), "not mine")
    running = await found(actions, execution)
    assert (running.status, running.ended_at, running.answer) == (ExecutionStatus.RUNNING, None, None)
    assert await actions.find_orphaned([], LEASE, 10) == [], "and its hold is as it was, or longer"
    await take(canvases, ending(execution))
    with pytest.raises(StaleTransition):
        await say(execution, "late")
    events = await canvases.events_after(f"{OWNER}/{NAME}", 0, 100)
    assert [event.type for event in events] == [
        "canvas.created",
        "canvas.action.started",
        "canvas.action.output",
        "canvas.action.started",
    ]
    told = msgspec.json.decode(events[2].data)
    assert (told["text"], told["actionId"], told["eventId"], told["revision"]) == (
        "one",
        "deploy",
        execution.event_id,
        1,
    )
    assert told["provenance"] == {"agent_id": OWNER, "node_id": "deploy", "run_id": execution.event_id}


@rule("CV-42")
async def test_what_another_instance_left_can_be_told_at_once(
    canvases: CanvasStore, actions: CanvasActionStore
) -> None:
    await made(canvases)
    mine, theirs = await begin(canvases), await begin(canvases, an_execution(owner_id=THERE))
    await begin(canvases, an_execution(ExecutionStatus.ASKED))
    assert await actions.other_active_owners(HERE) == [THERE]
    assert [one.event_id for one in await actions.find_orphaned([THERE], LEASE, 10)] == [theirs.event_id]
    assert {one.event_id for one in await actions.find_orphaned([HERE, THERE], LEASE, 10)} == {
        mine.event_id,
        theirs.event_id,
    }
    assert len(await actions.find_orphaned([HERE, THERE], LEASE, 1)) == 1
    assert await actions.other_active_owners(THERE) == [HERE]


@rule("CV-43", "CV-42")
@case("D1")
async def test_what_waits_for_a_run_is_taken_up_by_one_when_its_instance_is_gone(
    canvases: CanvasStore, actions: CanvasActionStore, store: Store
) -> None:
    await made(canvases)
    sent, unsent, called = [
        await begin(canvases, an_execution(tool=tool)) for tool in (None, None, "server-a__Bash")
    ]
    run = (await store.database.runs.enqueue(new_run(key=sent.event_id, digest="d"))).run
    await store.database.runs.enqueue(
        new_run(user=await store.add_user(ANN), key=unsent.event_id, digest="d")
    )
    assert await actions.adopt(sent, [], THERE, LEASE) is None, "it is not lost"
    assert await actions.adopt(sent, [THERE], THERE, LEASE) is None, "it is not theirs"
    await store.sql(f"update canvas_actions set lease_until = {store.ago(1)}, started_at = {store.ago(60)}")
    for other in (unsent, called):
        assert await actions.adopt(other, [], THERE, LEASE) is None, "no run of this user was started for it"
    taken = await asyncio.gather(*(actions.adopt(sent, [], f"ins_{n}", LEASE) for n in range(8)))
    [(owner, awaited)] = [(f"ins_{n}", one) for n, one in enumerate(taken) if one is not None]
    assert (awaited.run_id, 60 <= awaited.seconds < 120) == (run.run_id, True), (
        "the time counts from where it began"
    )
    assert (await found(actions, sent)).owner_id == owner
    assert sent.event_id not in [one.event_id for one in await actions.find_orphaned([], LEASE, 10)]
    with pytest.raises(StaleTransition):
        await take(canvases, ending(sent))
    again = await actions.adopt(sent, [owner], THERE, LEASE)
    assert again is not None, "who has taken it up may die, too, and be known to"
    await take(canvases, ending(replace(sent, owner_id=THERE)))
    assert await actions.adopt(sent, [THERE], HERE, LEASE) is None, "it is over"


@rule("CV-34", "CV-23")
async def test_with_its_canvas_an_execution_is_gone_and_a_new_canvas_of_that_name_never_gets_its_result(
    canvases: CanvasStore, actions: CanvasActionStore
) -> None:
    await made(canvases)
    execution = await begin(canvases, an_execution(request_id="r1"))
    await canvases.delete(OWNER, NAME, lambda _: None)
    assert await actions.get(OWNER, execution.event_id) is None
    await made(canvases)
    before = await snapshot(canvases)
    with pytest.raises(StaleTransition):
        await take(canvases, ending(execution), late=True)
    assert await snapshot(canvases) == before
    assert await actions.find_by_request_id(OWNER, NAME, "r1") is None


# --- finding ------------------------------------------------------------------------------------------------------------


@rule("CV-08", "CV-48")
async def test_records_are_listed_newest_first_by_canvas_and_status_and_for_their_user_alone(
    canvases: CanvasStore, actions: CanvasActionStore, store: Store
) -> None:
    await made(canvases)
    await made(canvases, "other")
    await store.add_user(ANN)
    await made(canvases, user=ANN)
    named = [f"evt_{number:026}" for number in range(5)]
    statuses = [
        ExecutionStatus.ASKED,
        ExecutionStatus.RUNNING,
        ExecutionStatus.COMPLETED,
        ExecutionStatus.FAILED,
        ExecutionStatus.REFUSED,
    ]
    for event_id, status in zip(named, statuses, strict=True):
        await begin(canvases, an_execution(status, event_id=event_id))
    await begin(canvases, an_execution(canvas_id=CanvasId("other")))

    async def listed(
        statuses: list[ExecutionStatus], before: str | None = None, limit: int = 10, user: UserId = OWNER
    ) -> list[str]:
        return [
            one.event_id
            for one in await actions.list_executions(
                user, NAME, statuses=statuses, before=before, limit=limit
            )
        ]

    assert await listed([]) == named[::-1]
    assert await listed([], named[3], 2) == [named[2], named[1]]
    assert await listed([ExecutionStatus.ASKED, ExecutionStatus.FAILED]) == [named[3], named[0]]
    assert await listed([], user=ANN) == []
    assert await actions.get(ANN, named[0]) is None


async def test_old_records_go_and_what_is_not_over_stays(
    canvases: CanvasStore, actions: CanvasActionStore, store: Store
) -> None:
    await made(canvases)
    old, running, asked = [
        await begin(canvases, an_execution(status))
        for status in (ExecutionStatus.FAILED, ExecutionStatus.RUNNING, ExecutionStatus.ASKED)
    ]
    await store.sql(f"update canvas_actions set ended_at = {store.ago(100)} where status = 'failed'")
    young = await begin(canvases, an_execution(ExecutionStatus.COMPLETED))
    await actions.prune(50)
    assert await actions.get(OWNER, old.event_id) is None
    assert all([await actions.get(OWNER, one.event_id) for one in (running, asked, young)])


# --- what must not be ---------------------------------------------------------------------------------------------------

IMPOSSIBLE = [
    # a row that must not be
    "status = 'paused'",
    "status = 'running', owner_id = null",
    "status = 'running', lease_until = null",
    "status = 'running', started_at = null",
    "status = 'completed', ended_at = null",
    "status = 'running', ended_at = started_at",
    "canvas_id = 'nowhere'",
]


@pytest.mark.parametrize("change", IMPOSSIBLE)
async def test_a_row_that_must_not_be_is_refused_by_the_database(
    canvases: CanvasStore, store: Store, change: str
) -> None:
    await made(canvases)
    await begin(canvases)
    with pytest.raises(CONSTRAINT_ERRORS):
        await store.sql(f"update canvas_actions set {change}")


@rule("CV-42")
async def test_constraints_of_the_database_match_the_table_of_transitions(
    canvases: CanvasStore, store: Store
) -> None:
    """Exactly the statuses of the table exist, and exactly the terminal ones have an end."""
    await made(canvases)
    await begin(canvases)
    for status in EXECUTION_TRANSITIONS:
        for ended_at in ("null", "created_at"):
            change = f"update canvas_actions set status = '{status}', ended_at = {ended_at}"
            if (ended_at == "null") == (status not in TERMINAL):
                await store.sql(change)
            else:
                with pytest.raises(CONSTRAINT_ERRORS):
                    await store.sql(change)
    assert set(EXECUTION_TRANSITIONS) == set(ExecutionStatus)


@rule("RS-35")
async def test_what_an_execution_speaks_of_is_kept_with_its_canvas(
    canvases: CanvasStore, store: Store
) -> None:
    """A heavy answer is in the records alone, where its action saves nothing."""
    await made(canvases)
    content = "TWFu" * 1_000 + "QWxhZGRpbjpvcGVuIHNlc2FtZQ" * 20
    light, [offloaded] = offload_large_values({"data": content})
    claimed = await store.database.artifacts.claim(OWNER, [an_artifact(offloaded.content)])
    await store.database.artifacts.mark_stored(OWNER, claimed)
    execution = await begin(canvases)
    await take(
        canvases,
        Transition(
            replace(execution, status=ExecutionStatus.COMPLETED, answer={"result": light}),
            from_status=ExecutionStatus.RUNNING,
        ),
    )
    refs = await store.sql(
        f"select canvas_id from artifact_refs where artifact_id = '{offloaded.artifact_id}'"
    )
    assert [row["canvas_id"] for row in refs] == [NAME]
