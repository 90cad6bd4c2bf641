"""The log of an account on every store: each change of its sessions, once, numbered without gaps."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.principal import ActorKind
from easel.core.stream.envelope import Provenance
from easel.core.stream.log import Bounds
from easel.ids import OWNER, AccountId, SessionId
from tests.stores.harness import CONSTRAINT_ERRORS, Store, new_run

if TYPE_CHECKING:
    from easel.core.stream.log import LoggedEvent

TALK = SessionId("talk")
ADA = Provenance("ada", "session", "talk", kind=ActorKind.PERSON)
KEPT = 1_000  # events of an account, by the schema


async def read_log(store: Store, account_id: AccountId = OWNER) -> list[LoggedEvent]:
    return await store.database.accounts.events_after(account_id, 0, 10_000)


async def changes(store: Store, account_id: AccountId = OWNER) -> list[tuple[int, str, Any, Any]]:
    log = [(event, json.loads(event.data)) for event in await read_log(store, account_id)]
    return [(event.seq, event.type, data["session_id"], data["title"]) for event, data in log]


async def test_each_change_of_a_session_is_appended_with_its_author(store: Store) -> None:
    sessions = store.database.sessions
    await sessions.create(OWNER, TALK, "One", ADA)
    await sessions.rename(OWNER, TALK, "Two", ADA)
    await sessions.delete(OWNER, TALK, ADA)
    assert await changes(store) == [
        (1, "session.created", "talk", "One"),
        (2, "session.renamed", "talk", "Two"),
        (3, "session.removed", "talk", "Two"),
    ]
    assert [json.loads(event.data) for event in (await read_log(store))[:1]] == [
        {
            "session_id": "talk",
            "key": "agent:main:talk",
            "title": "One",
            "visibility": "public",
            "provenance": {"kind": "person", "agent_id": "ada", "node_id": "session", "run_id": "talk"},
        }
    ]


async def test_refused_change_of_a_session_appends_nothing(store: Store) -> None:
    sessions = store.database.sessions
    await sessions.create(OWNER, TALK, None)
    assert await sessions.create(OWNER, TALK, "again") is None
    assert await sessions.rename(OWNER, SessionId("none"), "x") is None
    assert await sessions.delete(OWNER, SessionId("none")) is None
    assert await changes(store) == [(1, "session.created", "talk", None)]


async def test_first_run_creates_or_titles_its_session_and_the_next_appends_nothing(store: Store) -> None:
    made = replace(new_run("made"), title="Hello", by=ADA)
    assert (await store.runs.enqueue(made)).account_seq == 1
    await store.database.sessions.create(OWNER, TALK, None)
    assert (await store.runs.enqueue(replace(new_run("talk"), title="Hi"))).account_seq == 3
    for session in ("made", "talk"):
        assert (await store.runs.enqueue(replace(new_run(session), title="Hi"))).account_seq is None
    assert await changes(store) == [
        (1, "session.created", "made", "Hello"),
        (2, "session.created", "talk", None),
        (3, "session.renamed", "talk", "Hi"),
    ]
    assert json.loads((await read_log(store))[0].data)["provenance"]["agent_id"] == "ada"


async def test_concurrent_creations_of_one_session_append_one_event(store: Store) -> None:
    created = [store.database.sessions.create(OWNER, TALK, "x") for _ in range(5)]
    await asyncio.gather(*created, *(store.runs.enqueue(new_run("talk")) for _ in range(5)))
    assert [change[:3] for change in await changes(store)] in (
        [(1, "session.created", "talk")],
        [(1, "session.created", "talk"), (2, "session.renamed", "talk")],
    )


async def test_concurrent_creations_of_many_sessions_are_numbered_without_gaps(store: Store) -> None:
    ada = await store.add_user("ada")
    runs = [new_run(f"s{n}", user=user) for n in range(20) for user in (OWNER, ada)]
    enqueued = await asyncio.gather(*(store.runs.enqueue(run) for run in runs))
    for user in (OWNER, ada):
        numbers = [one.account_seq for one in enqueued if one.run.account_id == user]
        assert sorted(number or 0 for number in numbers) == list(range(1, 21))
        assert [event.seq for event in await read_log(store, user)] == list(range(1, 21))
    assert await store.database.accounts.heads([OWNER, ada]) == {OWNER: 20, ada: 20}


async def test_rolled_back_creation_appends_nothing(store: Store) -> None:
    first = new_run("made")
    await store.runs.enqueue(first)
    with pytest.raises(CONSTRAINT_ERRORS):  # its id is taken, after the session was created
        await store.runs.enqueue(replace(new_run("never"), run_id=first.run_id))
    assert await store.database.sessions.get(OWNER, SessionId("never")) is None
    await store.runs.enqueue(new_run("next"))
    assert [change[:3] for change in await changes(store)] == [
        (1, "session.created", "made"),
        (2, "session.created", "next"),
    ]


async def test_session_of_a_deleted_one_s_id_is_created_again(store: Store) -> None:
    await store.runs.enqueue(new_run("talk"))
    await store.database.sessions.delete(OWNER, TALK)
    await store.runs.enqueue(new_run("talk"))
    assert [change[1] for change in await changes(store)] == [
        "session.created",
        "session.removed",
        "session.created",
    ]


async def test_log_keeps_its_newest_events(store: Store) -> None:
    sessions, accounts = store.database.sessions, store.database.accounts
    assert await accounts.bounds(OWNER, OWNER) == Bounds(1, 0, ended=False)
    await sessions.create(OWNER, TALK, None)
    await sessions.rename(OWNER, TALK, "second")
    await store.sql(f"update account_events set seq = {KEPT} where seq = 2")
    await sessions.rename(OWNER, TALK, "newest")
    assert await accounts.bounds(OWNER, OWNER) == Bounds(KEPT, KEPT + 1, ended=False)
    assert [event.seq for event in await accounts.events_after(OWNER, KEPT, 10)] == [KEPT + 1]


async def test_log_is_its_account_s_own_and_ends_with_it(store: Store) -> None:
    accounts, ada = store.database.accounts, await store.add_user("ada")
    await store.database.sessions.create(ada, TALK, None)
    assert await accounts.bounds(OWNER, ada) is None
    assert await changes(store) == []
    await accounts.mark_deleted(ada)
    assert await accounts.bounds(ada, ada) is None
    assert await accounts.heads([OWNER, ada]) == {OWNER: 0}
