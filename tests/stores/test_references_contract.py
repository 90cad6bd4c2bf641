"""References of canvases and runs on every store: released when nothing mentions the artifact any more."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.action.execution import Execution, ExecutionChange, ExecutionStatus, Transition
from easel.core.artifact.artifact import START, NewArtifact
from easel.core.canvas.canvas import Change, NewCanvas
from easel.core.canvas.events import CanvasEvents
from easel.core.run.batch import Batch
from easel.core.run.boards import Board, BoardLimits, BoardWriteRequest, prepare
from easel.core.run.status import Status
from easel.core.session.message import message, question
from easel.core.stream.message_text import take_out_runs
from easel.core.stream.payload_limit import OffloadedValue, mentioned_artifacts, offload_large_values
from easel.errors import NotFound
from easel.host.artifacts.references import ReferenceRelease
from easel.host.canvases.log_retention import CanvasLogRetention
from easel.ids import OWNER, ArtifactId, CanvasId, MessageId, RunId, new_event_id
from tests.requirements import rule
from tests.stores.harness import (
    CLAIM_SECONDS,
    A,
    Store,
    new_run,
    other_connection,
    run_events,
    wait_for_blocked_statement,
)
from tests.support.artifacts import aged_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from easel.core.canvas.canvas import CanvasSnapshot
    from easel.ids import AccountId

NAME = CanvasId("shots")
EVENTS = CanvasEvents(NAME, agent_id="main", event_id="evt_1")
DAY = 86_400.0
LIMITS = BoardLimits(keys=100, value_bytes=1_000_000, run_bytes=16_000_000)


class Contents:
    """The artifacts of a test: their rows in the store, their content in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._contents: dict[ArtifactId, bytes] = {}

    async def store(self, account_id: AccountId, offloaded: Sequence[OffloadedValue]) -> None:
        artifacts = self._store.database.artifacts
        new = [
            NewArtifact(value.artifact_id, len(value.content), "text/plain", aged_key())
            for value in {value.artifact_id: value for value in offloaded}.values()
        ]
        await artifacts.mark_stored(account_id, await artifacts.claim(account_id, new))
        self._contents |= {value.artifact_id: value.content for value in offloaded}

    async def read(self, account_id: AccountId, artifact_id: ArtifactId) -> bytes:
        if artifact_id not in self._contents:
            raise NotFound(what="artifact", id=artifact_id)
        return self._contents[artifact_id]

    async def size_of(self, account_id: AccountId, artifact_id: ArtifactId) -> int:
        return len(await self.read(account_id, artifact_id))

    def lose(self) -> None:
        """Lose the content of all artifacts."""
        self._contents.clear()


@pytest.fixture
def contents(store: Store) -> Contents:
    return Contents(store)


@pytest.fixture
def release(store: Store, contents: Contents) -> ReferenceRelease:
    return ReferenceRelease(store.database.references, contents)


async def references(store: Store) -> set[str]:
    return {row["artifact_id"] for row in await store.sql("select artifact_id from artifact_refs")}


# --- canvases -----------------------------------------------------------------------------------------------


class Shots:
    """A canvas whose state has a picture that is replaced."""

    def __init__(self, store: Store, contents: Contents) -> None:
        self._store = store
        self._contents = contents
        self.canvases = store.database.canvases

    async def create(self) -> None:
        new = NewCanvas(account_id=OWNER, canvas_id=NAME, agent_id="main", title="T", spec={}, state={})
        await self.canvases.create(new, EVENTS.created(1, "T"))

    async def new_picture(self) -> tuple[Any, ArtifactId]:
        """Store a picture. Returns its marker and its id."""
        marker, [offloaded] = offload_large_values(b64encode(os.urandom(3_000)).decode())
        await self._contents.store(OWNER, [offloaded])
        return marker, offloaded.artifact_id

    async def set_state(self, **state: Any) -> None:
        """Replace members of the state, with an event that shows them."""

        def decide(snapshot: CanvasSnapshot) -> Change:
            event = EVENTS.action("finished", snapshot.canvas.revision, state)
            return Change(events=[event], state={**snapshot.canvas.state, **state})

        await self.canvases.change(OWNER, NAME, decide)

    async def replace_picture(self) -> ArtifactId:
        marker, artifact_id = await self.new_picture()
        await self.set_state(shot=marker)
        return artifact_id

    async def trim_log(self) -> None:
        """Let all events but the last be trimmed."""
        await self._store.sql(f"update canvas_events set created_at = {self._store.ago(2 * DAY)}")
        await CanvasLogRetention(self.canvases, DAY).once()

    async def forget_positions(self) -> None:
        """Let the last mentions of all references be unknown."""
        await self._store.sql("update artifact_refs set mentioned_seq = null")


