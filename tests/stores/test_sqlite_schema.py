"""Schema and statements of SQLite alone: times, text, migrations, plans."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from easel.ids import OWNER
from easel.stores import migrations
from easel.stores.migrations import Migration
from easel.stores.sqlite import SqliteDatabase, open_sqlite
from easel.stores.sqlite.run_log import SQL
from tests.requirements import case, rule
from tests.stores.harness import (
    A,
    B,
    assert_stored,
    closing_events,
    delta_batch,
    ending_batch,
    get_run,
    new_run,
    read_log,
    sqlite_at,
    start_run,
    start_runs,
)

if TYPE_CHECKING:
    from pathlib import Path


@case("J8")
@rule("RX-37")
async def test_claims_expire_by_the_database_clock_only(path: Path) -> None:
    now = 1_700_000_000_123_456
    async with sqlite_at(path, clock=lambda: now) as database:
        run = (await database.runs.enqueue(new_run())).run
        assert round(run.created_at.timestamp() * 1_000_000) == now
        [claim] = await database.runs.claim_queued(A, 1, 15.0, 0)
        now += 14_999_999
        assert await database.runs.claim_expired(B, 1, 15.0) == []
        assert_stored(await database.runs.append(delta_batch(claim, 1, "in time")))
        now += 2
        assert await database.runs.append(delta_batch(claim, 2, "late")) is None
        [taken] = await database.runs.claim_expired(B, 1, 15.0)
        assert (taken.attempt, taken.queued_seconds, taken.running_seconds) == (2, 15.000001, 15.000001)


async def test_nul_character_in_the_input_is_stored(database: SqliteDatabase) -> None:
    [claim] = await start_runs(database.runs, new_run(text="a\x00b"))
    assert claim.input_text == "a\x00b"
    assert (await get_run(database.runs, claim.run_id)).input_text == "a\x00b"


async def test_database_refuses_a_payload_that_is_not_json(database: SqliteDatabase) -> None:
    claim = await start_run(database.runs)
    with pytest.raises(sqlite3.IntegrityError, match="payload_is_json"):
        await database.write(
            lambda connection: connection.execute(
                "insert into run_events (run_id, seq, event_type, payload, visibility)"
                " values (?, 1, 'done', '{', 'public')",
                (claim.run_id,),
            )
        )


async def test_failed_migration_is_rolled_back_completely(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = migrations.available("sqlite")
    wrong = Migration(
        99,
        "wrong",
        "create table a (b text); -- so far; so good\ninsert into a values (';');\n"
        "insert into missing values (1);",
    )
    database = await open_sqlite(path)
    assert await database.schema_version() == 0
    assert await database.migrate() == [migration.title for migration in first]
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "available", lambda _: [*first, wrong])
        with pytest.raises(sqlite3.OperationalError, match="no such table: missing"):
            await database.migrate()
        assert await database.schema_version() == first[-1].version
        assert (
            await database.read(
                lambda connection: connection.execute(
                    "select 1 from sqlite_schema where name = 'a'"
                ).fetchall()
            )
            == []
        )
        patch.setattr(
            migrations,
            "available",
            lambda _: [*first, Migration(99, "right", wrong.sql.rpartition("insert")[0])],
        )
        assert await database.migrate() == ["0099 right"]
        assert await database.read(
            lambda connection: [row["b"] for row in connection.execute("select b from a").fetchall()]
        ) == [";"]
    await database.close()


PLANS = [
    # statement, index of its plan, whether it may sort
    ("claim_queued", "runs_claimable_idx", False),
    ("claim_expired", "SCAN runs USING INDEX runs_held_idx", True),
    ("claim_unacknowledged", "runs_held_idx", True),
    ("pass_turn", "runs_waiting_idx", False),
    ("list_runs", "runs_listing_idx", False),
    ("list_session_runs", "runs_session_idx", False),
    ("events_after", "PRIMARY KEY (run_id=? AND seq>?)", False),
    ("list_prunable_runs", "runs_prunable_idx", False),
    ("run_by_key", "runs_idempotency_idx", False),
    ("requested_cancels", "SCAN runs USING INDEX runs_held_idx", False),
    ("append_batch", "sqlite_autoindex_runs_1 (run_id=?)", False),
    ("append_last_batch", "sqlite_autoindex_runs_1 (run_id=?)", False),
    ("log_heads", "sqlite_autoindex_runs_1 (run_id=?)", False),
]


@pytest.mark.parametrize("name, used, may_sort", PLANS, ids=[row[0] for row in PLANS])
async def test_statement_uses_an_index_without_sorting(
    database: SqliteDatabase, name: str, used: str, may_sort: bool
) -> None:
    statement = SQL[name]
    arguments = dict.fromkeys(statement.order, 1) | {"statuses": "[]", "run_ids": "[]"}
    rows = await database.write(
        lambda connection: connection.execute(f"explain query plan {statement.sql}", arguments).fetchall()
    )
    plan = [row["detail"] for row in rows]
    assert any(used in step for step in plan), plan
    assert not [
        step for step in plan if step.startswith("SCAN") and "json_each" not in step and used not in step
    ], plan
    assert may_sort or not [step for step in plan if "ORDER BY" in step], plan


def test_no_returning_clause_tests_for_null() -> None:
    """SQLite 3.38 to 3.40 evaluate such a test wrongly."""
    for statement in SQL.values():
        assert " null" not in statement.sql.partition("returning ")[2], statement.name


async def test_released_run_that_is_cancelled_keeps_its_log(database: SqliteDatabase) -> None:
    claim = await start_run(database.runs)
    assert_stored(await database.runs.append(delta_batch(claim, 1, "a", "b")))
    assert await database.runs.release_claim(claim)
    answer = await database.runs.request_cancel(OWNER, claim.run_id, closing_events(claim.run_id))
    assert answer is not None
    assert answer.run.last_seq == 4
    assert [event.seq for event in await read_log(database.runs, claim.run_id)] == [1, 2, 3, 4]
    assert await database.runs.append(ending_batch(claim, 2)) is None
