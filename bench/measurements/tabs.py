"""The memory of idle chat tabs: each watches a thread of its own, whose events have all arrived."""

from __future__ import annotations

import asyncio
import base64
import os
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import psutil

from bench import easel_processes, our_store
from bench.figures import Figure, within
from easel.core.stream.notifications import ThreadAppended
from easel.ids import scoped_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.setting import Setting
    from bench.wire import Server
    from easel.core.run.run import Claim
    from easel.stores.postgres import PostgresDatabase

ADDED_MB = 100.0
LAST_WORDS = b"the last words"
DEADLINE_SECONDS = 900.0
FILL = """
insert into run_events (run_id, seq, event_type, visibility, payload, account_id, session_id, thread_seq)
select r.run_id, r.last_seq + n, 'message.delta', 'public',
       jsonb_build_object(
         'message_id', replace(r.run_id, 'run_', 'msg_'), 'attempt', 1, 'visibility', 'public',
         'text', case when n = $1::bigint then $2::text else 'delta ' || n || ' of a chat' end),
       r.account_id, r.session_id, s.last_thread_seq + n
  from runs r join sessions s using (account_id, session_id), generate_series(1, $1::bigint) as n
"""


async def tabs(setting: Setting) -> list[Figure]:
    """Memory of an API process per thousand idle chat tabs on as many threads of 2,000 events each."""
    count, events = setting.size(1_000, 50), setting.size(2_000, 400)
    idle_seconds = setting.size(60.0, 3.0)
    # Without pings: the minimal client does not answer them.
    async with (
        our_store.opened(setting) as (database, url),
        easel_processes.api(setting, url, HEARTBEAT_SECONDS="3600") as api,
    ):
        await easel_processes.ready(api.server, api.process)
        await our_store.enqueue(database, count)
        claims = await our_store.claim(database, our_store.worker(), count)
        before = _memory_mb(api.process.pid)
        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(_open_chat(api.server, claim)) for claim in claims]
            connected = _memory_mb(api.process.pid)
            setting.say(f"{count} tabs opened: {connected - before:.0f} MB")
            readers = [asyncio.create_task(_read_to_last_words(stream)) for stream in streams]
            await _write_threads(database, claims, events)
            async with asyncio.timeout(DEADLINE_SECONDS):
                await asyncio.gather(*readers)
            caught_up = _memory_mb(api.process.pid)
            setting.say(f"{count * events:,} events received: {caught_up - before:.0f} MB")
            await asyncio.sleep(idle_seconds)
            added = _memory_mb(api.process.pid) - before
    label = f"memory added by {count:,} idle chat tabs, {events:,} events each"
    return [within(label, added, ADDED_MB, unit="MB", what="promised")]


@asynccontextmanager
async def _open_chat(server: Server, claim: Claim) -> AsyncIterator[asyncio.StreamReader]:
    """Open the chat of the claimed run's thread with the minimum of WebSocket."""
    reader, writer = await asyncio.open_connection(*server.address)
    try:
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET /ws/chat/{claim.session_id} HTTP/1.1",
            f"host: {server.address[0]}:{server.address[1]}",
            f"authorization: Bearer {server.token}",
            "connection: Upgrade",
            "upgrade: websocket",
            "sec-websocket-version: 13",
            f"sec-websocket-key: {key}",
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 101 " not in head:
            raise RuntimeError(f"the chat answered {head[:200]!r}")
        yield reader
    finally:
        writer.close()


async def _read_to_last_words(reader: asyncio.StreamReader) -> None:
    rest = b""
    while LAST_WORDS not in rest:
        chunk = await reader.read(65_536)
        if not chunk:
            raise EOFError("the chat was closed")
        rest = rest[-len(LAST_WORDS) :] + chunk


async def _write_threads(database: PostgresDatabase, claims: list[Claim], events: int) -> None:
    """Fill all threads by SQL, as their runs would, and notify the viewers."""
    async with database.connection() as connection, connection.transaction():
        await connection.execute(FILL, events, LAST_WORDS.decode(), timeout=DEADLINE_SECONDS)
        await connection.execute("update runs set last_seq = last_seq + $1", events)
        await connection.execute("update sessions set last_thread_seq = last_thread_seq + $1", events)
    for claim in claims:
        database.notifier.notify(ThreadAppended(scoped_key(claim.account_id, claim.session_id), events))


def _memory_mb(pid: int) -> float:
    return psutil.Process(pid).memory_info().rss / 2**20