@pytest.fixture
def shots(store: Store, contents: Contents) -> Shots:
    return Shots(store, contents)


@rule("RS-35")
async def test_picture_is_released_after_state_and_log_have_moved_on(
    store: Store, shots: Shots, release: ReferenceRelease
) -> None:
    await shots.create()
    pictures = [await shots.replace_picture() for _ in range(5)]
    assert await release.once() == 0, "the log still has all of them"
    await shots.trim_log()
    assert await release.once() == 4
    assert await references(store) == {pictures[-1]}
    assert await release.once() == 0


@rule("RS-35")
async def test_picture_in_the_state_outlives_its_events(
    store: Store, shots: Shots, release: ReferenceRelease
) -> None:
    await shots.create()
    first = await shots.replace_picture()
    for n in range(3):
        await shots.set_state(n=n)
    await shots.trim_log()
    assert await release.once() == 0
    await shots.set_state(shot=None)
    assert await release.once() == 0, "until the log moves past the last check"
    await shots.trim_log()
    assert await release.once() == 1
    assert first not in await references(store)


@rule("RS-35")
async def test_second_mention_in_the_log_keeps_the_reference(
    store: Store, shots: Shots, release: ReferenceRelease
) -> None:
    await shots.create()
    marker, picture = await shots.new_picture()
    await shots.set_state(shot=marker)
    await shots.set_state(shot=None)
    await shots.set_state(n=1)
    await shots.set_state(shot=marker)
    await shots.set_state(shot=None)
    await store.sql(
        f"update canvas_events set created_at = {store.ago(2 * DAY)} where seq < 5 and canvas_id = '{NAME}'"
    )
    await CanvasLogRetention(shots.canvases, DAY).once()
    assert await release.once() == 0
    assert await references(store) == {picture}


@rule("RS-35")
async def test_picture_in_the_spec_is_kept(store: Store, shots: Shots, release: ReferenceRelease) -> None:
    await shots.create()
    marker, picture = await shots.new_picture()
    await shots.canvases.change(
        OWNER,
        NAME,
        lambda snapshot: Change(
            events=[EVENTS.updated(snapshot.canvas.revision + 1, ["/spec"])], spec={"logo": marker}
        ),
    )
    for n in range(3):
        await shots.set_state(n=n)
    await shots.trim_log()
    assert await release.once() == 0
    assert await references(store) == {picture}


@rule("RS-35")
async def test_picture_in_the_spec_of_a_version_is_kept_as_long_as_the_version(
    store: Store, shots: Shots, release: ReferenceRelease
) -> None:
    async def set_spec(spec: dict[str, Any]) -> None:
        event = EVENTS.updated(2, ["$spec"])
        await shots.canvases.change(OWNER, NAME, lambda _: Change(events=[event], spec=spec))

    await shots.create()
    marker, picture = await shots.new_picture()
    await set_spec({"logo": marker})
    await set_spec({"logo": None})
    for _ in range(2):
        await shots.set_state(n=1)
        await shots.trim_log()
        assert await release.once() == 0
    assert await references(store) == {picture}
    await store.sql("delete from canvas_versions")
    await shots.set_state(n=2)
    await shots.trim_log()
    assert await release.once() == 1


