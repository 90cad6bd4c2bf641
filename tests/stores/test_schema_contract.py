"""The schema on every store: columns and indexes of the spec, and constraints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from easel.core.run.status import MOVES, TERMINAL, Status
from easel.errors import BadSettings
from easel.ids import OWNER
from easel.stores import migrations
from easel.stores.migrations import Migration
from tests.requirements import case, rule
from tests.stores.harness import (
    CLAIM_SECONDS,
    CONSTRAINT_ERRORS,
    KINDS,
    A,
    Store,
    assert_stored,
    closing_events,
    delta_batch,
    ending_batch,
    event_types,
    new_run,
    start_run,
)

if TYPE_CHECKING:
    from easel.host.ports import RunStore

# The types of the spec in each database.
TYPES = {
    "sqlite": {
        "text": "text",
        "bigint": "integer",
        "integer": "integer",
        "jsonb": "text",
        "timestamptz": "integer",
    },
    "postgres": {
        "text": "text",
        "bigint": "bigint",
        "integer": "integer",
        "jsonb": "jsonb",
        "timestamptz": "timestamp with time zone",
    },
}

OURS = {kind: migrations.available(kind) for kind in KINDS}
ADDITIVE = Migration(
    2,
    "moods",
    """
    alter table runs add column mood text;
    alter table run_events add column weight integer;
    alter table sessions add column mood text default 'calm';
    create table moods (mood text primary key);
    """,
)

RUNS = [
    # column, type, required
    ("run_id", "text", True),
    ("session_id", "text", True),
    ("status", "text", True),
    ("input_text", "text", True),
    ("created_at", "timestamptz", True),
    ("started_at", "timestamptz", False),
    ("finished_at", "timestamptz", False),
    ("owner_id", "text", False),
    ("lease_until", "timestamptz", False),
    ("cancel_requested_at", "timestamptz", False),
    ("error_message", "text", False),
]
RUNS_ADDED = [
    ("account_id", "text", True),
    ("attempt", "integer", True),
    ("max_attempts", "integer", True),
    ("last_seq", "bigint", True),
    ("idempotency_key", "text", False),
]
RUN_EVENTS = [
    ("run_id", "text", True),
    ("seq", "bigint", True),
    ("event_type", "text", True),
    ("payload", "jsonb", True),
    ("created_at", "timestamptz", True),
]


@rule("RX-14")
async def test_runs_has_the_columns_of_the_spec(store: Store) -> None:
    columns = await store.columns("runs")
    for name, kind, required in RUNS:
        assert (columns[name].type, columns[name].required) == (TYPES[store.kind][kind], required), name
    assert [name for name, column in columns.items() if column.key_position] == ["run_id"]
    assert columns["created_at"].has_default


@rule("RS-39")
async def test_runs_has_the_columns_of_later_rules(store: Store) -> None:
    columns = await store.columns("runs")
    for name, kind, required in RUNS_ADDED:
        assert (columns[name].type, columns[name].required) == (TYPES[store.kind][kind], required), name


@rule("RX-17")
async def test_run_events_has_the_columns_of_the_spec(store: Store) -> None:
    columns = await store.columns("run_events")
    for name, kind, required in RUN_EVENTS:
        assert (columns[name].type, columns[name].required) == (TYPES[store.kind][kind], required), name
    assert (columns["run_id"].key_position, columns["seq"].key_position) == (1, 2)
    assert columns["created_at"].has_default


@rule("RX-17")
async def test_events_are_deleted_with_their_run(store: Store, runs: RunStore) -> None:
    claim = await start_run(runs)
    await runs.append(delta_batch(claim, 1, "a", "b"))
    await store.sql(f"delete from runs where run_id = '{claim.run_id}'")
    assert await store.sql("select * from run_events") == []


@rule("RX-16")
async def test_indexes_of_the_spec_exist(store: Store) -> None:
    of_runs, of_events = await store.indexes("runs"), await store.indexes("run_events")
    assert of_runs["runs_status_created_idx"] == ["status", "created_at"]
    assert of_runs["runs_owner_idx"] == ["owner_id"]
    assert of_events["run_events_created_idx"][:2] == ["run_id", "created_at"]


@rule("RX-15")
@pytest.mark.parametrize("status", ["", "QUEUED", "paused", "done"])
async def test_database_refuses_an_unknown_status(store: Store, runs: RunStore, status: str) -> None:
    claim = await start_run(runs)
    with pytest.raises(CONSTRAINT_ERRORS, match="status_is_known"):
        await store.sql(f"update runs set status = '{status}' where run_id = '{claim.run_id}'")


IMPOSSIBLE = [
    # id                                   constraint                 change of a running run
    ("ended without a time",               "finished_means_terminal", "status = 'completed'"),
    ("an end in the middle",               "finished_means_terminal", "finished_at = created_at"),
    ("running without an owner",           "running_means_held",      "owner_id = null"),
    ("running without an expiry",          "running_means_held",      "lease_until = null"),
    ("running and never started",          "running_means_held",      "started_at = null"),
    ("failed without a reason", "failed_means_reason", "status = 'failed', finished_at = created_at"),
    ("a reason without a failure",         "failed_means_reason",     "error_message = 'why'"),
    ("running before its turn",            "running_means_turn",      "turn_no = null"),
    ("a log that starts after its end",    "seq_in_order",            "oldest_seq = last_seq + 2"),
    ("a log that starts before the first", "seq_in_order",            "oldest_seq = 0"),
]  # fmt: skip


@rule("RX-28")
@pytest.mark.parametrize("law, change", [row[1:] for row in IMPOSSIBLE], ids=[row[0] for row in IMPOSSIBLE])
async def test_database_refuses_an_impossible_run(
    store: Store, runs: RunStore, law: str, change: str
) -> None:
    claim = await start_run(runs)
    with pytest.raises(CONSTRAINT_ERRORS, match=law):
        await store.sql(f"update runs set {change} where run_id = '{claim.run_id}'")


async def test_database_refuses_two_turns_in_one_session(store: Store, runs: RunStore) -> None:
    await start_run(runs, "talk")
    second = (await runs.enqueue(new_run("talk"))).run
    with pytest.raises(CONSTRAINT_ERRORS, match=r"one_turn_per_session|runs\.account_id, runs\.session_id"):
        await store.sql(f"update runs set turn_no = 999 where run_id = '{second.run_id}'")


IMPOSSIBLE_EVENTS = [
    # id                       run     seq  visibility
    ("a seq that is taken",    None,   1,   "public"),
    ("a run that is not",      "none", 1,   "public"),
    ("a third visibility",     None,   2,   "secret"),
]  # fmt: skip


@rule("RX-17", "RX-29")
@pytest.mark.parametrize(
    "run_id, seq, visibility",
    [row[1:] for row in IMPOSSIBLE_EVENTS],
    ids=[row[0] for row in IMPOSSIBLE_EVENTS],
)
async def test_database_refuses_an_impossible_event(
    store: Store, runs: RunStore, run_id: str | None, seq: int, visibility: str
) -> None:
    claim = await start_run(runs)
    await runs.append(delta_batch(claim, 1, "first"))
    with pytest.raises(CONSTRAINT_ERRORS):
        await store.sql(
            "insert into run_events (run_id, seq, event_type, payload, visibility)"
            f" values ('{run_id or claim.run_id}', {seq}, 'message.delta', '{{}}', '{visibility}')"
        )


async def test_database_constraints_match_the_transition_table(store: Store, runs: RunStore) -> None:
    """Exactly the terminal states require an end, and exactly the known states exist."""
    claim = await start_run(runs)
    for status in Status:
        reason = "'why'" if status is Status.FAILED else "null"
        for finished_at in ("null", "created_at"):
            change = (
                f"update runs set status = '{status}', error_message = {reason}, finished_at = {finished_at}"
                f" where run_id = '{claim.run_id}'"
            )
            if (finished_at == "null") == (status not in TERMINAL):
                await store.sql(change)
            else:
                with pytest.raises(CONSTRAINT_ERRORS):
                    await store.sql(change)
    assert set(MOVES) == set(Status)


async def test_migration_is_applied_once(store: Store) -> None:
    assert [migration.title for migration in migrations.available(store.kind)] == ["0001 schema"]
    assert await store.database.migrate() == []
    assert await store.database.schema_version() == migrations.available(store.kind)[-1].version


@case("D6")
async def test_code_runs_on_a_newer_schema(own_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance of the next release applies an additive migration while this store is open."""
    store, runs = own_store, own_store.runs
    before = await start_run(runs, "before")
    assert_stored(await runs.append(delta_batch(before, 1, "old")))
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "available", lambda _: [*OURS[store.kind], ADDITIVE])
        assert await store.database.migrate() == ["0002 moods"]

    assert await store.database.migrate() == []
    assert await store.database.is_migrated()
    assert await store.database.schema_version() == 2
    assert_stored(await runs.append(ending_batch(before, 2)))
    queued = (await runs.enqueue(new_run("after"))).run
    [claim] = await runs.claim_queued(A, 5, CLAIM_SECONDS, 0)
    assert claim.run_id == queued.run_id
    assert await runs.renew([claim], CLAIM_SECONDS) == {claim.run_id: False}
    waiting = (await runs.enqueue(new_run("after"))).run
    assert (await runs.request_cancel(OWNER, waiting.run_id, closing_events(waiting.run_id))) is not None
    assert_stored(await runs.append(ending_batch(claim, 1)))
    assert await event_types(runs, claim.run_id) == ["message.completed", "run.status", "done"]
    assert len(await runs.list_runs(OWNER, session_id=None, statuses=[], before=None, limit=10)) == 3


FOREIGN = [
    # id                                  change of the records
    ("another first migration", "update schema_migrations set name = 'spine'"),
    ("another text of it", "update schema_migrations set checksum = 'other'"),
    ("records without checksums", "alter table schema_migrations drop column checksum"),
    ("a gap", "update schema_migrations set version = 2"),
]


@pytest.mark.parametrize("change", [row[1] for row in FOREIGN], ids=[row[0] for row in FOREIGN])
async def test_database_of_another_development_version_is_refused(own_store: Store, change: str) -> None:
    await own_store.sql(change)
    for use in (own_store.database.migrate, own_store.database.is_migrated):
        with pytest.raises(BadSettings, match=r"another development version.*`easel canvas export`"):
            await use()
