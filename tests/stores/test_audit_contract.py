"""The audit chain on every store: concurrent appends keep one chain, and tampering is detected."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.audit import record
from easel.core.audit.chain import ChainPosition, Checkpoint, parse_position
from easel.core.audit.record import ACTIONS, Entry, StorageClass
from easel.core.audit.redaction import Redaction
from easel.core.principal import ANONYMOUS, Principal
from easel.host.audit import chain as audit_chain
from easel.host.audit.audit import Audit
from easel.host.audit.chain import AuditRetention, ChainProgress, verify
from easel.ids import OWNER
from easel.stores.postgres import PostgresDatabase
from easel.stores.postgres.audit import PostgresAudit
from easel.stores.sqlite import SqliteDatabase
from easel.stores.sqlite.audit import SqliteAudit
from easel.stores.sqlite.shared_access import SharedSqlite
from tests.requirements import case, rule
from tests.stores.harness import open_store
from tests.support.principals import THE_OWNER, person

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from easel.core.audit.chain import Link
    from easel.core.principal import Principal
    from easel.host.ports import AuditStore
    from tests.stores.harness import Store

AT = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
WRITERS = 12
BATCHES = 200


def new_entry(
    action: str = "sign_out",
    subject: str | None = None,
    *,
    at: datetime = AT,
    principal: Principal = THE_OWNER,
) -> Entry:
    return record.new_entry(at, principal, action, redact=Redaction(), subject=subject)


@pytest_asyncio.fixture
async def chain(store: Store) -> AuditStore:
    """Return an empty chain."""
    return store.database.audit


async def verify_chain(store: AuditStore, *known: ChainPosition) -> ChainProgress:
    return [reached async for reached in verify(store, known)][-1]


async def verified_length(store: AuditStore) -> int:
    """Verify the chain. Returns the number of its records."""
    end = await verify_chain(store)
    assert end.is_end, end
    return end.seq


async def subjects(store: AuditStore) -> list[str]:
    links = await store.list_after(0, 2**63 - 1, 1_000_000)
    return [json.loads(link.record).get("subject") for link in links]


# --- appending ----------------------------------------------------------------------------------------------


@rule("CC-06")
async def test_empty_chain_is_valid(chain: AuditStore) -> None:
    assert await verified_length(chain) == 0
    await chain.append([])
    assert await verified_length(chain) == 0


@rule("CC-06", "CC-14")
async def test_records_are_stored_unchanged_and_in_order(chain: AuditStore) -> None:
    await chain.append(
        [new_entry(subject="1"), new_entry("run.error", "2", at=AT + timedelta(microseconds=1))]
    )
    await chain.append([new_entry(subject="3", principal=person("ann", "Änne «x» 🙂"))])
    links = await chain.list_after(0, 3, 10)
    assert [link.seq for link in links] == [1, 2, 3]
    assert [link.record for link in links] == [
        new_entry(subject="1").to_record(1),
        new_entry("run.error", "2", at=AT + timedelta(microseconds=1)).to_record(2),
        new_entry(subject="3", principal=person("ann", "Änne «x» 🙂")).to_record(3),
    ]
    assert [(link.account_id, link.at, link.storage_class, link.action) for link in links] == [
        ("owner", AT, "audit", "sign_out"),
        ("owner", AT + timedelta(microseconds=1), "ops", "run.error"),
        ("ann", AT, "audit", "sign_out"),
    ]
    assert await verified_length(chain) == 3
    assert [json.loads(link.record)["metadata"] for link in links] == [{"visibility": "system"}] * 3


@pytest_asyncio.fixture
async def writers(kind: str, store: Store, tmp_path: Path) -> AsyncIterator[list[AuditStore]]:
    """Return independent writers of the same chain, for Postgres on two instances."""
    async with AsyncExitStack() as stack:
        stores = [store]
        if isinstance(store.database, PostgresDatabase):
            stores.append(await open_store(kind, folder=tmp_path, database_url=store.database.url))
            stack.push_async_callback(stores[1].close)
        yield [_new_writer(stores[nth % len(stores)]) for nth in range(WRITERS)]


def _new_writer(store: Store) -> AuditStore:
    database = store.database
    return SqliteAudit(database) if isinstance(database, SqliteDatabase) else PostgresAudit(database)


def batches() -> Iterator[list[str]]:
    """Yield batches of one to five records with unique subjects."""
    for nth in range(BATCHES):
        yield [f"{nth}.{part}" for part in range(nth % 5 + 1)]


@rule("CC-06")
async def test_concurrent_writers_on_two_instances_append_to_one_chain(writers: list[AuditStore]) -> None:
    pending, start = list(batches()), asyncio.Event()
    expected = [name for batch in pending for name in batch]

    async def write(store: AuditStore) -> None:
        await start.wait()
        while pending:
            await store.append([new_entry(subject=name) for name in pending.pop()])

    tasks = [asyncio.create_task(write(writer)) for writer in writers]
    start.set()
    await asyncio.gather(*tasks)
    stored = await subjects(writers[-1])
    assert Counter(stored) == Counter(expected)
    for name in expected:  # a batch is contiguous and in order
        nth, _, part = name.partition(".")
        assert stored.index(name) == stored.index(f"{nth}.0") + int(part)
    assert await verified_length(writers[0]) == len(expected)


@rule("CC-06")
async def test_chain_can_be_verified_during_appends(
    writers: list[AuditStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each verification succeeds, and covers at least the records that existed when it started."""
    monkeypatch.setattr(audit_chain, "PAGE_SIZE", 7)
    stop = asyncio.Event()
    written = 0

    async def write(store: AuditStore) -> None:
        nonlocal written
        while not stop.is_set():
            await store.append([new_entry(), new_entry("run.error")])
            written += 2

    tasks = [asyncio.create_task(write(writer)) for writer in writers[:4]]
    try:
        seen = 0
        while seen < 150:
            before = written
            seen = await verified_length(writers[-1])
            assert seen >= before
    finally:
        stop.set()
        await asyncio.gather(*tasks)
    assert await verified_length(writers[0]) == written


