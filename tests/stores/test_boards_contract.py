"""Boards on every store: a write, its version and its event are atomic under contention."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.run.boards import (
    Board,
    BoardKey,
    BoardLimits,
    BoardValue,
    BoardWrite,
    BoardWriteRequest,
    Written,
    prepare,
)
from easel.core.run.status import Status
from easel.core.stream.envelope import Visibility
from easel.errors import BoardFull, RunFinished, VersionConflict
from easel.ids import OWNER, AccountId, ArtifactId, RunId, new_run_id
from tests.requirements import case, rule
from tests.stores.harness import (
    CLAIM_SECONDS,
    CONSTRAINT_ERRORS,
    B,
    Store,
    assert_stored,
    closing_events,
    decode_payload,
    delta_batch,
    ending_batch,
    event_types,
    get_run,
    new_run,
    open_store,
    read_log,
    start_run,
)

if TYPE_CHECKING:
    from pathlib import Path

    from easel.core.run.run import Claim
    from easel.host.ports import BoardStore, RunStore

LIMITS = BoardLimits(value_bytes=100_000, keys=1_000, run_bytes=1_000_000)
WRITERS = 50
ROUNDS = 4
RACE_TIMEOUT_SECONDS = 60.0


@pytest.fixture
def boards(store: Store) -> BoardStore:
    return store.database.boards


def whiteboard_write(
    run_id: RunId,
    key: str = "k",
    value: Any = 1,
    *,
    expected: int | None = None,
    user: AccountId = OWNER,
    limits: BoardLimits = LIMITS,
) -> BoardWrite:
    request = BoardWriteRequest(Board.WHITEBOARD, key, value, "planner", expected_version=expected)
    return prepare(request, limits, account_id=user, run_id=run_id, agent_id="main")


def blackboard_write(
    run_id: RunId, edge_id: str, key: str = "k", value: Any = 1, *, expected: int | None = None
) -> BoardWrite:
    request = BoardWriteRequest(Board.BLACKBOARD, key, value, "planner", edge_id, expected)
    return prepare(request, LIMITS, account_id=OWNER, run_id=run_id, agent_id="main")


async def write_value(boards: BoardStore, write: BoardWrite, claim: Claim | None = None) -> Written:
    written = await boards.write(write, claim)
    assert written is not None
    return written


async def read_values(
    boards: BoardStore, run_id: RunId, board: Board, edge_id: str | None = None, key: str | None = None
) -> list[BoardValue]:
    found = await boards.read(OWNER, run_id, board, edge_id=edge_id, key=key)
    assert found is not None
    return found


async def read_value(boards: BoardStore, run_id: RunId, key: str = "k") -> Any:
    [found] = await read_values(boards, run_id, Board.WHITEBOARD, key=key)
    return msgspec.json.decode(found.value)


# --- one write ----------------------------------------------------------------------------------------------


@rule("CC-09", "CC-16", "CC-22")
async def test_write_stores_a_value_and_an_event_of_the_run(runs: RunStore, boards: BoardStore) -> None:
    claim = await start_run(runs)
    assert_stored(await runs.append(delta_batch(claim, 1, "before")))
    written = await write_value(boards, whiteboard_write(claim.run_id, "plan", {"steps": [1, 2]}))
    assert (written.version, written.seq) == (1, 2)
    event = (await read_log(runs, claim.run_id))[-1]
    assert (event.seq, event.type, event.visibility) == (2, "whiteboard.write", Visibility.PUBLIC)
    assert decode_payload(event) == {
        "key": "plan",
        "value": {"steps": [1, 2]},
        "version": 1,
        "source_node_id": "planner",
        "visibility": "public",
        "provenance": {"kind": "agent", "agent_id": "main", "node_id": "planner", "run_id": claim.run_id},
    }
    [found] = await read_values(boards, claim.run_id, Board.WHITEBOARD)
    assert found.board_key == BoardKey(Board.WHITEBOARD, "global", "plan")
    assert (msgspec.json.decode(found.value), found.version, found.agent_id, found.node_id) == (
        {"steps": [1, 2]},
        1,
        "main",
        "planner",
    )
    assert (found.created_at, found.updated_at) == (written.created_at, written.updated_at)


@rule("CC-20")
async def test_blackboard_event_has_its_edge(runs: RunStore, boards: BoardStore) -> None:
    claim = await start_run(runs)
    await write_value(boards, blackboard_write(claim.run_id, "a-b"))
    [event] = await read_log(runs, claim.run_id)
    assert event.type == "blackboard.write"
    assert (decode_payload(event)["edge_id"], decode_payload(event)["provenance"]["edge_id"]) == (
        "a-b",
        "a-b",
    )


async def test_versions_count_from_one_and_are_in_the_event(runs: RunStore, boards: BoardStore) -> None:
    claim = await start_run(runs)
    answers = [await write_value(boards, whiteboard_write(claim.run_id, value=nth)) for nth in range(12)]
    assert [answer.version for answer in answers] == list(range(1, 13))
    assert [answer.seq for answer in answers] == list(range(1, 13))
    assert [decode_payload(event)["version"] for event in await read_log(runs, claim.run_id)] == list(
        range(1, 13)
    )
    assert {answer.created_at for answer in answers} == {answers[0].created_at}
    assert [answer.updated_at for answer in answers] == sorted(answer.updated_at for answer in answers)
    assert await read_value(boards, claim.run_id) == 11


VALUES = [
    None,
    False,
    0,
    -1.5,
    1.0,
    2**70,
    "",
    "näïve \u2028 \U0001f469\u200d\U0001f680",
    [],
    {},
    {"b": 1, "a": [None, {"": ""}]},
]


@pytest.mark.parametrize("given", VALUES, ids=repr)
async def test_every_json_value_is_read_back_unchanged(
    runs: RunStore, boards: BoardStore, given: Any
) -> None:
    claim = await start_run(runs)
    write = whiteboard_write(claim.run_id, value=given)
    await write_value(boards, write)
    [found] = await read_values(boards, claim.run_id, Board.WHITEBOARD)
    assert found.value == write.value
    assert msgspec.json.decode(found.value) == given
    [event] = await read_log(runs, claim.run_id)
    assert decode_payload(event)["value"] == given


async def test_board_returns_numbers_as_written(runs: RunStore, boards: BoardStore) -> None:
    """Not as 1 with 308 zeros, which is fifty times as long."""
    claim = await start_run(runs)
    await write_value(boards, whiteboard_write(claim.run_id, value=[1e308, 1e-300]))
    [found] = await read_values(boards, claim.run_id, Board.WHITEBOARD)
    assert found.value == "[1e308,1e-300]"


@pytest.mark.parametrize("odd", ["nul \x00 inside", "half \ud800 a pair"])
async def test_characters_that_a_database_cannot_store_are_replaced(
    runs: RunStore, boards: BoardStore, odd: str
) -> None:
    claim = await start_run(runs)
    await write_value(boards, whiteboard_write(claim.run_id, value={odd: odd}))
    [(name, text)] = (await read_value(boards, claim.run_id)).items()
    assert name == text == odd.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")


# --- scope --------------------------------------------------------------------------------------------------


@rule("CC-28")
async def test_same_key_on_another_edge_is_another_value(runs: RunStore, boards: BoardStore) -> None:
    claim = await start_run(runs)
    for edge_id, given in (("a-b", 1), ("b-a", 2), ("a-b", 3)):
        await write_value(boards, blackboard_write(claim.run_id, edge_id, value=given))
    await write_value(boards, whiteboard_write(claim.run_id, value=4))
    found = await read_values(boards, claim.run_id, Board.BLACKBOARD)
    assert [(entry.board_key.edge_id, entry.value, entry.version) for entry in found] == [
        ("a-b", "3", 2),
        ("b-a", "2", 1),
    ]
    [entry] = await read_values(boards, claim.run_id, Board.BLACKBOARD, edge_id="b-a", key="k")
    assert entry.value == "2"
    assert [entry.value for entry in await read_values(boards, claim.run_id, Board.WHITEBOARD)] == ["4"]


@rule("CC-21")
async def test_database_refuses_an_edge_on_the_whiteboard_and_none_on_the_blackboard(
    store: Store, runs: RunStore, boards: BoardStore
) -> None:
    claim = await start_run(runs)
    await write_value(boards, whiteboard_write(claim.run_id))
    with pytest.raises(CONSTRAINT_ERRORS, match="whiteboard_is_global"):
        await store.sql("update boards set edge_id = 'a-b'")
    with pytest.raises(CONSTRAINT_ERRORS, match="whiteboard_is_global"):
        await store.sql("update boards set board = 'blackboard'")


async def test_values_are_sorted_by_edge_and_key(runs: RunStore, boards: BoardStore) -> None:
    claim = await start_run(runs)
    for edge_id, key in (("b", "é"), ("b", "Z"), ("a", "z"), ("b", "a"), ("B", "a")):
        await write_value(boards, blackboard_write(claim.run_id, edge_id, key))
    found = await read_values(boards, claim.run_id, Board.BLACKBOARD)
    assert [(entry.board_key.edge_id, entry.board_key.key) for entry in found] == [
        ("B", "a"),
        ("a", "z"),
        ("b", "Z"),
        ("b", "a"),
        ("b", "é"),
    ]
    assert [
        entry.board_key.key
        for entry in await read_values(boards, claim.run_id, Board.BLACKBOARD, edge_id="b")
    ] == [
        "Z",
        "a",
        "é",
    ]


async def test_board_without_values_is_empty_and_missing_run_has_none(
    runs: RunStore, boards: BoardStore
) -> None:
    claim = await start_run(runs)
    await write_value(boards, blackboard_write(claim.run_id, "a-b"))
    assert await read_values(boards, claim.run_id, Board.WHITEBOARD) == []
    assert await read_values(boards, claim.run_id, Board.BLACKBOARD, edge_id="b-c") == []
    assert await boards.read(OWNER, new_run_id(), Board.WHITEBOARD, edge_id=None, key=None) is None


@rule("RX-54")
@case("O10")
async def test_boards_of_another_user_cannot_be_read_or_written(
    store: Store, runs: RunStore, boards: BoardStore
) -> None:
    mallory = await store.add_user("mallory")
    theirs = (await runs.enqueue(new_run(user=mallory))).run
    await write_value(boards, whiteboard_write(theirs.run_id, user=mallory))
    assert await boards.write(whiteboard_write(theirs.run_id, value="mine now")) is None
    assert await boards.write(whiteboard_write(theirs.run_id, expected=7)) is None, (
        "a version conflict must not reveal that it exists"
    )
    assert await boards.write(whiteboard_write(new_run_id())) is None
    assert await boards.read(OWNER, theirs.run_id, Board.WHITEBOARD, edge_id=None, key=None) is None
    [found] = await boards.read(mallory, theirs.run_id, Board.WHITEBOARD, edge_id=None, key=None) or []
    assert (found.value, found.version) == ("1", 1)
    assert (await get_run(runs, theirs.run_id, mallory)).last_seq == 1


# --- the status of the run ----------------------------------------------------------------------------------


async def test_queued_run_accepts_board_writes_and_its_log_continues(
    runs: RunStore, boards: BoardStore
) -> None:
    run = (await runs.enqueue(new_run())).run
    await write_value(boards, whiteboard_write(run.run_id))
    [claim] = await runs.claim_queued(B, 1, CLAIM_SECONDS, 0)
    assert claim.last_seq == 1
    assert_stored(await runs.append(delta_batch(claim, 1, "a")))
    await write_value(boards, whiteboard_write(run.run_id))
    assert_stored(await runs.append(ending_batch(claim, 2)))
    assert await event_types(runs, run.run_id) == [
        "whiteboard.write",
        "message.delta",
        "whiteboard.write",
        "message.completed",
        "run.status",
        "done",
    ]


@rule("RX-28")
@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
async def test_board_write_after_the_end_is_refused(
    runs: RunStore, boards: BoardStore, status: Status
) -> None:
    claim = await start_run(runs)
    await write_value(boards, whiteboard_write(claim.run_id, value="kept"))
    assert_stored(
        await runs.append(ending_batch(claim, 1, status, "why" if status is Status.FAILED else None))
    )
    with pytest.raises(RunFinished) as recorded:
        await boards.write(whiteboard_write(claim.run_id, value="too late"))
    assert recorded.value.details["status"] == status.value
    assert (await event_types(runs, claim.run_id))[-1] == "done"
    assert await read_value(boards, claim.run_id) == "kept"


@rule("RX-28")
async def test_done_is_the_last_event_when_a_write_races_with_a_cancel(
    runs: RunStore, boards: BoardStore
) -> None:
    async def attempt(run_id: RunId) -> Written | None:
        try:
            return await write_value(boards, whiteboard_write(run_id))
        except RunFinished:
            return None

    async def drill(nth: int) -> None:
        run = (await runs.enqueue(new_run(f"s{nth}"))).run
        asks = [attempt(run.run_id), runs.request_cancel(OWNER, run.run_id, closing_events(run.run_id))]
        answers = await asyncio.gather(*(asks if nth % 2 else reversed(asks)))
        written = answers[0 if nth % 2 else 1]
        assert await event_types(runs, run.run_id) == (["whiteboard.write"] if written else []) + [
            "run.status",
            "done",
        ]

    async with asyncio.timeout(RACE_TIMEOUT_SECONDS):
        await asyncio.gather(*(drill(nth) for nth in range(40)))


async def test_boards_are_deleted_with_their_run(store: Store, runs: RunStore, boards: BoardStore) -> None:
    claim = await start_run(runs)
    await write_value(boards, whiteboard_write(claim.run_id))
    await store.sql(f"delete from runs where run_id = '{claim.run_id}'")
    assert await store.sql("select * from boards") == []


@rule("CC-09")
async def test_values_and_versions_survive_a_restart(kind: str, url: str, tmp_path: Path) -> None:
    first = await open_store(kind, folder=tmp_path, database_url=url)
    await first.empty()
    claim = await start_run(first.runs)
    for given in ("old", "new"):
        await write_value(first.database.boards, whiteboard_write(claim.run_id, value=given))
    await first.close()
    second = await open_store(kind, folder=tmp_path, database_url=url)
    try:
        assert await read_value(second.database.boards, claim.run_id) == "new"
        assert (
            await write_value(second.database.boards, whiteboard_write(claim.run_id, expected=2))
        ).version == 3
    finally:
        await second.close()


# --- fencing of the agent's own writes ----------------------------------------------------------------------


@rule("RX-13", "RS-39")
async def test_worker_with_the_claim_can_write_boards(runs: RunStore, boards: BoardStore) -> None:
    claim = await start_run(runs)
    await write_value(boards, whiteboard_write(claim.run_id), claim)
    assert_stored(await runs.append(delta_batch(claim, 1, "its batches go on")))
    await write_value(boards, whiteboard_write(claim.run_id), claim)
    assert_stored(await runs.append(delta_batch(claim, 2, "and on")))
    assert [event.seq for event in await read_log(runs, claim.run_id)] == [1, 2, 3, 4]


@case("J7")
@rule("RX-13", "RS-39")
@pytest.mark.parametrize(
    "loss", ["ran out", "taken over", "another attempt", "another worker", "handed back"]
)
async def test_worker_without_the_claim_cannot_write_boards(
    store: Store, runs: RunStore, boards: BoardStore, loss: str
) -> None:
    claim = await start_run(runs)
    match loss:
        case "ran out":
            await store.expire_claim(claim.run_id)
        case "taken over":
            await store.expire_claim(claim.run_id)
            await runs.claim_expired(B, 1, CLAIM_SECONDS)
        case "another attempt":
            claim = replace(claim, attempt=2)
        case "another worker":
            claim = replace(claim, worker_id=B)
        case _:
            await runs.release_claim(claim)
    before = (await get_run(runs, claim.run_id)).last_seq
    assert await boards.write(whiteboard_write(claim.run_id), claim) is None
    assert await read_values(boards, claim.run_id, Board.WHITEBOARD) == []
    assert (await get_run(runs, claim.run_id)).last_seq == before
    assert (await write_value(boards, whiteboard_write(claim.run_id))).version == 1, "a person needs no claim"


# --- versions under contention ------------------------------------------------------------------------------


async def attempt(boards: BoardStore, write: BoardWrite) -> Written | VersionConflict:
    try:
        return await write_value(boards, write)
    except VersionConflict as conflict:
        return conflict


@rule("CC-16")
async def test_one_of_fifty_writers_with_the_same_expected_version_wins(
    runs: RunStore, boards: BoardStore
) -> None:
    claim = await start_run(runs)
    async with asyncio.timeout(RACE_TIMEOUT_SECONDS):
        for round_no in range(ROUNDS):
            writes = [
                whiteboard_write(claim.run_id, value=[round_no, nth], expected=round_no)
                for nth in range(WRITERS)
            ]
            answers = await asyncio.gather(*(attempt(boards, write) for write in writes))
            [winner] = [nth for nth, answer in enumerate(answers) if isinstance(answer, Written)]
            conflicts = [answer for answer in answers if isinstance(answer, VersionConflict)]
            assert {answer.details["current"] for answer in conflicts} == {round_no + 1}
            assert await read_value(boards, claim.run_id) == [round_no, winner]
    assert len(await read_log(runs, claim.run_id)) == ROUNDS, "a refused write leaves no event"
    assert (await get_run(runs, claim.run_id)).last_seq == ROUNDS


@rule("CC-09")
async def test_fifty_writers_without_an_expected_version_all_succeed(
    runs: RunStore, boards: BoardStore
) -> None:
    claim = await start_run(runs)

    async def work() -> None:
        for number in range(1, 11):
            assert_stored(await runs.append(delta_batch(claim, number, "meanwhile")))

    async def write_all() -> list[Written]:
        return await asyncio.gather(
            *(write_value(boards, whiteboard_write(claim.run_id, value=nth)) for nth in range(WRITERS))
        )

    async with asyncio.timeout(RACE_TIMEOUT_SECONDS):
        answers, _ = await asyncio.gather(write_all(), work())
    assert sorted(answer.version for answer in answers) == list(range(1, WRITERS + 1))
    log = await read_log(runs, claim.run_id)
    assert [event.seq for event in log] == list(range(1, WRITERS + 11))
    recorded = [(event.seq, decode_payload(event)) for event in log if event.type == "whiteboard.write"]
    assert [data["version"] for _, data in recorded] == list(range(1, WRITERS + 1))
    assert {(seq, data["version"], data["value"]) for seq, data in recorded} == {
        (answer.seq, answer.version, nth) for nth, answer in enumerate(answers)
    }
    assert await read_value(boards, claim.run_id) == recorded[-1][1]["value"]


@case("R1")
async def test_concurrent_writes_respect_the_limit_of_keys(runs: RunStore, boards: BoardStore) -> None:
    claim = await start_run(runs)
    limits = replace(LIMITS, keys=10)

    async def write_new_key(nth: int) -> bool:
        try:
            return await boards.write(whiteboard_write(claim.run_id, f"k{nth}", limits=limits)) is not None
        except BoardFull:
            return False

    async with asyncio.timeout(RACE_TIMEOUT_SECONDS):
        answers = await asyncio.gather(*(write_new_key(nth) for nth in range(WRITERS)))
    assert sum(answers) == 10
    assert len(await read_values(boards, claim.run_id, Board.WHITEBOARD)) == 10
    assert len(await read_log(runs, claim.run_id)) == 10
    written = answers.index(True)
    assert (
        await write_value(boards, whiteboard_write(claim.run_id, f"k{written}", limits=limits))
    ).version == 2


@case("R1")
async def test_size_limit_covers_both_boards_of_a_run(runs: RunStore, boards: BoardStore) -> None:
    claim, other = await start_run(runs, "one"), await start_run(runs, "other")
    limits = replace(LIMITS, run_bytes=100)
    await write_value(
        boards, blackboard_write(claim.run_id, "a-b", value="x" * 58)
    )  # 60 bytes with the quotes
    await write_value(boards, whiteboard_write(claim.run_id, value="x" * 38, limits=limits))
    with pytest.raises(BoardFull):
        await boards.write(whiteboard_write(claim.run_id, "more", limits=limits))
    with pytest.raises(BoardFull):
        await boards.write(whiteboard_write(claim.run_id, value="x" * 39, limits=limits))
    assert (
        await write_value(boards, whiteboard_write(claim.run_id, value="x" * 37, limits=limits))
    ).version == 2
    await write_value(boards, whiteboard_write(other.run_id, value="x" * 98, limits=limits))


# --- artifacts ----------------------------------------------------------------------------------------------


async def test_write_adds_one_reference_per_artifact_of_the_user(
    store: Store, runs: RunStore, boards: BoardStore
) -> None:
    mallory = await store.add_user("mallory")
    mine, unknown, theirs = (ArtifactId(f"art_{digit * 64}") for digit in "123")
    for account_id, artifact_id in ((OWNER, mine), (mallory, theirs)):
        await store.sql(
            "insert into artifacts (account_id, artifact_id, size, media_type, blob_key)"
            f" values ('{account_id}', '{artifact_id}', 1, 'text/plain', 'key of {artifact_id}')"
        )
    claim = await start_run(runs)
    write = replace(whiteboard_write(claim.run_id), refers_to=frozenset({mine, unknown, theirs}))
    await write_value(boards, write)
    await write_value(boards, write)
    assert await store.sql("select account_id, artifact_id, run_id from artifact_refs") == [
        {"account_id": OWNER, "artifact_id": mine, "run_id": claim.run_id}
    ]
    await store.sql("delete from artifact_refs")
    await store.sql("delete from artifacts")