@rule("RS-35", "CV-48")
@pytest.mark.parametrize("part", ["resolved", "answer"])
async def test_picture_in_a_record_or_pending_confirmation_is_kept_as_long_as_the_record(
    store: Store, shots: Shots, release: ReferenceRelease, part: str
) -> None:
    await shots.create()
    marker, picture = await shots.new_picture()
    asked = Execution(
        account_id=OWNER,
        canvas_id=NAME,
        event_id=new_event_id(),
        action_id="deploy",
        status=ExecutionStatus.ASKED,
        actor={},
        tool="Bash",
        owner_id=None,
        resolved={"args": marker} if part == "resolved" else None,
    )

    async def store_transition(transition: Transition) -> None:
        await shots.canvases.change(
            OWNER, NAME, lambda _: ExecutionChange(events=[], is_mutation=False, transition=transition)
        )

    await store_transition(Transition(asked))
    if part == "answer":
        running = replace(asked, status=ExecutionStatus.RUNNING, owner_id="ins_1")
        await store_transition(Transition(running, from_status=ExecutionStatus.ASKED))
        ended = replace(running, status=ExecutionStatus.COMPLETED, answer={"result": marker})
        await store_transition(Transition(ended, from_status=ExecutionStatus.RUNNING))
    for n in range(3):
        await shots.set_state(n=n)
    await shots.trim_log()
    assert await release.once() == 0
    assert await references(store) == {picture}
    await store.sql("delete from executions")  # as retention does after its end
    assert await release.once() == 1


@rule("RS-35")
async def test_references_of_an_older_release_are_released_one_log_later(
    store: Store, shots: Shots, release: ReferenceRelease
) -> None:
    await shots.create()
    pictures = [await shots.replace_picture() for _ in range(5)]
    await shots.forget_positions()
    assert await release.once() == 0, "an event may mention them"
    assert await references(store) == set(pictures)
    await shots.set_state(n=1)
    await shots.trim_log()
    assert await release.once() == 4
    assert await references(store) == {pictures[-1]}


@rule("RS-35")
async def test_record_of_an_older_release_keeps_all_references(
    store: Store, shots: Shots, release: ReferenceRelease
) -> None:
    await shots.create()
    await store.sql(
        "insert into executions (account_id, canvas_id, event_id, action_id, status, actor, created_at)"
        f" values ('owner', '{NAME}', 'evt_old', 'a', 'asked', '{{}}', {store.ago(0)})"
    )
    await shots.replace_picture()
    await shots.replace_picture()
    await shots.trim_log()
    assert await release.once() == 0
    await store.sql("delete from executions")
    assert await release.once() == 1