@rule("CC-06")
async def test_refused_batch_appends_no_record(store: Store) -> None:
    chain = store.database.audit
    await chain.append([new_entry(subject="first")])
    await store.sql("update audit_head set last_seq = 0, last_hash = ''")  # the next number exists already
    with pytest.raises(Exception, match=r"(?i)unique|constraint"):
        await chain.append([new_entry(subject="second"), new_entry(subject="third")])
    assert await subjects(chain) == ["first"]
    assert (await chain.get_end()).head == ChainPosition(0, "")


async def test_append_fails_without_a_chain_head(store: Store) -> None:
    await store.sql("delete from audit_head")
    with pytest.raises(LookupError, match="head"):
        await store.database.audit.append([new_entry()])
    assert await subjects(store.database.audit) == []


# --- tampering ----------------------------------------------------------------------------------------------

SWAP = """update audit set record = (select case when audit.seq = 4 then b.record else a.record end
            from audit a, audit b where a.seq = 4 and b.seq = 5) where seq in (4, 5)"""
LATER = {"sqlite": "at + 1", "postgres": "at + interval '1 microsecond'"}
ENDLESS = {"sqlite": "9223372036854775807", "postgres": "'infinity'"}

TAMPERINGS = [
    # tampering                                                                                found at
    ('update audit set record = replace(record, \'"subject":"3"\', \'"subject":"4"\') where seq = 4', 4),
    ("update audit set record = record || ' ' where seq = 10", 10),
    ("update audit set hash = replace(hash, 'a', 'b') where seq = 2", 2),
    ("update audit set account_id = 'mallory' where seq = 7", 7),
    ("update audit set action = 'sign_in.succeeded' where seq = 7", 7),
    ("update audit set storage_class = 'ops' where seq = 7", 7),
    ("update audit set at = {later} where seq = 7", 7),
    ("update audit set at = {endless} where seq = 7", 7),
    ("update audit set record = 'nonsense' where seq = 1", 1),
    ("delete from audit where seq = 5", 5),
    ("delete from audit where seq = 1", 1),
    ("delete from audit where seq = 10", 10),
    ("delete from audit where seq > 6", 7),
    ("delete from audit", 1),
    (SWAP, 4),
    ("update audit set seq = 11 where seq = 4", 4),
    (
        "insert into audit select 11, account_id, at, storage_class, action, record, hash"
        " from audit where seq = 10",
        11,
    ),
    (
        "insert into audit select 0, account_id, at, storage_class, action, record, hash"
        " from audit where seq = 10",
        0,
    ),
    (
        "insert into audit select -5, account_id, at, storage_class, action, record, hash"
        " from audit where seq = 10",
        -5,
    ),
    ("update audit_head set last_seq = 9", 10),
    ("update audit_head set last_seq = 11", 11),
    ("update audit_head set last_hash = ''", 10),
    ("update audit_head set last_hash = (select hash from audit where seq = 9), last_seq = 9", 10),
    ("delete from audit_head", 11),
]


@rule("CC-06")
@pytest.mark.parametrize("tampering, found_at", TAMPERINGS, ids=[sql[:70] for sql, _ in TAMPERINGS])
async def test_tampering_is_detected_with_its_position(
    store: Store, tampering: str, found_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_chain, "PAGE_SIZE", 3)
    chain = store.database.audit
    for nth in range(10):
        await chain.append([new_entry(subject=str(nth))])
    assert await verified_length(chain) == 10
    await store.sql(tampering.format(later=LATER[store.kind], endless=ENDLESS[store.kind]))
    end = await verify_chain(chain)
    assert not end.is_end
    assert (end.seq, bool(end.problem)) == (found_at, True), end


