"""Executions on every store: each transition is stored once, in one transaction with canvas and events."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.action.execution import (
    EXECUTION_TRANSITIONS,
    TERMINAL,
    DuplicateRequest,
    Execution,
    ExecutionChange,
    ExecutionStatus,
    PendingLimit,
    StaleTransition,
    Transition,
)
from easel.core.action.output import OutputChunk, append_output
from easel.core.canvas.canvas import CanvasSnapshot, NewCanvas
from easel.core.canvas.events import CanvasEvents
from easel.core.stream.payload_limit import offload_large_values
from easel.errors import TooMany
from easel.ids import OWNER, AccountId, CanvasId, new_event_id
from tests.requirements import case, rule
from tests.stores.harness import CONSTRAINT_ERRORS, Store, new_run
from tests.support.artifacts import new as an_artifact

if TYPE_CHECKING:
    from easel.host.ports import CanvasStore, ExecutionStore

NAME = CanvasId("cockpit")
ANN = AccountId("ann")
EVENTS = CanvasEvents(NAME, agent_id="owner", event_id="evt_1")
HERE, THERE = "ins_here", "ins_there"
LEASE = 600.0


@pytest.fixture
def canvases(store: Store) -> CanvasStore:
    return store.database.canvases


@pytest.fixture
def actions(store: Store) -> ExecutionStore:
    return store.database.executions


async def create_canvas(canvases: CanvasStore, name: str = NAME, user: AccountId = OWNER) -> None:
    new = NewCanvas(
        account_id=user, canvas_id=CanvasId(name), agent_id="main", title="Cockpit", spec={}, state={"n": 0}
    )
    assert await canvases.create(new, EVENTS.created(1, "Cockpit")) is not None


def new_execution(status: ExecutionStatus = ExecutionStatus.RUNNING, **more: Any) -> Execution:
    given: dict[str, Any] = {
        "account_id": OWNER,
        "canvas_id": NAME,
        "event_id": new_event_id(),
        "action_id": "deploy",
        "status": status,
        "actor": {"clientId": "laptop", "kind": "user", "name": "Ann ü", "userId": "owner"},
        "tool": "server-a__Bash",
        "owner_id": None if status is ExecutionStatus.ASKED else HERE,
    }
    return Execution(**given | more)


async def store_transition(
    canvases: CanvasStore, transition: Transition, *, seconds: float = LEASE, **state: Any
) -> None:
    """Store a transition with one event, and with a change of the state if one is given."""
    execution = transition.execution

    def decide(snapshot: CanvasSnapshot) -> ExecutionChange:
        canvas = snapshot.canvas
        event = EVENTS.action(
            "started", canvas.revision, {"eventId": execution.event_id, "actionId": execution.action_id}
        )
        return ExecutionChange(
            events=[event],
            is_mutation=bool(state),
            state={**canvas.state, **state} if state else None,
            transition=transition,
        )

    assert (
        await canvases.change(execution.account_id, execution.canvas_id, decide, seconds=seconds) is not None
    )


async def start_execution(
    canvases: CanvasStore, execution: Execution | None = None, *, seconds: float = LEASE
) -> Execution:
    execution = execution or new_execution()
    if execution.status is ExecutionStatus.REFUSED:  # only a pending confirmation can be refused
        await store_transition(
            canvases, Transition(replace(execution, status=ExecutionStatus.ASKED)), seconds=seconds
        )
        await store_transition(canvases, Transition(execution, from_status=ExecutionStatus.ASKED))
    else:
        await store_transition(canvases, Transition(execution), seconds=seconds)
    return execution


def end_transition(
    execution: Execution, status: ExecutionStatus = ExecutionStatus.COMPLETED, **more: Any
) -> Transition:
    return Transition(
        replace(execution, status=status, answer={"result": 1}, **more), from_status=ExecutionStatus.RUNNING
    )


def confirm_transition(
    execution: Execution, owner: str = HERE, status: ExecutionStatus = ExecutionStatus.RUNNING
) -> Transition:
    return Transition(
        replace(execution, status=status, owner_id=owner, confirmed_by="Ann"),
        from_status=ExecutionStatus.ASKED,
    )


async def get_execution(actions: ExecutionStore, execution: Execution) -> Execution:
    stored = await actions.get(execution.account_id, execution.event_id)
    assert stored is not None
    return stored


async def get_canvas(canvases: CanvasStore) -> tuple[int, Any, int]:
    canvas = await canvases.get(OWNER, NAME)
    assert canvas is not None
    return canvas.canvas.revision, canvas.canvas.state, canvas.canvas.last_seq


# --- one execution ------------------------------------------------------------------------------------------


@rule("CV-48", "RS-15")
async def test_record_has_actor_call_times_and_outcome(
    canvases: CanvasStore, actions: ExecutionStore
) -> None:
    await create_canvas(canvases)
    execution = await start_execution(canvases, new_execution(request_id="r1"))
    running = await get_execution(actions, execution)
    assert (running.status, running.actor, running.tool) == (
        ExecutionStatus.RUNNING,
        {"clientId": "laptop", "kind": "user", "name": "Ann ü", "userId": "owner"},
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
    await store_transition(canvases, end_transition(execution), done=True)
    over = await get_execution(actions, execution)
    assert (over.status, over.answer, over.revision) == (ExecutionStatus.COMPLETED, {"result": 1}, 2)
    assert over.ended_at is not None
    assert over.started_at is not None
    assert over.ended_at >= over.started_at
    assert over.answer_seconds is None


@rule("CV-22", "CV-48")
@pytest.mark.parametrize(
    "status, starts",
    [(ExecutionStatus.RUNNING, True), (ExecutionStatus.COMPLETED, True), (ExecutionStatus.REFUSED, False)],
)
async def test_confirmed_execution_starts_when_it_is_confirmed(
    canvases: CanvasStore, actions: ExecutionStore, status: ExecutionStatus, starts: bool
) -> None:
    """A state patch is completed by its first transition; a refused execution has no start."""
    await create_canvas(canvases)
    execution = await start_execution(
        canvases, new_execution(ExecutionStatus.ASKED, resolved={"kind": "tool.call"})
    )
    pending = await get_execution(actions, execution)
    assert (pending.started_at, pending.owner_id, pending.resolved) == (None, None, {"kind": "tool.call"})
    await store_transition(canvases, confirm_transition(execution, status=status))
    after = await get_execution(actions, execution)
    assert (after.started_at is not None, after.confirmed_by) == (starts, "Ann")
    assert (after.ended_at is not None) == status.is_terminal
    assert after.created_at == pending.created_at
    assert (after.resolved is None) == status.is_terminal, "the call is deleted when it is over"


@rule("CV-22")
@case("X6")
async def test_resolved_call_is_read_back_unchanged(canvases: CanvasStore, actions: ExecutionStore) -> None:
    await create_canvas(canvases)
    text = '{"z":1,"a":[1.0,1e2,12345678901234567890,-0.0,0.1],"é":"\\u2028\\"","b":{"y":null,"x":""}}'
    resolved = msgspec.json.decode(text)
    execution = await start_execution(canvases, new_execution(ExecutionStatus.ASKED, resolved=resolved))
    back = (await get_execution(actions, execution)).resolved
    assert msgspec.json.encode(back) == msgspec.json.encode(resolved), (
        "with the order of its members and its numbers"
    )


# --- transitions are stored once ----------------------------------------------------------------------------


@rule("CV-36")
async def test_repeated_request_id_stores_no_second_execution(
    canvases: CanvasStore, actions: ExecutionStore, store: Store
) -> None:
    await create_canvas(canvases)
    await create_canvas(canvases, "other")
    await store.add_user(ANN)
    await create_canvas(canvases, user=ANN)
    first = await start_execution(canvases, new_execution(request_id="r1"))
    before = await get_canvas(canvases)
    again = new_execution(request_id="r1")
    with pytest.raises(DuplicateRequest):
        await store_transition(canvases, Transition(again), lost="update")
    assert await get_canvas(canvases) == before, "neither its event nor its change is stored"
    assert await actions.get(OWNER, again.event_id) is None
    stored = await actions.find_by_request_id(OWNER, NAME, "r1")
    assert stored is not None
    assert stored.event_id == first.event_id
    # A request id is per user and canvas; executions without one are never deduplicated.
    await start_execution(canvases, new_execution(request_id="r1", canvas_id=CanvasId("other")))
    await start_execution(canvases, new_execution(request_id="r1", account_id=ANN))
    await start_execution(canvases)
    await start_execution(canvases)


@rule("CV-36")
async def test_concurrent_requests_with_one_id_start_once(canvases: CanvasStore, store: Store) -> None:
    await create_canvas(canvases)
    tries = [
        store_transition(canvases, Transition(new_execution(request_id="r1")), n=number)
        for number in range(20)
    ]
    ends = await asyncio.gather(*tries, return_exceptions=True)
    assert sorted(type(end).__name__ for end in ends) == ["DuplicateRequest"] * 19 + ["NoneType"]
    assert len(await store.sql("select event_id from executions")) == 1
    assert (await get_canvas(canvases))[2] == 2


@rule("CV-22")
@case("X6")
async def test_concurrent_confirmations_start_the_execution_once(
    canvases: CanvasStore, actions: ExecutionStore
) -> None:
    await create_canvas(canvases)
    execution = await start_execution(canvases, new_execution(ExecutionStatus.ASKED))
    ends = await asyncio.gather(
        *(store_transition(canvases, confirm_transition(execution, f"ins_{number}")) for number in range(10)),
        *(
            store_transition(
                canvases, confirm_transition(execution, f"ins_{number}", ExecutionStatus.REFUSED)
            )
            for number in range(10, 20)
        ),
        return_exceptions=True,
    )
    assert sorted(type(end).__name__ for end in ends) == ["NoneType"] + ["StaleTransition"] * 19
    assert (await get_execution(actions, execution)).owner_id == f"ins_{ends.index(None)}"
    assert (await get_canvas(canvases))[2] == 3


@rule("CV-22", "RS-13")
async def test_confirmations_of_a_canvas_are_limited_until_they_are_answered_or_expire(
    canvases: CanvasStore, store: Store
) -> None:
    """So that no page can flood a person, also with concurrent requests."""
    await create_canvas(canvases)
    await create_canvas(canvases, "other")

    async def ask(count: int, canvas_id: str = NAME) -> list[Execution]:
        """Ask `count` times. Returns the executions that were stored."""
        asked = [new_execution(ExecutionStatus.ASKED, canvas_id=CanvasId(canvas_id)) for _ in range(count)]
        limited = [Transition(one, pending_limit=PendingLimit(3, LEASE)) for one in asked]
        tries = [store_transition(canvases, one) for one in limited]
        ends = await asyncio.gather(*tries, return_exceptions=True)
        assert {type(end) for end in ends} <= {type(None), TooMany}
        return [one for one, end in zip(asked, ends, strict=True) if end is None]

    stored = await ask(9)
    assert (len(stored), len(await ask(1)), len(await ask(4, "other"))) == (3, 0, 3)
    assert (await get_canvas(canvases))[2] == 1 + 3, "no event of a refused one is logged"
    await store_transition(canvases, confirm_transition(stored[0]))
    await store_transition(canvases, confirm_transition(stored[1], status=ExecutionStatus.REFUSED))
    assert len(await ask(3)) == 2
    await store.sql(f"update executions set answer_until = {store.ago(1)} where canvas_id = '{NAME}'")
    assert len(await ask(4)) == 3


@rule("CV-23", "CV-42")
async def test_execution_ends_once_and_a_late_result_is_not_stored(
    canvases: CanvasStore, actions: ExecutionStore
) -> None:
    await create_canvas(canvases)
    execution = await start_execution(canvases)
    tries = [
        store_transition(
            canvases,
            end_transition(execution, (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED)[n % 2]),
            **{f"k{n}": n},
        )
        for n in range(20)
    ]
    ends = await asyncio.gather(*tries, return_exceptions=True)
    assert sorted(type(end).__name__ for end in ends) == ["NoneType"] + ["StaleTransition"] * 19
    winner = ends.index(None)
    assert await get_canvas(canvases) == (2, {"n": 0, f"k{winner}": winner}, 3), (
        "only its own change and event"
    )
    assert (await get_execution(actions, execution)).status is (
        ExecutionStatus.COMPLETED,
        ExecutionStatus.FAILED,
    )[winner % 2]


@rule("CV-23")
@pytest.mark.parametrize(
    "transition",
    [
        lambda execution: end_transition(execution, owner_id=THERE),  # another instance's
        confirm_transition,  # was never pending
        lambda execution: end_transition(replace(execution, event_id=new_event_id())),  # was never started
        lambda execution: end_transition(replace(execution, account_id=ANN)),  # another user's
    ],
)
async def test_transition_from_another_status_changes_nothing(
    canvases: CanvasStore, actions: ExecutionStore, store: Store, transition: Any
) -> None:
    await create_canvas(canvases)
    await store.add_user(ANN)
    await create_canvas(canvases, user=ANN)
    execution = await start_execution(canvases)
    before = await get_canvas(canvases), await get_execution(actions, execution)
    with pytest.raises(StaleTransition):
        await store_transition(canvases, transition(execution), stolen=True)
    after = await get_canvas(canvases), await get_execution(actions, execution)
    assert (after[0], after[1]) == before


# --- orphaned executions ------------------------------------------------------------------------------------


@rule("CV-42")
async def test_execution_that_is_not_renewed_is_orphaned_when_its_claim_expires(
    canvases: CanvasStore, actions: ExecutionStore, store: Store
) -> None:
    await create_canvas(canvases)
    kept, dropped, ended, pending = [
        await start_execution(canvases, new_execution(status))
        for status in (
            ExecutionStatus.RUNNING,
            ExecutionStatus.RUNNING,
            ExecutionStatus.RUNNING,
            ExecutionStatus.ASKED,
        )
    ]
    await store_transition(canvases, end_transition(ended))
    assert await actions.find_orphaned([], 10) == [], "their claims have not expired"
    await store.sql(f"update executions set lease_until = {store.ago(1)} where status = 'running'")
    returned = await actions.renew(HERE, [kept.event_id, ended.event_id, pending.event_id], LEASE)
    assert returned == {kept.event_id}, "the instance must stop those that are not returned"
    assert await actions.renew(THERE, [dropped.event_id], LEASE) == set()
    [lost] = await actions.find_orphaned([], 10)
    assert (lost.event_id, lost.owner_id, lost.actor) == (dropped.event_id, HERE, dropped.actor), (
        "a named owner's executions are orphaned"
    )
    await store_transition(
        canvases,
        Transition(
            replace(lost, status=ExecutionStatus.FAILED, answer={"error": {}}),
            from_status=ExecutionStatus.RUNNING,
        ),
    )
    assert await actions.find_orphaned([], 10) == []
    assert (await get_execution(actions, kept)).status is ExecutionStatus.RUNNING


@rule("CV-22", "CV-48")
async def test_unanswered_confirmation_is_orphaned_after_its_time(
    canvases: CanvasStore, actions: ExecutionStore, store: Store
) -> None:
    await create_canvas(canvases)
    late, early, answered = [
        await start_execution(canvases, new_execution(ExecutionStatus.ASKED)) for _ in range(3)
    ]
    await store_transition(canvases, confirm_transition(answered))
    assert await actions.find_orphaned([], 10) == []
    await store.sql(
        f"update executions set answer_until = {store.ago(1)} where event_id <> '{early.event_id}'"
    )
    [lost] = await actions.find_orphaned([], 10)
    assert (lost.event_id, lost.status, lost.actor) == (late.event_id, ExecutionStatus.ASKED, late.actor)
    await store_transition(
        canvases, Transition(replace(lost, status=ExecutionStatus.REFUSED), from_status=ExecutionStatus.ASKED)
    )
    assert await actions.find_orphaned([], 10) == []
    over = await get_execution(actions, late)
    assert (over.status, over.confirmed_by, over.started_at, over.ended_at is not None) == (
        ExecutionStatus.REFUSED,
        None,
        None,
        True,
    )
    with pytest.raises(StaleTransition):
        await store_transition(canvases, confirm_transition(late))


@rule("CV-37", "CV-42")
async def test_output_is_stored_only_while_the_execution_runs(
    canvases: CanvasStore, actions: ExecutionStore
) -> None:
    await create_canvas(canvases)
    execution = await start_execution(canvases)

    async def say(execution: Execution, text: str) -> None:
        assert (
            await canvases.change(
                execution.account_id,
                execution.canvas_id,
                append_output(execution, [OutputChunk(text)]),
                seconds=LEASE,
            )
            is not None
        )

    await say(execution, "one")
    with pytest.raises(StaleTransition):
        await say(replace(execution, owner_id=THERE), "not mine")
    running = await get_execution(actions, execution)
    assert (running.status, running.ended_at, running.answer) == (ExecutionStatus.RUNNING, None, None)
    assert await actions.find_orphaned([], 10) == [], "the claim is not shortened"
    await store_transition(canvases, end_transition(execution))
    with pytest.raises(StaleTransition):
        await say(execution, "late")
    events = await canvases.events_after(f"{OWNER}/{NAME}", 0, 100)
    assert [event.type for event in events] == [
        "canvas.created",
        "canvas.action.started",
        "canvas.action.output",
        "canvas.action.started",
    ]
    data = msgspec.json.decode(events[2].data)
    assert (data["text"], data["actionId"], data["eventId"], data["revision"]) == (
        "one",
        "deploy",
        execution.event_id,
        1,
    )
    assert data["provenance"] == {
        "kind": "person",
        "agent_id": OWNER,
        "node_id": "deploy",
        "run_id": execution.event_id,
    }


@rule("CV-42")
async def test_executions_of_a_named_owner_are_orphaned_at_once(
    canvases: CanvasStore, actions: ExecutionStore
) -> None:
    await create_canvas(canvases)
    mine, theirs = (
        await start_execution(canvases),
        await start_execution(canvases, new_execution(owner_id=THERE)),
    )
    await start_execution(canvases, new_execution(ExecutionStatus.ASKED))
    assert await actions.other_active_owners(HERE) == [THERE]
    assert [execution.event_id for execution in await actions.find_orphaned([THERE], 10)] == [theirs.event_id]
    assert {execution.event_id for execution in await actions.find_orphaned([HERE, THERE], 10)} == {
        mine.event_id,
        theirs.event_id,
    }
    assert len(await actions.find_orphaned([HERE, THERE], 1)) == 1
    assert await actions.other_active_owners(THERE) == [HERE]


@rule("CV-43", "CV-42")
@case("D1")
async def test_orphaned_execution_with_a_run_is_adopted_by_one_instance(
    canvases: CanvasStore, actions: ExecutionStore, store: Store
) -> None:
    await create_canvas(canvases)
    sent, unsent, called = [
        await start_execution(canvases, new_execution(tool=tool)) for tool in (None, None, "server-a__Bash")
    ]
    run = (await store.database.runs.enqueue(new_run(key=sent.event_id, digest="d"))).run
    await store.database.runs.enqueue(
        new_run(user=await store.add_user(ANN), key=unsent.event_id, digest="d")
    )
    assert await actions.adopt(sent, [], THERE, LEASE) is None, "it is not orphaned"
    assert await actions.adopt(sent, [THERE], THERE, LEASE) is None, "it belongs to another user"
    await store.sql(f"update executions set lease_until = {store.ago(1)}, started_at = {store.ago(60)}")
    for other in (unsent, called):
        assert await actions.adopt(other, [], THERE, LEASE) is None, "it has not started a run"
    taken = await asyncio.gather(*(actions.adopt(sent, [], f"ins_{n}", LEASE) for n in range(8)))
    [(owner, awaited)] = [
        (f"ins_{n}", execution) for n, execution in enumerate(taken) if execution is not None
    ]
    assert (awaited.run_id, 60 <= awaited.seconds < 120) == (run.run_id, True), (
        "the time counts from the start"
    )
    assert (await get_execution(actions, sent)).owner_id == owner
    assert sent.event_id not in [execution.event_id for execution in await actions.find_orphaned([], 10)]
    with pytest.raises(StaleTransition):
        await store_transition(canvases, end_transition(sent))
    again = await actions.adopt(sent, [owner], THERE, LEASE)
    assert again is not None, "the adopting instance may crash too"
    await store_transition(canvases, end_transition(replace(sent, owner_id=THERE)))
    assert await actions.adopt(sent, [THERE], HERE, LEASE) is None, "it has ended"


@rule("CV-34", "CV-23")
async def test_execution_is_deleted_with_its_canvas_and_its_result_not_stored_in_a_new_one(
    canvases: CanvasStore, actions: ExecutionStore
) -> None:
    await create_canvas(canvases)
    execution = await start_execution(canvases, new_execution(request_id="r1"))
    await canvases.delete(OWNER, NAME, lambda _: None)
    assert await actions.get(OWNER, execution.event_id) is None
    await create_canvas(canvases)
    before = await get_canvas(canvases)
    with pytest.raises(StaleTransition):
        await store_transition(canvases, end_transition(execution), late=True)
    assert await get_canvas(canvases) == before
    assert await actions.find_by_request_id(OWNER, NAME, "r1") is None


# --- lists --------------------------------------------------------------------------------------------------


@rule("CV-08", "CV-48")
async def test_executions_are_listed_newest_first_per_user_canvas_and_status(
    canvases: CanvasStore, actions: ExecutionStore, store: Store
) -> None:
    await create_canvas(canvases)
    await create_canvas(canvases, "other")
    await store.add_user(ANN)
    await create_canvas(canvases, user=ANN)
    named = [f"evt_{number:026}" for number in range(5)]
    statuses = [
        ExecutionStatus.ASKED,
        ExecutionStatus.RUNNING,
        ExecutionStatus.COMPLETED,
        ExecutionStatus.FAILED,
        ExecutionStatus.REFUSED,
    ]
    for event_id, status in zip(named, statuses, strict=True):
        await start_execution(canvases, new_execution(status, event_id=event_id))
    await start_execution(canvases, new_execution(canvas_id=CanvasId("other")))

    async def listed(
        statuses: list[ExecutionStatus], before: str | None = None, limit: int = 10, user: AccountId = OWNER
    ) -> list[str]:
        return [
            execution.event_id
            for execution in await actions.list_executions(
                user, NAME, statuses=statuses, before=before, limit=limit
            )
        ]

    assert await listed([]) == named[::-1]
    assert await listed([], named[3], 2) == [named[2], named[1]]
    assert await listed([ExecutionStatus.ASKED, ExecutionStatus.FAILED]) == [named[3], named[0]]
    assert await listed([], user=ANN) == []
    assert await actions.get(ANN, named[0]) is None


async def test_prune_deletes_old_executions_and_keeps_unfinished_ones(
    canvases: CanvasStore, actions: ExecutionStore, store: Store
) -> None:
    await create_canvas(canvases)
    old, running, pending = [
        await start_execution(canvases, new_execution(status))
        for status in (ExecutionStatus.FAILED, ExecutionStatus.RUNNING, ExecutionStatus.ASKED)
    ]
    await store.sql(f"update executions set ended_at = {store.ago(100)} where status = 'failed'")
    young = await start_execution(canvases, new_execution(ExecutionStatus.COMPLETED))
    await actions.prune(50)
    assert await actions.get(OWNER, old.event_id) is None
    assert all([await actions.get(OWNER, execution.event_id) for execution in (running, pending, young)])


# --- constraints --------------------------------------------------------------------------------------------

IMPOSSIBLE = [
    # impossible row
    "status = 'paused'",
    "status = 'running', owner_id = null",
    "status = 'running', lease_until = null",
    "status = 'running', started_at = null",
    "status = 'completed', ended_at = null",
    "status = 'running', ended_at = started_at",
    "canvas_id = 'nowhere'",
]


@pytest.mark.parametrize("change", IMPOSSIBLE)
async def test_database_refuses_an_impossible_execution(
    canvases: CanvasStore, store: Store, change: str
) -> None:
    await create_canvas(canvases)
    await start_execution(canvases)
    with pytest.raises(CONSTRAINT_ERRORS):
        await store.sql(f"update executions set {change}")


@rule("CV-42")
async def test_constraints_of_the_database_match_the_table_of_transitions(
    canvases: CanvasStore, store: Store
) -> None:
    """Exactly the statuses of the table exist, and exactly the terminal ones have an end."""
    await create_canvas(canvases)
    await start_execution(canvases)
    for status in EXECUTION_TRANSITIONS:
        for ended_at in ("null", "created_at"):
            change = f"update executions set status = '{status}', ended_at = {ended_at}"
            if (ended_at == "null") == (status not in TERMINAL):
                await store.sql(change)
            else:
                with pytest.raises(CONSTRAINT_ERRORS):
                    await store.sql(change)
    assert set(EXECUTION_TRANSITIONS) == set(ExecutionStatus)


@rule("RS-35")
async def test_artifacts_of_an_execution_are_kept_with_its_canvas(
    canvases: CanvasStore, store: Store
) -> None:
    """A large answer is in the execution only if its action does not save it."""
    await create_canvas(canvases)
    content = "TWFu" * 1_000 + "QWxhZGRpbjpvcGVuIHNlc2FtZQ" * 20
    light, [offloaded] = offload_large_values({"data": content})
    claimed = await store.database.artifacts.claim(OWNER, [an_artifact(offloaded.content)])
    await store.database.artifacts.mark_stored(OWNER, claimed)
    execution = await start_execution(canvases)
    await store_transition(
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
