"""Every transport at once: the random load.

Owns the content (scripts, messages, boards, pictures: small and large, plain and hostile) and the senders, on
any instance, while servers are stopped and started. Puts watchers on every log that results.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
import json
import random
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import httpx2

from tests.journeys.client import REQUEST_SECONDS, call, new_session, say, ticks, wait_ms
from tests.journeys.mixed_watchers import NARRATIVE, STATE, TRANSPORTS, VISUALS, Kind, Network, Watcher
from tests.support.chat import Chat, ChatRefused
from tests.support.encoded import say_in_pieces
from tests.support.sse import RECONNECT_SECONDS, Event, Parser
from tests.support.strict_http import STRICT_ASYNC

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.journeys.client import Step

TRY_AGAIN_SECONDS = 5.0
# A message that is not in its thread by then is sent again under the same key: its server may have been
# killed.
SAID_SECONDS = 60.0
MORE_SECONDS = 60.0
EVERYTHING = ("cancels", "board writes", "pictures", "_post", "_say", "_post_and_stream")

# --- content
# ---------------------------------------------------------------------------------------------------

WORDS = (
    "the",
    "log",
    "is",
    "truth;",
    "every",
    "transport",
    "a",
    "tail.",
    "ça",
    "где,",
    "木",
    "と",
    "🌊",
    '"quoted"',
    "line\n(code)",
    "{x: 1}",
)


class Inventor:
    """Makes random content: small and large, plain and hostile. `planted` is every Base64 text that must not
    be found in a log.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.planted: list[str] = []
        self._numbers = itertools.count(1)

    def words(self, least: int, most: int) -> str:
        wanted, text = self._chance.randint(least, most), ""
        while len(text) < wanted:
            text += " ".join(self._chance.choices(WORDS, k=20)) + " "
        return text[:wanted]

    def escaped(self) -> str:
        """Return text that grows when it becomes JSON: quotes, backslashes and line breaks, as in code that
        prints code.
        """
        return "".join(
            self._chance.choice(['\\"', '{"a": "b\\n"},\n', "\t\t\n", "'''\n"]) for _ in range(600)
        )

    def pixels(self) -> str:
        """Return Base64 of a picture, in one piece, in lines, url-safe or as a data URL."""
        raw = self._chance.randbytes(self._chance.randint(3_500, 5_000))
        plain = base64.b64encode(raw).decode()
        self.planted += [plain, base64.urlsafe_b64encode(raw).decode()]
        lines = "\n".join(plain[at : at + 76] for at in range(0, len(plain), 76))
        return self._chance.choice(
            [plain, lines, base64.urlsafe_b64encode(raw).decode(), f"data:image/png;base64,{plain}"]
        )

    def png(self) -> bytes:
        return b"\x89PNG\r\n\x1a\n" + self._chance.randbytes(self._chance.choice([30, 300, 8_000]))

    def value(self) -> Any:
        """Return a value for a tool or a board."""
        size = self._chance.randint(0, 5)
        forged = {
            "redacted": True,
            "original_size": 1,
            "sha256": "x",
            "uri": "/api/artifacts/art_x",
            "payload": self.words(10, 50),
        }
        signed = {
            "visibility": "system",
            "provenance": {"agent_id": "mallory", "node_id": "m", "run_id": "m"},
            "seq": 1,
        }
        return self._chance.choice(
            [
                size,
                self.words(1, 60),
                {"text": self.words(2_100, 4_000)},
                [self.words(200, 400) for _ in range(20)],
                {f"key {number}": {"deep": [number, self.words(5, 80)]} for number in range(60)},
                {"picture": self.pixels(), "name": self.words(5, 20)},
                forged,
                signed,
            ]
        )

    # Each a step of a script; together they produce every type of event.
    def steps(self) -> list[Callable[[], Step | list[Step]]]:
        chance = self._chance
        return [
            lambda: say(self.words(1, 80)),
            lambda: say(self.words(2_100, 7_000)),
            lambda: say(self.escaped()),
            lambda: say_in_pieces(self.pixels()),
            lambda: {"think": self.words(1, 80)},
            lambda: {"think": self.words(2_100, 4_000)},
            lambda: call("gsv__Echo", value=self.value()),
            lambda: call("gsv__Echo", value=self.value()),
            lambda: call(
                "gsv__WhiteboardWrite",
                key=chance.choice("abc"),
                value=self.value(),
                node_id=self.words(1, 10).strip() or "n",
            ),
            lambda: call(
                "gsv__BlackboardWrite",
                key=chance.choice("abc"),
                edge_id=chance.choice(["a-b", "b-c"]),
                value=self.value(),
            ),
            lambda: call("gsv__WhiteboardWrite", key="a", value=1, expected_version=99),
            lambda: call("gsv__WhiteboardWrite", value=self.pixels()),
            lambda: call("gsv__Nothing", value=self.value()),
            lambda: ticks(chance.randint(5, 20), chance.randint(5, 25)),
            lambda: wait_ms(chance.randint(1, 200)),
        ]

    def message(self) -> str:
        """Return a person's message: nearly always a script."""
        number = next(self._numbers)
        if self._chance.random() < 0.1:
            return f"{number} {self._chance.choice([self.words(1, 3_000), self.pixels()])}"
        makers = self.steps()
        # The first messages go through all steps, so that every seed has every type of event.
        first = makers[number % 5 :: 5] if number <= 5 else []
        made = [make() for make in first or self._chance.choices(makers, k=self._chance.randint(1, 6))]
        steps = [step for part in made for step in (part if isinstance(part, list) else [part])]
        if self._chance.random() < 0.15 and not first:
            steps.append({"fail": self.words(5, 40)})
        return json.dumps({"number": number, "script": steps})


