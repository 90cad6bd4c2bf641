"""Older events are delivered after the answer to the request that asked for them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from easel.core.stream.envelope import Visibility
from easel.core.stream.log import LoggedEvent
from easel.edges.delivery import Deliveries
from tests.support.waiting import wait_for


class FakeLog:
    def __init__(self, seqs: list[int], cursor: int) -> None:
        self.seqs, self.cursor, self.due = seqs, cursor, asyncio.Event()

    async def next(self) -> list[LoggedEvent]:
        seqs = [seq for seq in self.seqs if seq > self.cursor]
        if not seqs:
            await self.due.wait()
            self.due.clear()
        self.cursor = max([self.cursor, *seqs])
        return [LoggedEvent(seq, "done", Visibility.PUBLIC, datetime.now(UTC), "{}") for seq in seqs]

    def beat(self) -> None:
        self.due.set()

    def close(self) -> None: ...


class FakeSocket:
    """Sends nothing while it is not `ready`: the client reads slowly."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.ready = asyncio.Event()

    def start(self, work: Any) -> asyncio.Task[None]:
        return asyncio.create_task(work)

    async def send(self, text: Any) -> None:
        await self.ready.wait()
        self.sent.append(text)


async def test_older_events_wait_for_the_answer() -> None:
    socket, log = FakeSocket(), FakeLog([9, 10], 10)

    async def open_log(_: str, after: int | None) -> Any:
        return log if after == 10 else FakeLog([], after or 0)

    following: Any = Deliveries(
        socket,  # type: ignore[arg-type]
        open_log=open_log,
        format_event=lambda _, event: str(event.seq),
        format_end=None,  # type: ignore[arg-type]
        max_count=1,
    )
    following.follow("canvas", "view", 10)
    following.start("canvas")
    log.seqs.append(11)
    log.beat()  # an empty page, then 11
    await wait_for(lambda: log.cursor == 11, within=5, what="the page is read")
    await following.subscribe("canvas", 8)  # while 11 is being sent
    socket.ready.set()
    await wait_for(lambda: bool(socket.sent), within=5, what="the page is sent")
    log.beat()
    await wait_for(lambda: not log.due.is_set(), within=5, what="the next page is read")
    await socket.send("answer")
    following.start("canvas")
    await wait_for(lambda: socket.sent[-1] == "10", within=5, what="the older events are sent")
    await following.unsubscribe("canvas")
    assert socket.sent == ["11", "answer", "9", "10"]
