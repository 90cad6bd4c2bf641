"""The board service: authors of writes, offloaded values, and claims that were lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import structlog.testing

from easel.core.run.boards import Board, BoardLimits, BoardWriteRequest
from easel.core.run.run import ClaimLost
from easel.core.run.status import Status
from easel.core.stream.notifications import RunAppended
from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition
from easel.errors import BadInput, NotFound, Unavailable
from easel.host.artifacts.artifacts import Artifacts
from easel.host.boards.service import Boards
from easel.host.boards.tools import BLACKBOARD_WRITE, WHITEBOARD_WRITE, board_tools
from easel.ids import OWNER, AccountId, ArtifactId, RunId, WorkerId, new_run_id
from easel.stores.blobs.store import open_blobs
from tests.host.conftest import TestTool
from tests.host.runs.workers import script, wait_until_ended, working
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER, person
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from easel.core.stream.notifications import Notification
    from easel.core.stream.payload_limit import OffloadedValue
    from tests.host.conftest import RunHarness, TurnableClock

LIMITS = BoardLimits(value_bytes=50_000, keys=20, run_bytes=200_000)
WHITE = BoardWriteRequest(Board.WHITEBOARD, "plan", {"steps": 3}, "planner")


@pytest.fixture
def artifacts(harness: RunHarness, tmp_path: Path) -> Artifacts:
    return Artifacts(
        harness.database.artifacts,
        open_blobs(str(tmp_path / "blobs")),
        max_bytes=1_000_000,
        grace_seconds=3600,
    )


@pytest.fixture
def boards(harness: RunHarness, artifacts: Artifacts) -> Boards:
    return Boards(harness.database.boards, artifacts, harness.database.notifier, LIMITS)


async def events_of(harness: RunHarness, run_id: RunId, event_type: str) -> list[dict[str, Any]]:
    return [
        msgspec.json.decode(event.data) for event in await harness.log(run_id) if event.type == event_type
    ]


async def run_script(
    harness: RunHarness, boards: Boards, *steps: dict[str, Any]
) -> tuple[RunId, list[dict[str, Any]]]:
    """Run this script to its end. Returns the run and the results of its tools."""
    run_id = await harness.start(script(*steps))
    async with working(harness.worker(*board_tools(boards))):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.COMPLETED, run.error_message
    return run_id, await events_of(harness, run_id, "tool.result")


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"call": f"gsv__{tool}", "args": args}


# --- people -------------------------------------------------------------------------------------------------


@rule("CC-16", "CC-17", "CC-22")
@case("P4")
async def test_write_of_a_person_has_the_signed_in_user_as_author(harness: RunHarness, boards: Boards):
    await harness.database.write(
        lambda connection: connection.execute("insert into accounts (account_id) values ('ada')").fetchall()
    )
    ada = person("ada", "Ada")
    run = await harness.queue.start(ada, "talk", "noop")
    await boards.write(ada, run.run_id, WHITE)
    [event] = await events_of(harness, run.run_id, "whiteboard.write")
    assert event["provenance"] == {
        "kind": "person",
        "agent_id": "ada",
        "node_id": "planner",
        "run_id": run.run_id,
    }
    with pytest.raises(NotFound):
        await boards.write(THE_OWNER, run.run_id, WHITE)
    with pytest.raises(NotFound):
        await boards.read_all(OWNER, run.run_id, Board.WHITEBOARD, None)


async def test_write_notifies_with_the_position_of_its_event(harness: RunHarness, boards: Boards):
    notifications: list[Notification] = []
    harness.database.notifier.listen(notifications.append)
    run_id = await harness.start("noop")
    written = await boards.write(THE_OWNER, run_id, WHITE)

    async def is_notified() -> bool:
        return RunAppended(run_id, written.seq) in notifications

    await wait_for(is_notified)


@rule("CC-27")
async def test_whiteboard_is_read_with_and_without_the_global_edge(harness: RunHarness, boards: Boards):
    run_id = await harness.start("noop")
    await boards.write(THE_OWNER, run_id, WHITE)
    found = await boards.read(OWNER, run_id, Board.WHITEBOARD, "plan", None)
    assert msgspec.json.decode(found.value) == {"steps": 3}
    assert await boards.read(OWNER, run_id, Board.WHITEBOARD, "plan", "global") == found
    assert await boards.read_all(OWNER, run_id, Board.WHITEBOARD, None) == [found]
    assert await boards.read_all(OWNER, run_id, Board.WHITEBOARD, "global") == [found]


@rule("CC-20", "CC-28")
async def test_blackboard_value_is_read_with_its_edge(harness: RunHarness, boards: Boards):
    run_id = await harness.start("noop")
    for edge_id in ("a-b", "b-c"):
        await boards.write(THE_OWNER, run_id, BoardWriteRequest(Board.BLACKBOARD, "k", edge_id, "a", edge_id))
    assert (await boards.read(OWNER, run_id, Board.BLACKBOARD, "k", "b-c")).value == '"b-c"'
    assert len(await boards.read_all(OWNER, run_id, Board.BLACKBOARD, None)) == 2
    assert len(await boards.read_all(OWNER, run_id, Board.BLACKBOARD, "a-b")) == 1
    with pytest.raises(BadInput, match="edge_id"):
        await boards.read(OWNER, run_id, Board.BLACKBOARD, "k", None)
    with pytest.raises(BadInput, match="global"):
        await boards.read_all(OWNER, run_id, Board.BLACKBOARD, "global")


async def test_unknown_run_and_unknown_key_are_different_errors(harness: RunHarness, boards: Boards):
    run_id = await harness.start("noop")
    with pytest.raises(NotFound, match="whiteboard key nothing"):
        await boards.read(OWNER, run_id, Board.WHITEBOARD, "nothing", None)
    for unknown in (new_run_id(), "none", "../.."):
        with pytest.raises(NotFound, match="run"):
            await boards.read(OWNER, unknown, Board.WHITEBOARD, "k", None)
        with pytest.raises(NotFound, match="run"):
            await boards.write(THE_OWNER, unknown, WHITE)


# --- large values -------------------------------------------------------------------------------------------


@rule("CC-23", "CC-26", "RS-35")
@case("R3")
async def test_offloaded_value_is_stored_and_its_marker_names_the_exact_bytes(
    harness: RunHarness, boards: Boards, artifacts: Artifacts
):
    pixels, text = "iVBORw0KGgoAAAANSUhEUgAA" * 400, "Plain words, and many of them. " * 300
    run_id = await harness.start("noop")
    await boards.write(
        THE_OWNER,
        run_id,
        BoardWriteRequest(Board.WHITEBOARD, "shot", {"pixels": pixels, "text": text}, "camera"),
    )

    async def fetched(marker: dict[str, Any]) -> bytes:
        assert marker["redacted"] is True
        return await artifacts.read(OWNER, ArtifactId(marker["uri"].rpartition("/")[2]))

    [found] = await boards.read_all(OWNER, run_id, Board.WHITEBOARD, None)
    value = msgspec.json.decode(found.value)
    assert value["text"] == text, "long plain text stays whole on a board"
    assert (await fetched(value["pixels"])).decode() == pixels
    [event] = await events_of(harness, run_id, "whiteboard.write")
    assert len(msgspec.json.encode(event)) < 2_500
    assert (await fetched(event["value"]["pixels"])).decode() == pixels
    assert (await fetched(event["value"]["text"])).decode() == text
    stored = await harness.database.read(
        lambda connection: [tuple(row) for row in connection.execute("select * from boards, run_events")]
    )
    assert pixels[:2_100] not in str(stored)
    referred = await harness.database.read(
        lambda connection: connection.execute("select artifact_id from artifact_refs").fetchall()
    )
    assert len(referred) == 2


class UnavailableArtifacts:
    """Artifacts whose object store is unavailable."""

    async def store(self, account_id: AccountId, offloaded: Sequence[OffloadedValue]) -> None:
        raise Unavailable(what="The object store")

    async def read(self, account_id: AccountId, artifact_id: ArtifactId) -> bytes:
        raise Unavailable(what="The object store")

    async def size_of(self, account_id: AccountId, artifact_id: ArtifactId) -> int:
        raise Unavailable(what="The object store")


@case("D7")
async def test_write_fails_when_its_offloaded_value_cannot_be_stored(harness: RunHarness):
    boards = Boards(harness.database.boards, UnavailableArtifacts(), harness.database.notifier, LIMITS)
    run_id = await harness.start("noop")
    with pytest.raises(Unavailable):
        await boards.write(
            THE_OWNER, run_id, BoardWriteRequest(Board.WHITEBOARD, "k", "iVBORw0KGgoAAAANSUhEUgAA" * 400, "n")
        )
    assert await boards.read_all(OWNER, run_id, Board.WHITEBOARD, None) == []
    assert await harness.log(run_id) == []
    await boards.write(THE_OWNER, run_id, WHITE)  # a small value needs no object store


# --- agents -------------------------------------------------------------------------------------------------


@rule("CC-16", "CC-17", "CC-18", "CC-27")
async def test_agent_writes_and_reads_the_whiteboard_of_its_run(harness: RunHarness, boards: Boards):
    run_id, results = await run_script(
        harness,
        boards,
        call("WhiteboardWrite", key="plan", value=[1, {"a": None}]),
        call("WhiteboardRead", key="plan"),
        call(
            "WhiteboardWrite",
            key="plan",
            value="$last.value",
            expected_version="$last.version",
            node_id="writer",
        ),
        call("WhiteboardRead"),
    )
    assert [result["result"] for result in results] == [
        {"key": "plan", "version": 1},
        {
            "key": "plan",
            "version": 1,
            "value": [1, {"a": None}],
            "written_by": {"kind": "agent", "agent_id": "main", "node_id": "tool_loop"},
        },
        {"key": "plan", "version": 2},
        {
            "entries": [
                {
                    "key": "plan",
                    "version": 2,
                    "value": [1, {"a": None}],
                    "written_by": {"kind": "agent", "agent_id": "main", "node_id": "writer"},
                }
            ]
        },
    ]
    events = await events_of(harness, run_id, "whiteboard.write")
    assert [event["provenance"] for event in events] == [
        {"kind": "agent", "agent_id": "main", "node_id": "tool_loop", "run_id": run_id},
        {"kind": "agent", "agent_id": "main", "node_id": "writer", "run_id": run_id},
    ]
    types = [
        event_type
        for event_type in await harness.types(run_id)
        if event_type in ("tool.call", "whiteboard.write", "tool.result")
    ]
    assert types[:3] == ["tool.call", "whiteboard.write", "tool.result"], "a call is logged before it is made"


@rule("CC-20", "CC-28")
async def test_agent_writes_and_reads_the_blackboard_by_edge(harness: RunHarness, boards: Boards):
    run_id, results = await run_script(
        harness,
        boards,
        call("BlackboardWrite", edge_id="a-b", key="k", value=1),
        call("BlackboardWrite", edge_id="b-c", key="k", value=2),
        call("BlackboardRead", edge_id="a-b", key="k"),
        call("BlackboardRead", edge_id="b-c"),
        call("BlackboardRead"),
    )
    assert results[0]["result"] == {"key": "k", "edge_id": "a-b", "version": 1}
    assert (results[2]["result"]["value"], results[2]["result"]["edge_id"]) == (1, "a-b")
    assert [entry["value"] for entry in results[3]["result"]["entries"]] == [2]
    assert [entry["edge_id"] for entry in results[4]["result"]["entries"]] == ["a-b", "b-c"]
    events = await events_of(harness, run_id, "blackboard.write")
    assert [event["provenance"]["edge_id"] for event in events] == ["a-b", "b-c"]


REFUSED_CALLS = [
    # case tool args error
    ("no edge", "BlackboardWrite", {"key": "k", "value": 1}, "edge_id"),
    ("the global edge", "BlackboardWrite", {"edge_id": "global", "key": "k", "value": 1}, "global"),
    ("an edge on the whiteboard", "WhiteboardWrite", {"key": "k", "value": 1, "edge_id": "a-b"}, "edge_id"),
    ("another agent", "WhiteboardWrite", {"key": "k", "value": 1, "agent_id": "root"}, "agent_id"),
    ("another run", "WhiteboardWrite", {"key": "k", "value": 1, "run_id": "run_2"}, "run_id"),
    ("provenance of its own", "WhiteboardWrite", {"key": "k", "value": 1, "provenance": {}}, "provenance"),
    ("an empty node", "WhiteboardWrite", {"key": "k", "value": 1, "node_id": ""}, "node_id"),
    ("no value", "WhiteboardWrite", {"key": "k"}, "value"),
    ("no key", "WhiteboardWrite", {"value": 1}, "key"),
    (
        "a version below 0",
        "WhiteboardWrite",
        {"key": "k", "value": 1, "expected_version": -1},
        "expected_version",
    ),
    (
        "another version",
        "WhiteboardWrite",
        {"key": "k", "value": 1, "expected_version": 4},
        "Expected version 4",
    ),
    ("a value too large", "WhiteboardWrite", {"key": "k", "value": "x" * 50_000}, "larger than the limit"),
    ("a key without its edge", "BlackboardRead", {"key": "k"}, "edge_id"),
    ("an unknown key", "WhiteboardRead", {"key": "k"}, "no whiteboard key k"),
]


@rule("CC-16", "CC-17", "CC-18", "CC-20", "CC-21")
@case("P4")
async def test_invalid_call_returns_an_error_to_the_model_and_changes_nothing(
    harness: RunHarness, boards: Boards
):
    run_id, results = await run_script(
        harness, boards, *(call(tool, **args) for _, tool, args, _ in REFUSED_CALLS)
    )
    for (name, _, _, error), result in zip(REFUSED_CALLS, results, strict=True):
        assert error in result.get("error", ""), name
    assert await events_of(harness, run_id, "whiteboard.write") == []
    assert await boards.read_all(OWNER, run_id, Board.BLACKBOARD, None) == []


@rule("RS-35")
async def test_agent_reads_an_offloaded_value_whole(harness: RunHarness, boards: Boards):
    written = {"pixels": "iVBORw0KGgoAAAANSUhEUgAA" * 200, "redacted": True}
    run_id = await harness.start(
        script(call("WhiteboardRead", key="k"), call("WhiteboardWrite", key="copy", value="$last.value"))
    )
    await boards.write(THE_OWNER, run_id, BoardWriteRequest(Board.WHITEBOARD, "k", written, "camera"))
    async with working(harness.worker(*board_tools(boards))):
        await wait_until_ended(harness, run_id)
    stored, copy = await boards.read_all(OWNER, run_id, Board.WHITEBOARD, None)
    assert stored.value == copy.value
    assert "iVBORw0KGgo" not in stored.value
    assert await boards.restore(OWNER, copy) == written


async def test_board_over_the_result_limit_is_read_key_by_key(harness: RunHarness, boards: Boards):
    """The result of a tool has its own limit: 10,000 bytes here."""
    writes = [call("WhiteboardWrite", key=f"k{nth}", value="x" * 4_000) for nth in range(3)]
    _, results = await run_script(
        harness, boards, *writes, call("WhiteboardRead"), call("WhiteboardRead", key="k2")
    )
    assert "ask for less" in results[3]["error"]
    assert results[4]["result"]["version"] == 1


@rule("RS-38")
def test_board_tools_declare_their_effects(boards: Boards) -> None:
    definitions = [tool.definition for tool in board_tools(boards)]
    assert {tool.name: (tool.read_only, tool.idempotent, tool.destructive) for tool in definitions} == {
        "gsv__WhiteboardRead": (True, False, False),
        "gsv__WhiteboardWrite": (False, False, False),
        "gsv__BlackboardRead": (True, False, False),
        "gsv__BlackboardWrite": (False, False, False),
    }
    assert not WHITEBOARD_WRITE.may_repeat
    assert not BLACKBOARD_WRITE.may_repeat


# --- a lost claim -------------------------------------------------------------------------------------------


async def take_over(harness: RunHarness, clock: TurnableClock) -> None:
    """Let another worker claim the run."""
    clock.ahead += 100
    assert len(await harness.runs.claim_expired(WorkerId("wrk_other"), 10, 3600)) == 1


@case("J7")
@rule("RX-13", "RS-39")
async def test_agent_without_a_claim_writes_nothing(
    harness: RunHarness, boards: Boards, clock: TurnableClock
):
    run_id = await harness.start("noop")
    [claim] = await harness.runs.claim_queued(WorkerId("wrk_slow"), 1, 15, 0)
    await boards.write(ToolContext.of_run(claim).principal, run_id, WHITE, claim)
    await take_over(harness, clock)
    with pytest.raises(ClaimLost):
        await boards.write(ToolContext.of_run(claim).principal, run_id, WHITE, claim)
    assert [event["version"] for event in await events_of(harness, run_id, "whiteboard.write")] == [1]


@dataclass
class LateWrite:
    """Loses the claim of its run, and then writes."""

    harness: RunHarness
    boards: Boards
    clock: TurnableClock
    has_written: bool = False
    definition: ToolDefinition = field(
        default_factory=lambda: ToolDefinition("late", "For a test.", {"type": "object"})
    )

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        await take_over(self.harness, self.clock)
        await self.boards.write(context.principal, context.run.run_id, WHITE, context.run)
        self.has_written = True


@case("J7")
@rule("RX-13", "RS-39")
async def test_worker_stops_a_run_when_its_tool_finds_the_claim_lost(
    harness: RunHarness, boards: Boards, clock: TurnableClock
):
    late = LateWrite(harness, boards, clock)
    run_id = await harness.start(script({"call": "late"}, {"say": "never written"}))
    with structlog.testing.capture_logs() as lines:

        async def is_stopped() -> bool:
            return any(line["event"] == "run.claim_lost" for line in lines)

        async with working(harness.worker(late, claim_seconds=30)):
            await wait_for(is_stopped)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == []
    run = await harness.run(run_id)
    assert not late.has_written
    assert (run.status, run.attempt) == (Status.RUNNING, 2), "the run of the other worker is not changed"
    assert await harness.types(run_id) == ["run.start", "step.completed", "tool.call"]


async def test_tool_gets_the_context_of_its_run(harness: RunHarness):
    seen: list[ToolContext] = []

    class RecordingTool(TestTool):
        async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
            seen.append(context)

    async def nothing(_: Mapping[str, Any]) -> Any:
        return None

    run_id = await harness.start(script({"call": "t"}))
    async with working(harness.worker(RecordingTool("t", nothing))):
        await wait_until_ended(harness, run_id)
    [context] = seen
    assert (context.run.run_id, context.account_id, context.run.attempt) == (run_id, OWNER, 1)
