"""Every transport at once: watchers whose connections are cut.

Owns the table of transports (what each may carry, by the outside contract), the network that breaks, and the
watchers that lose their connection repeatedly and resume by their cursor. The load is in `mixed_load`, the
expected result in `mixed_expectations`. Everything random comes from one seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tests.support.chat import Chat, ChatRefused
from tests.support.proxy import Proxy
from tests.support.sse import RECONNECT_SECONDS, CursorBy, Event, Stream, StreamRefused
from tests.support.strict import ContractBroken

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from tests.journeys.client import Client

# Which event types belong to which stream, and which of them need debug: the outside contract, written
# independently.
NARRATIVE = frozenset(
    {"message.delta", "message.completed", "tool.call", "tool.result", "reasoning.delta", "step.completed"}
)
STATE = frozenset({"run.start", "run.status", "whiteboard.write", "blackboard.write", "done"})
VISUALS = frozenset({"canvas.created", "canvas.snapshot"})
INTERNAL = frozenset({"reasoning.delta", "step.completed"})

Kind = Literal["run", "thread", "canvas"]


@dataclass(frozen=True, slots=True)
class Transport:
    name: str
    kind: Kind
    path: str
    carries: frozenset[str]

    def allows(self, event_type: str, visibility: str) -> bool:
        """Whether an event of such a log goes over this transport. RS-02 … RS-06, RS-36"""
        return event_type in self.carries and (
            visibility == "public" or (visibility == "internal" and self.debug)
        )

    @property
    def debug(self) -> bool:
        return self.path.endswith("?debug=1")


TRANSPORTS = (
    Transport("run", "run", "/api/runs/{}/events", NARRATIVE | STATE),
    Transport("run for debugging", "run", "/api/runs/{}/events?debug=1", NARRATIVE | STATE),
    Transport("state", "run", "/sse/run/{}", STATE),
    Transport("chat", "thread", "/ws/chat/{}", NARRATIVE),
    Transport("chat for debugging", "thread", "/ws/chat/{}?debug=1", NARRATIVE),
    Transport("canvas", "canvas", "/sse/canvas/{}", VISUALS),
)


@dataclass
class Network:
    """The addresses of each instance: a direct one, and one that breaks after some bytes."""

    token: str
    straight: Sequence[str]
    proxies: Sequence[Proxy]

    @classmethod
    @contextlib.contextmanager
    def around(cls, client: Client, chance: random.Random) -> Iterator[Network]:
        with contextlib.ExitStack() as stack:
            proxies = [stack.enter_context(Proxy.before(url)) for url in client.base_urls]
            for proxy in proxies:
                cuts = random.Random(chance.random())
                proxy.cut_in_turn(
                    cuts.choice([cuts.randint(1, 900), cuts.randint(900, 20_000)]) for _ in itertools.count()
                )
            yield cls(client.token, client.base_urls, proxies)

    def way_to(self, instance: int, *, breaks: bool) -> str:
        return self.proxies[instance].url(self.straight[instance]) if breaks else self.straight[instance]

    def reset_everything(self) -> None:
        for proxy in self.proxies:
            proxy.cut_now()


@dataclass(eq=False, repr=False)
class Watcher:
    """Watches one log over one transport; disconnects or is cut at random, and resumes after its last event
    on any instance.
    """

    network: Network
    transport: Transport
    name: str
    chance: random.Random
    instance: int
    """Where it connects first."""
    hears: Callable[[Watcher, Event], None]
    events: list[Event] = field(default_factory=list[Event])
    connected: Counter[int] = field(default_factory=Counter[int])
    served_by: Counter[int] = field(default_factory=Counter[int])
    left: int = 0
    _task: asyncio.Task[None] | None = None
    _grew: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def cursor(self) -> int:
        return self.events[-1].seq if self.events else 0

    def __str__(self) -> str:
        return (
            f"{self.transport.name} of {self.name} at {self.cursor}, connected {dict(self.connected)}, "
            f"served {dict(self.served_by)}"
        )

    def start(self) -> None:
        self._task = asyncio.create_task(self._watch(), name=str(self))

    async def reach(self, seq: int, *, within: float) -> None:
        """Wait until the watcher has read that far, or has failed."""
        task = self._task
        assert task is not None
        try:
            async with asyncio.timeout(within):
                while self.cursor < seq and not task.done():
                    self._grew.clear()
                    grew = asyncio.create_task(self._grew.wait())
                    await asyncio.wait({task, grew}, return_when=asyncio.FIRST_COMPLETED)
                    grew.cancel()
        except TimeoutError:
            raise AssertionError(f"not at {seq} within {within} s: {self}") from None
        if task.done():
            task.result()

    async def stop(self) -> None:
        """Stop, whether or not the watcher failed; `reach` raises its failure."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _watch(self) -> None:
        while not (self.events and self.events[-1].type == "done"):
            way = self.network.way_to(self.instance, breaks=self.chance.random() < 0.4)
            try:
                await self._connect(way)
            except (StreamRefused, ChatRefused) as refusal:
                if refusal.status < 500:
                    raise
            except (OSError, EOFError):
                pass
            self.instance = self.chance.randrange(len(self.network.straight))
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _connect(self, way: str) -> None:
        """Read until the server ends the connection, or for a random number of events or seconds."""
        patience = self.chance.choice(
            [None, None, self.chance.uniform(0.0, 0.2), self.chance.uniform(0.0, 1.5)]
        )
        events_left = self.chance.choice([None, 1, 2, self.chance.randint(1, 30)])
        with contextlib.suppress(TimeoutError):
            async with contextlib.aclosing(self._events(way)) as events, asyncio.timeout(patience):
                async for event in events:
                    self._take(event)
                    events_left = None if events_left is None else events_left - 1
                    if events_left is not None and events_left <= 0:
                        break
        self.left += 1

    async def _events(self, way: str) -> AsyncGenerator[Event]:
        path, after = self.transport.path.format(self.name), self.cursor or None
        if self.transport.kind == "thread":
            async with Chat.open(
                way, self.name, self.network.token, after=after, debug=self.transport.debug
            ) as chat:
                self.connected[self.instance] += 1
                try:
                    async for event in chat.events():
                        yield event
                finally:
                    if self.chance.random() < 0.3:
                        await chat.leave()
            return
        by: CursorBy = "header" if self.chance.random() < 0.5 else "query"
        async with Stream.at(way, path, self.network.token, after=after, by=by) as stream:
            self.connected[self.instance] += 1
            if stream.status != 200:
                raise ContractBroken(f"{stream.status} before the end: {self}")
            async for item in stream.items():
                if isinstance(item, Event):
                    yield item

    def _take(self, event: Event) -> None:
        if event.seq <= self.cursor or (self.transport.debug and event.seq != self.cursor + 1):
            raise ContractBroken(f"seq {event.seq} after {self.cursor}: {self}")
        self.served_by[self.instance] += 1
        self.events.append(event)
        self._grew.set()
        self.hears(self, event)