@rule("CC-06")
async def test_rewritten_chain_is_detected_by_a_known_checkpoint(store: Store) -> None:
    chain = store.database.audit
    await chain.append([new_entry(subject="what was done"), new_entry()])
    noted = parse_position(str((await verify_chain(chain)).position))
    await store.sql("delete from audit")
    await store.sql("update audit_head set last_seq = 0, last_hash = ''")
    assert (await verify_chain(chain, noted)).problem, "cut off"
    await chain.append([new_entry(subject="what is said now"), new_entry(), new_entry()])
    assert await verified_length(chain) == 3, "the chain alone is valid"
    end = await verify_chain(chain, noted)
    assert (end.seq, bool(end.problem)) == (2, True), end
    assert (await verify_chain(chain, parse_position(str((await verify_chain(chain)).position)))).is_end


# --- reading ------------------------------------------------------------------------------------------------


async def list_seqs(chain: AuditStore, **filters: Any) -> list[int]:
    nothing: dict[str, Any] = {
        "action": None,
        "storage_class": None,
        "since": None,
        "until": None,
        "before": None,
        "limit": 100,
    }
    wanted = {"account_id": OWNER, "of_host": False, **nothing, **filters}
    return [link.seq for link in await chain.list_records(**wanted)]


FILTERS: Sequence[tuple[dict[str, Any], list[int]]] = [
    ({}, [6, 5, 4, 3, 2, 1]),
    ({"limit": 2}, [6, 5]),
    ({"before": 5, "limit": 2}, [4, 3]),
    ({"before": 0}, []),
    ({"action": "run.error"}, [5, 2]),
    ({"action": "run.error", "before": 5}, [2]),
    ({"action": "run.error", "since": AT + timedelta(hours=2)}, [5]),
    ({"action": "run.error", "until": AT + timedelta(hours=2)}, [2]),
    ({"action": "run.error", "storage_class": StorageClass.AUDIT}, []),
    ({"action": "tool.error"}, []),
    ({"storage_class": StorageClass.OPS}, [5, 2]),
    ({"storage_class": StorageClass.AUDIT, "limit": 1}, [6]),
    ({"since": AT + timedelta(hours=4)}, [6, 5]),
    ({"until": AT + timedelta(hours=1)}, [1]),
    ({"since": AT + timedelta(hours=1), "until": AT + timedelta(hours=3)}, [3, 2]),
    (
        {"since": datetime(1, 1, 1, tzinfo=UTC), "until": datetime(9999, 12, 31, tzinfo=UTC)},
        [6, 5, 4, 3, 2, 1],
    ),
]


async def test_records_are_listed_newest_first_and_filtered(chain: AuditStore) -> None:
    for nth in range(6):
        await chain.append(
            [new_entry("run.error" if nth in (1, 4) else "sign_out", at=AT + timedelta(hours=nth))]
        )
    for filters, expected in FILTERS:
        assert await list_seqs(chain, **filters) == expected, filters


@rule("RS-76", "RS-06")
async def test_records_of_an_account_are_listed_without_those_of_others(chain: AuditStore) -> None:
    """Those of no account, such as failed sign-ins, are of the host; an account may be called `easel`."""
    actors = [THE_OWNER, person("ann", "Ann"), ANONYMOUS, record.EASEL, person("easel", "Easel"), THE_OWNER]
    for actor in actors:
        await chain.append([new_entry("run.error", principal=actor)])
    for action in (None, "run.error"):
        for account_id, own in ((OWNER, [6, 1]), ("ann", [2]), ("easel", [5]), ("bob", [])):
            listed = {"account_id": account_id, "action": action}
            assert await list_seqs(chain, **listed) == own
            assert await list_seqs(chain, **listed, of_host=True) == sorted([*own, 3, 4], reverse=True)
        page = {"account_id": OWNER, "action": action, "of_host": True, "limit": 2}
        assert await list_seqs(chain, **page) == [6, 4]
        assert await list_seqs(chain, **page, before=4) == [3, 1]


@case("R6")
@rule("CC-10")
async def test_every_action_is_stored_and_an_unknown_storage_class_refused(store: Store) -> None:
    await store.database.audit.append([new_entry(action) for action in ACTIONS])
    assert await verified_length(store.database.audit) == len(ACTIONS)
    with pytest.raises(Exception, match="class_is_known"):
        await store.sql("update audit set storage_class = 'public'")


