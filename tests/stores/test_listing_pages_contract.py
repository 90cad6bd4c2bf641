"""Listings on every store: pages joined together are the whole listing, with and without filters."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest_asyncio

from easel.core.action.execution import ExecutionStatus
from easel.core.audit.record import StorageClass
from easel.core.principal import Role
from easel.core.run.status import Status
from easel.core.token import NewToken, TokenKind
from easel.ids import OWNER, AccountId, CanvasId, SessionId, UserId
from tests.stores.filled_tables import (
    PAST,
    Rows,
    canvas_rows,
    execution_rows,
    message_rows,
    rows,
    run_rows,
    session_rows,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from easel.core.action.execution import Execution
    from easel.core.audit.chain import Link
    from easel.core.canvas.canvas import Canvas
    from easel.core.run.run import Run
    from easel.core.session.message import StoredMessage
    from easel.core.session.session import Session
    from tests.stores.harness import Store

COUNT = 30  # rows of each table
PAGE_SIZE = 4
BIG = SessionId("big")


def cycle(*values: str) -> str:
    """Return SQL that takes the values in turn."""
    return f"case n % {len(values)} " + " ".join(f"when {n} then {v}" for n, v in enumerate(values)) + " end"


LISTED: list[Rows] = [
    session_rows(1, session_id="'big'", last_thread_seq=f"{COUNT}"),
    # The same time for all: then the id decides.
    session_rows(
        COUNT, session_id="'s' || n", last_message_at="(select last_message_at from sessions limit 1)"
    ),
    run_rows(
        COUNT,
        run_id="'r' || n",
        session_id=cycle("'big'", "'big'", "'s' || n"),
        status=cycle("'completed'", "'failed'", "'cancelled'", "'completed'", "'queued'"),
        error_message=cycle("null", "'why'", "null", "null", "null"),
        finished_at=cycle("PAST", "PAST", "PAST", "PAST", "null"),
        turn_no=cycle("n", "n", "n", "n", "null"),
    ),
    message_rows(COUNT, session_id="'big'", thread_seq="n"),
    canvas_rows(COUNT, canvas_id="'c' || n", agent_id=cycle("'main'", "'Rare'", "'main'")),
    execution_rows(
        COUNT,
        canvas_id="'c1'",
        event_id="'evt_' || (1000 + n)",
        status=cycle("'completed'", "'failed'", "'asked'"),
        ended_at=cycle("PAST", "PAST", "null"),
    ),
    rows(
        "audit",
        COUNT,
        seq="n",
        account_id="'owner'",
        at=PAST,
        storage_class=cycle("'audit'", "'ops'"),
        action=cycle("'one'", "'two'", "'three'"),
        record="''",
        hash="''",
    ),
]


@pytest_asyncio.fixture
async def filled(store: Store) -> Store:
    numbers = " union all ".join(f"select {n} as n" for n in range(1, COUNT + 1))
    for listed in LISTED:
        await store.sql(f"with numbers as ({numbers}) {listed.to_sql(store.kind)}")
    return store


async def read_all(
    list_page: Callable[[Any, int], Awaitable[list[Any]]], cursor_of: Callable[[Any], Any], first: Any = None
) -> list[Any]:
    """Return the whole listing, and check that its pages joined together are the same."""
    whole = await list_page(first, 2 * COUNT)
    joined, cursor = list[Any](), first
    while page := await list_page(cursor, PAGE_SIZE):
        joined += page
        assert len(joined) <= len(whole), "the pages repeat rows"
        cursor = cursor_of(page)
    assert joined == whole
    return whole


RUN_FILTERS: list[list[Status]] = [
    [],
    [Status.FAILED],
    [Status.COMPLETED, Status.QUEUED],
    [Status.QUEUED, Status.QUEUED, Status.CANCELLED],
    [Status.RUNNING],
]


async def test_pages_of_runs(filled: Store):
    async def page(
        before: int | None, limit: int, session_id: SessionId | None, statuses: list[Status]
    ) -> list[Run]:
        return await filled.runs.list_runs(
            OWNER, session_id=session_id, statuses=statuses, before=before, limit=limit
        )

    every_run = sorted(await page(None, 2 * COUNT, None, []), key=lambda run: -run.queue_no)
    assert len(every_run) == COUNT
    for session_id, statuses in product((None, BIG), RUN_FILTERS):
        found = await read_all(
            partial(page, session_id=session_id, statuses=statuses), lambda page: page[-1].queue_no
        )
        assert found == [
            run
            for run in every_run
            if session_id in (None, run.session_id) and (not statuses or run.status in statuses)
        ], (session_id, statuses)


EXECUTION_FILTERS: list[tuple[list[ExecutionStatus], set[int]]] = [
    # statuses, remainders of the numbers of their executions
    ([], {0, 1, 2}),
    ([ExecutionStatus.FAILED], {1}),
    ([ExecutionStatus.COMPLETED, ExecutionStatus.ASKED], {0, 2}),
    ([ExecutionStatus.REFUSED], set()),
]


async def test_pages_of_executions(filled: Store):
    async def page(before: str | None, limit: int, statuses: list[ExecutionStatus]) -> list[Execution]:
        return await filled.database.executions.list_executions(
            OWNER, CanvasId("c1"), statuses=statuses, before=before, limit=limit
        )

    for statuses, remainders in EXECUTION_FILTERS:
        found = await read_all(partial(page, statuses=statuses), lambda page: page[-1].event_id)
        assert [execution.event_id for execution in found] == [
            f"evt_{1000 + n}" for n in range(COUNT, 0, -1) if n % 3 in remainders
        ], statuses


async def test_pages_of_sessions(filled: Store):
    async def page(before: tuple[datetime, SessionId] | None, limit: int) -> list[Session]:
        return await filled.database.sessions.list_sessions(OWNER, search="", before=before, limit=limit)

    found = await read_all(page, lambda page: (page[-1].last_message_at, page[-1].session_id))
    assert len({session.session_id for session in found}) == COUNT + 1
    assert found == sorted(found, key=lambda one: (one.last_message_at, one.session_id), reverse=True)


async def test_pages_of_messages(filled: Store):
    async def page(before: int | None, limit: int) -> list[StoredMessage]:
        found = await filled.database.sessions.list_messages(OWNER, BIG, before=before, limit=limit)
        return found[::-1]  # a page is in the order of the thread

    found = await read_all(page, lambda page: page[-1].thread_seq)
    assert [message.thread_seq for message in found] == list(range(COUNT, 0, -1))


CANVAS_FILTERS: list[tuple[str | None, set[int]]] = [
    # agent, remainders of the numbers of its canvases
    (None, {0, 1, 2}),
    ("main", {0, 2}),
    ("Rare", {1}),
    ("none", set()),
]


async def test_pages_of_canvases(filled: Store):
    async def page(after: str, limit: int, agent_id: str | None) -> list[Canvas]:
        return await filled.database.canvases.list_canvases(
            OWNER, agent_id=agent_id, after=after, limit=limit
        )

    for agent_id, remainders in CANVAS_FILTERS:
        found = await read_all(partial(page, agent_id=agent_id), lambda page: page[-1].canvas_id, "")
        assert [canvas.canvas_id for canvas in found] == sorted(
            f"c{n}" for n in range(1, COUNT + 1) if n % 3 in remainders
        ), agent_id


async def test_pages_of_audit_records(filled: Store):
    async def page(
        before: int | None, limit: int, action: str | None, storage_class: StorageClass | None
    ) -> list[Link]:
        return await filled.database.audit.list_records(
            OWNER,
            of_host=True,
            action=action,
            storage_class=storage_class,
            since=None,
            until=None,
            before=before,
            limit=limit,
        )

    for action, storage_class in product((None, "two", "never"), (None, StorageClass.OPS)):
        found = await read_all(
            partial(page, action=action, storage_class=storage_class), lambda page: page[-1].seq
        )
        assert [link.seq for link in found] == [
            n
            for n in range(COUNT, 0, -1)
            if (action is None or (action == "two" and n % 3 == 1)) and (storage_class is None or n % 2 == 1)
        ], (action, storage_class)


async def test_tokens_are_listed_per_user_and_together(filled: Store):
    await filled.add_user("ann")
    tokens = filled.database.tokens
    for number, user in enumerate([OWNER, AccountId("ann"), OWNER]):
        await tokens.create(
            NewToken(
                token_id=f"tok_{number}",
                account_id=user,
                kind=TokenKind.USER,
                user_id=UserId(user),
                role=Role.ADMIN,
                name="name",
                node_id=None,
                digest=f"digest{number}",
            )
        )
    assert [token.token_id for token in await tokens.list_tokens(OWNER)] == ["tok_0", "tok_2"]
    assert [token.token_id for token in await tokens.list_tokens(AccountId("none"))] == []
    assert [token.token_id for token in await tokens.list_tokens(None)] == ["tok_0", "tok_1", "tok_2"]
