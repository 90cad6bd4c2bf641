"""The stream of an account's log: a viewer receives every change of a session, by runs and by people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from easel.core.stream.filter import ACCOUNT
from easel.errors import NotFound
from easel.host.sessions import Sessions
from easel.host.streams import ACCOUNTS, StreamQuota, TailMemory, Tails
from easel.ids import OWNER
from tests.support.principals import THE_OWNER, person
from tests.support.waiting import within_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.host.conftest import RunHarness

NEVER = 3600.0


@pytest_asyncio.fixture
async def tails(harness: RunHarness) -> AsyncIterator[Tails]:
    tails = Tails(
        ACCOUNTS,
        harness.database.accounts,
        harness.database.notifier,
        poll_seconds=NEVER,
        heartbeat_seconds=NEVER,
        quota=StreamQuota(10),
        memory=TailMemory(1_000_000),
    )
    yield tails
    await tails.close()


async def test_each_change_of_a_session_is_notified(harness: RunHarness, tails: Tails) -> None:
    """No poll finds them here."""
    database = harness.database
    sessions = Sessions(database.sessions, database.accounts, harness.queue, database.notifier, harness.audit)
    viewer = await tails.open(THE_OWNER, OWNER, None, ACCOUNT)
    assert viewer is not None

    async def next_change() -> tuple[str, str, str | None, str]:
        [event] = await within_timeout(viewer.next()) or []
        data = json.loads(event.data)
        return event.type, data["key"], data["title"], data["provenance"]["run_id"]

    run = await harness.queue.start(THE_OWNER, "asked", "What now?")
    assert await next_change() == ("session.created", "agent:main:asked", "What now?", run.run_id)
    await sessions.create(THE_OWNER, "made", None)
    assert await next_change() == ("session.created", "agent:main:made", None, "made")
    run = await harness.queue.start(THE_OWNER, "made", "Hello")
    assert await next_change() == ("session.renamed", "agent:main:made", "Hello", run.run_id)
    await sessions.rename(THE_OWNER, "made", "Better")
    assert await next_change() == ("session.renamed", "agent:main:made", "Better", "made")
    await sessions.delete(THE_OWNER, "made")
    assert await next_change() == ("session.removed", "agent:main:made", "Better", "made")


async def test_log_of_another_account_is_not_found(tails: Tails) -> None:
    with pytest.raises(NotFound):
        await tails.open(person("mallory", "Mallory"), OWNER, None, ACCOUNT)