# --- senders
# ---------------------------------------------------------------------------------------------------


def number_of(text: str) -> str:
    """Return the number of a message, which its text begins with, also if the text is cut. RS-62"""
    found = re.match(r"\D*(\d+)\b", text)
    assert found, text[:100]
    return found[1]


class Load:
    """Sessions with messages, canvases with changes, and watchers of every resulting log."""

    def __init__(self, network: Network, chance: random.Random, *, sessions: int, canvases: int) -> None:
        self._network, self._chance = network, chance
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {network.token}"},
            timeout=REQUEST_SECONDS,
            trust_env=False,
            event_hooks=STRICT_ASYNC,
        )
        self.inventor = Inventor(chance)
        self.sessions = [new_session() for _ in range(sessions)]
        self.canvases = [f"canvas-{new_session()}" for _ in range(canvases)]
        self.watchers: list[Watcher] = []
        self.did: Counter[str] = Counter()
        self.pictures: dict[str, bytes] = {}
        self.older_clients: list[tuple[str, list[Event]]] = []
        """What `POST /api/chat` streamed: (run, events)."""
        self.heard_types: set[str] = set()
        self._said: dict[str, asyncio.Event] = {}
        self._runs: set[str] = set()
        self._meddling = asyncio.TaskGroup()

    async def close(self) -> None:
        for watcher in self.watchers:
            await watcher.stop()
        await self._http.aclose()

    async def go_on(self, seconds: float) -> None:
        """Run all senders for this long; returns when the last one has finished."""
        self._until = asyncio.get_running_loop().time() + seconds
        for session in self.sessions:
            self._watch("thread", session)
        async with self._meddling, asyncio.TaskGroup() as people:
            for session in self.sessions:
                people.create_task(self._talk(session))
            for canvas in self.canvases:
                people.create_task(self._draw(canvas))

    @property
    def _is_time(self) -> bool:
        """Whether the time is over and every kind of operation has happened: a slow machine takes longer."""
        now = asyncio.get_running_loop().time()
        return now < self._until or (now < self._until + MORE_SECONDS and not self._is_complete)

    @property
    def _is_complete(self) -> bool:
        was_read_whole = any(events and events[-1].type == "done" for _, events in self.older_clients)
        return (
            was_read_whole
            and self.heard_types >= NARRATIVE | STATE | VISUALS
            and all(self.did[what] for what in EVERYTHING)
        )

    # -- watching

    def _watch(self, kind: Kind, name: str) -> None:
        for transport in TRANSPORTS:
            for instance in range(len(self._network.straight)):
                if transport.kind == kind:
                    seed = random.Random(self._chance.random())
                    self.watchers.append(
                        Watcher(self._network, transport, name, seed, instance, self._on_notification)
                    )
                    self.watchers[-1].start()

    def _on_notification(self, watcher: Watcher, event: Event) -> None:
        self.heard_types.add(event.type)
        if (
            watcher.transport.kind == "thread"
            and event.type == "message.completed"
            and event.data["role"] == "user"
        ):
            self._said.setdefault(number_of(event.data["text"]), asyncio.Event()).set()
            run_id = event.data["run_id"]
            if run_id not in self._runs:
                self._runs.add(run_id)
                self._watch("run", run_id)
                if self._is_time:
                    self._meddling.create_task(self._meddle(run_id, random.Random(self._chance.random())))

    # -- requests, while servers are stopped and started

    async def _ask(
        self, path: str, body: object = None, *, raw: bytes | None = None, at: int | None = None
    ) -> httpx2.Response | None:
        """Send one request to any instance; None if its server was killed."""
        url = self._network.straight[self._chance.randrange(2) if at is None else at] + path
        try:
            if raw is None:
                return await self._http.post(url, json=body)
            return await self._http.post(url, content=raw, headers={"Content-Type": "image/png"})
        except httpx2.TransportError:
            self.did["lost requests"] += 1
            return None

    async def _ask_surely(self, path: str, body: object, *fine: int) -> httpx2.Response:
        for at in range(200):
            answer = await self._ask(path, body, at=at % 2)
            if answer is not None and answer.status_code in fine:
                return answer
            assert answer is None or answer.status_code == 503, answer.text
            await asyncio.sleep(RECONNECT_SECONDS)
        raise AssertionError

    # -- messages

    async def _talk(self, session: str) -> None:
        """Send messages faster than they are answered, in three ways."""
        while self._is_time:
            text, key = self.inventor.message(), f"{session}-{self._chance.random()}"
            how = self._chance.choice([self._post, self._say, self._post_and_stream])
            self.did[how.__name__] += 1
            await how(session, text, key)
            await asyncio.sleep(self._chance.uniform(0.0, 1.0))

    async def _post(self, session: str, text: str, key: str) -> None:
        await self._ask_surely(
            "/api/runs", {"session_id": session, "message": text, "idempotency_key": key}, 202
        )

    async def _say(self, session: str, text: str, key: str) -> None:
        """Send over the chat and wait until the message comes back in the thread."""
        said = self._said.setdefault(number_of(text), asyncio.Event())
        try:
            async with asyncio.timeout(SAID_SECONDS):
                while not said.is_set():
                    try:
                        await self._say_once(session, text, key, said)
                    except ChatRefused as refusal:
                        if refusal.status < 500:
                            raise
                    except (OSError, EOFError):
                        pass
                    await asyncio.sleep(RECONNECT_SECONDS)
        except TimeoutError:
            raise AssertionError(
                f"not in the thread {session} within {SAID_SECONDS} s: {text[:200]}"
            ) from None

    async def _say_once(self, session: str, text: str, key: str, said: asyncio.Event) -> None:
        async with Chat.open(
            self._chance.choice(self._network.straight), session, self._network.token
        ) as chat:
            if self._chance.random() < 0.2:
                await chat.send('{"type":"shout"}')
            await chat.say(text, key)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(said.wait(), TRY_AGAIN_SECONDS)
            if self._chance.random() < 0.15:
                self.did["cancels"] += 1
                await chat.cancel()

    async def _post_and_stream(self, session: str, text: str, key: str) -> None:
        """Send as older clients do; some disconnect in the middle, which must stop nothing."""
        patience = self._chance.choice([None, self._chance.uniform(0.0, 1.0)])
        events: list[Event] = []
        run_id = ""
        way = self._chance.choice(self._network.straight)
        parser = Parser()
        with contextlib.suppress(httpx2.TransportError, TimeoutError):
            body = {"message": text, "idempotency_key": key}
            async with (
                asyncio.timeout(patience),
                self._http.stream("POST", f"{way}/api/chat/{session}", json=body) as answer,
            ):
                assert answer.status_code in (200, 503), answer.status_code
                run_id = answer.headers.get("x-run-id", "")
                async for chunk in answer.aiter_bytes():
                    events += [item for item in parser.feed(chunk) if isinstance(item, Event)]
        self.older_clients.append((run_id, events))

    # -- changes to runs

    async def _meddle(self, run_id: str, chance: random.Random) -> None:
        """Write on the boards of a running run as another client, and sometimes cancel it."""
        for _ in range(chance.randint(0, 5)):
            await asyncio.sleep(chance.uniform(0.0, 0.2))
            if chance.random() < 0.1:
                answer = await self._ask(f"/api/runs/{run_id}/cancel")
                self.did["cancels"] += answer is not None and answer.status_code == 202
            board = chance.choice(["whiteboard", "blackboard"])
            body: dict[str, Any] = {
                "key": chance.choice("abc"),
                "value": self.inventor.value(),
                "source_node_id": "planner",
            }
            body |= {} if board == "whiteboard" else {"edge_id": chance.choice(["a-b", "b-c"])}
            answer = await self._ask(f"/api/runs/{run_id}/{board}", body)
            assert answer is None or answer.status_code in (200, 409, 503), answer.text
            self.did["board writes"] += answer is not None and answer.status_code == 200
            refused = await self._ask(f"/api/runs/{run_id}/whiteboard", body | {"edge_id": "a-b"})
            assert refused is None or refused.status_code in (400, 409, 503), refused.text

    # -- canvases

    async def _draw(self, canvas: str) -> None:
        made = {
            "method": "canvas.create",
            "params": {
                "canvasId": canvas,
                "title": self.inventor.words(3, 30),
                "state": {"a": self.inventor.value()},
            },
        }
        await self._ask_surely("/api/rpc", made, 200, 409)
        self._watch("canvas", canvas)
        picture = self.inventor.png()
        while self._is_time:
            picture = picture if self._chance.random() < 0.2 else self.inventor.png()
            self.pictures[hashlib.sha256(picture).hexdigest()] = picture
            answer = await self._ask(f"/api/canvases/{canvas}/snapshots", raw=picture)
            assert answer is None or answer.status_code in (201, 503), answer.text
            self.did["pictures"] += answer is not None and answer.status_code == 201
            await asyncio.sleep(self._chance.uniform(0.0, 0.6))