async def test_many_references_are_released_in_batches(
    store: Store, shots: Shots, release: ReferenceRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("easel.host.artifacts.references.BATCH_SIZE", 3)
    await shots.create()
    pictures = [await shots.replace_picture() for _ in range(8)]
    markers = {f"kept{n}": (await shots.new_picture())[0] for n in range(7)}
    for name, marker in markers.items():
        await shots.set_state(**{name: marker})
    await shots.trim_log()
    assert await release.once() == 7
    assert pictures[-1] in await references(store)
    assert len(await references(store)) == 8
    await shots.forget_positions()
    assert await release.once() == 0
    [row] = await store.sql("select count(*) as n from artifact_refs where mentioned_seq is null")
    assert row["n"] == 0


@rule("RS-35")
@pytest.mark.parametrize("is_mention_first", [True, False])
async def test_new_mention_that_races_with_the_release_keeps_its_reference(
    store: Store, shots: Shots, release: ReferenceRelease, is_mention_first: bool
) -> None:
    """Whichever is first, the state refers to an artifact that exists and has a reference."""
    await shots.create()
    for _ in range(10):
        marker, picture = await shots.new_picture()
        await shots.set_state(shot=marker)
        await shots.set_state(shot=None)
        await shots.set_state(n=1)
        await shots.trim_log()
        racers = [shots.set_state(shot=marker), release.once()]
        await asyncio.gather(*(racers if is_mention_first else racers[::-1]))
        assert picture in await references(store)
        assert await store.database.artifacts.get(OWNER, picture) is not None


@rule("RS-35")
@pytest.mark.parametrize("kind", ["postgres"])
async def test_release_waits_for_a_change_of_the_canvas_and_sees_its_mention(
    store: Store, shots: Shots, release: ReferenceRelease
) -> None:
    await shots.create()
    marker, picture = await shots.new_picture()
    await shots.set_state(shot=marker)
    await shots.set_state(shot=None)
    await shots.set_state(n=1)
    await shots.trim_log()
    async with other_connection(store) as other, other.transaction():
        await other.execute(f"select from canvases where canvas_id = '{NAME}' for update")
        releasing = asyncio.create_task(release.once())
        await wait_for_blocked_statement(other)
        # A mention without a position, which leaves the reference that exists as it is.
        await other.execute(
            f"update canvases set state = jsonb_build_object('shot', '{picture}'::text)"
            f" where canvas_id = '{NAME}'"
        )
    assert await releasing == 0
    assert await references(store) == {picture}


async def test_sweep_frees_what_was_released(store: Store, shots: Shots, release: ReferenceRelease) -> None:
    await shots.create()
    pictures = [await shots.replace_picture() for _ in range(5)]
    await shots.trim_log()
    await release.once()
    await store.sql(f"update artifacts set touched_at = {store.ago(DAY)}")
    artifacts = store.database.artifacts
    page = await artifacts.find_orphans(START, 60, 100)
    assert len(await artifacts.delete_orphans(page.keys, 60)) == 4
    rows = await store.sql("select artifact_id from artifacts")
    assert [row["artifact_id"] for row in rows] == [pictures[-1]]


# --- runs ---------------------------------------------------------------------------------------------------

BASE64 = "iVBORw0KGgoAAAANSUhEUgAAAAUA" * 120


async def end_run(
    store: Store, contents: Contents, text: str, answer: str, *, board_values: Sequence[Any] = ()
) -> RunId:
    """Execute a run with this question and answer, a long tool result, and values of one board key."""
    light = take_out_runs(text)
    new = replace(new_run(text=light.text), input_attachments=light.attachments)
    asked = question(new.run_id, light)
    await contents.store(OWNER, asked.offloaded)
    await store.runs.enqueue(replace(new, question=asked))
    [claim] = await store.runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    events = run_events(new.run_id)
    delta = events.delta(MessageId("msg_1"), "reading " + os.urandom(2_000).hex())
    for value in board_values:
        request = BoardWriteRequest(Board.WHITEBOARD, "k", value, "planner")
        write = prepare(request, LIMITS, account_id=OWNER, run_id=new.run_id, agent_id="main")
        await contents.store(OWNER, write.offloaded)
        await store.database.boards.write(write, None)
    reply = message(MessageId("msg_1"), answer)
    ending = events.end_with_message(MessageId("msg_1"), answer, Status.COMPLETED, None)
    await contents.store(
        OWNER, [value for event in (delta, *ending) for value in event.offloaded] + list(reply.offloaded)
    )
    assert await store.runs.append(Batch(claim, 1, [delta, *ending], Status.COMPLETED, None, reply))
    return new.run_id


async def prune(store: Store, run_id: RunId) -> None:
    await store.set_run_age(run_id, 120)
    await store.runs.prune(60)


@rule("RS-35")
async def test_run_releases_what_only_its_log_mentioned(
    store: Store, contents: Contents, release: ReferenceRelease
) -> None:
    run_id = await end_run(store, contents, "hello", "many words " * 1_000)
    assert len(await references(store)) == 2
    assert await release.once() == 0, "its log is complete"
    await prune(store, run_id)
    assert await release.once() == 2
    assert await references(store) == set()
    assert await release.once() == 0


@rule("RS-35", "RS-62")
async def test_run_keeps_what_its_messages_mention(
    store: Store, contents: Contents, release: ReferenceRelease
) -> None:
    """Also what is named in a text that was offloaded."""
    named = {name: OffloadedValue(ArtifactId("art_" + name * 64), b"") for name in "abcd"}
    await contents.store(OWNER, list(named.values()))
    question_text = f"Compare {named['a'].artifact_id} with {named['b'].artifact_id}: {BASE64}"
    answer = f"Like {named['c'].artifact_id}."
    run_id = await end_run(store, contents, question_text, answer)
    await prune(store, run_id)
    assert await release.once() == 1
    kept = await references(store)
    assert {named[name].artifact_id for name in "abc"} <= kept
    stored = await store.sql("select content, payload from messages")
    assert mentioned_artifacts(str(stored)) <= kept


@rule("RS-62")
async def test_run_keeps_what_its_input_mentions(
    store: Store, contents: Contents, release: ReferenceRelease
) -> None:
    """Also if the message of the input is not there."""
    named = OffloadedValue(ArtifactId("art_" + "a" * 64), b"")
    await contents.store(OWNER, [named])
    run_id = await end_run(store, contents, f"See {named.artifact_id} and {BASE64}", "done")
    [encoded] = take_out_runs(f"See {named.artifact_id} and {BASE64}").offloaded
    await store.sql("delete from messages")
    await prune(store, run_id)
    assert await release.once() >= 1
    assert await references(store) == {named.artifact_id, encoded.artifact_id}


@rule("RS-35")
async def test_run_keeps_the_last_value_of_a_board_and_releases_earlier_ones(
    store: Store, contents: Contents, release: ReferenceRelease
) -> None:
    values = [f"shot {n}: {BASE64}{n}" for n in range(4)]
    run_id = await end_run(store, contents, "hello", "done", board_values=values)
    last = offload_large_values(values[-1])[1][0].artifact_id
    await prune(store, run_id)
    assert await release.once() >= 3
    assert await references(store) == {last}


@rule("RS-35")
async def test_run_whose_offloaded_text_cannot_be_read_keeps_all_references(
    store: Store, contents: Contents, release: ReferenceRelease
) -> None:
    run_id = await end_run(store, contents, f"See {BASE64}", "done")
    before = await references(store)
    contents.lose()
    await prune(store, run_id)
    assert await release.once() == 0
    assert await references(store) == before


async def test_checked_run_is_not_read_again(
    store: Store, contents: Contents, release: ReferenceRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("easel.host.artifacts.references.BATCH_SIZE", 2)
    for n in range(3):
        await prune(store, await end_run(store, contents, f"See {n} {BASE64}", "many words " * 1_000))
    assert await release.once() == 6
    pages = await store.database.references.find_pruned_runs(RunId(""), 100)
    assert (pages.run_ids, pages.next) == ([], None)
    assert len(await references(store)) > 0


@rule("CT-51")
async def test_artifact_in_a_hidden_message_is_kept_as_long_as_the_run(
    store: Store, contents: Contents, release: ReferenceRelease
) -> None:
    new = new_run()
    await store.runs.enqueue(new)
    [claim] = await store.runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    update = message(MessageId("upd_1"), f"+{b64encode(os.urandom(3_000)).decode()}", role="user")
    [offloaded] = update.offloaded
    await contents.store(OWNER, [offloaded])
    events = run_events(claim.run_id)
    closing = events.end_with_message(MessageId("msg_1"), "done", Status.COMPLETED, None)
    assert await store.runs.append(Batch(claim, 1, closing, Status.COMPLETED, hidden=[update]))
    assert await references(store) == {offloaded.artifact_id}
    await store.set_run_age(claim.run_id, DAY)
    assert await store.runs.prune(1) == [claim.run_id]
    await release.once()
    assert await references(store) == {offloaded.artifact_id}