async def test_command_reads_the_chain_while_another_process_writes_it(
    database: SqliteDatabase,
) -> None:
    await database.audit.append([new_entry(), new_entry()])
    reader = SharedSqlite(database.path)
    try:
        assert await verified_length(reader.audit) == 2
        await database.audit.append([new_entry()])
        assert await verified_length(reader.audit) == 3
    finally:
        await reader.close()


# --- repeated appends ---------------------------------------------------------------------------------------


@rule("CC-06")
async def test_repeated_append_stores_only_what_is_missing(chain: AuditStore) -> None:
    """The answer of the first attempt was lost, so that the caller repeats it."""
    stored, missing = [new_entry(subject="1"), new_entry(subject="2")], new_entry(subject="3")
    await chain.append(stored)
    await chain.append([*stored, missing], is_repeat=True)
    await chain.append([*stored, missing], is_repeat=True)
    assert await subjects(chain) == ["1", "2", "3"]
    assert await verified_length(chain) == 3


# --- retention ----------------------------------------------------------------------------------------------

KEY = "k" * 32


async def fill(chain: AuditStore, count: int) -> list[Link]:
    """Append one record per day. Returns them as links."""
    await chain.append([new_entry(subject=str(nth), at=AT + timedelta(days=nth)) for nth in range(count)])
    return await chain.list_after(0, count, count)


async def verify_signed(chain: AuditStore, *known: ChainPosition, key: str | None = KEY) -> ChainProgress:
    return [reached async for reached in verify(chain, known, key=key)][-1]


@rule("RS-69")
async def test_chain_begins_at_the_signed_checkpoint_after_records_were_removed(chain: AuditStore) -> None:
    links = await fill(chain, 6)
    cut = ChainPosition(links[3].seq, links[3].hash)
    assert await chain.shorten(Checkpoint.sign(cut, KEY)) == 4
    assert [link.seq for link in await chain.list_after(0, 10, 10)] == [5, 6]
    end = await verify_signed(chain)
    assert (end.is_end, end.seq, end.start) == (True, 6, cut)
    await chain.append([new_entry(subject="later")])
    assert (await verify_signed(chain, cut)).is_end, "a known position of a removed record is no break"


@rule("RS-69")
async def test_earlier_checkpoint_changes_nothing(chain: AuditStore) -> None:
    links = await fill(chain, 6)
    later, earlier = (ChainPosition(links[nth].seq, links[nth].hash) for nth in (3, 1))
    await chain.shorten(Checkpoint.sign(later, KEY))
    assert await chain.shorten(Checkpoint.sign(earlier, KEY)) == 0
    checkpoint = await chain.get_checkpoint()
    assert checkpoint is not None
    assert checkpoint.position == later


@rule("RS-69")
async def test_whole_chain_can_be_removed_and_continues(chain: AuditStore) -> None:
    links = await fill(chain, 3)
    await chain.shorten(Checkpoint.sign(ChainPosition(links[-1].seq, links[-1].hash), KEY))
    assert (await verify_signed(chain)).is_end
    await chain.append([new_entry(subject="next")])
    end = await verify_signed(chain)
    assert (end.is_end, end.seq) == (True, 4)


REMOVALS = [
    "delete from audit_checkpoint",
    "update audit_checkpoint set seq = 4",
    "update audit_checkpoint set signature = 'x'",
    "delete from audit where seq = 4",
    "delete from audit where seq = 6",
]


@rule("RS-69", "CC-06")
@pytest.mark.parametrize("tampering", REMOVALS)
async def test_any_other_removal_is_a_break(store: Store, chain: AuditStore, tampering: str) -> None:
    links = await fill(chain, 6)
    await chain.shorten(Checkpoint.sign(ChainPosition(links[2].seq, links[2].hash), KEY))
    assert (await verify_signed(chain)).is_end
    await store.sql(tampering)
    assert (await verify_signed(chain)).problem


@rule("RS-69")
async def test_checkpoint_that_another_key_signed_is_a_break(chain: AuditStore) -> None:
    links = await fill(chain, 2)
    await chain.shorten(Checkpoint.sign(ChainPosition(links[0].seq, links[0].hash), "f" * 32))
    assert "is not signed with the key" in str((await verify_signed(chain)).problem)
    assert (await verify_signed(chain, key=None)).problem


@rule("RS-69")
async def test_prefix_that_was_altered_is_kept_as_evidence(store: Store, chain: AuditStore) -> None:
    await fill(chain, 3)
    await store.sql("update audit set hash = 'x' where seq = 2")
    retention = AuditRetention(chain, Audit(chain), days=1, key=KEY, now=lambda: AT + timedelta(days=99))
    assert await retention.once() == 0
    assert len(await chain.list_after(0, 3, 3)) == 3
