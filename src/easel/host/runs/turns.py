"""The earlier turns of a session, loaded newest first and kept in memory.

Owns the memory of decoded turns: a finished turn never changes, so it is decoded once per process. Turns
in memory are used only while the store still has the newest of them; those of a deleted session are dropped.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from easel.core.run.context import BYTES_PER_TOKEN, Ending, keep_valid_data, to_turn_steps, turn_tokens
from easel.core.run.conversation import ContextStart, Image, Step, Turn
from easel.core.run.past_turn import PastTurn
from easel.core.run.progress import to_progress
from easel.core.run.run import Claim
from easel.core.stream.log import LoggedEvent
from easel.core.stream.marker import MAY_BE_FORGED
from easel.core.stream.payload_limit import markers_in, restore_markers
from easel.errors import CorruptData, NotFound
from easel.host.ports import ArtifactAccess, TurnStore
from easel.host.runs.images import ImageReader
from easel.ids import ArtifactId, RunId, SessionId, UserId

FIRST_PAGE, PAGE = 20, 100  # turns; the first page usually connects to what is in memory
STEP_EVENTS = ("step.completed", "tool.result")
THREAD_BYTES = 100_000  # of logs; more is decoded in a thread
MAX_CONCURRENT_READS = 8
MAX_MEMORY_BYTES = 32 * 2**20  # of the turns of all sessions


@dataclass(frozen=True, slots=True)
class LoadedTurn:
    turn: Turn
    tokens: int
    start: ContextStart | None  # what the conversation of this run began with
    plain: Turn  # without provider data
    prefixes: frozenset[str]  # of the provider data

    @property
    def size(self) -> int:
        """Return about how many bytes of memory the turn takes."""
        return self.tokens * BYTES_PER_TOKEN + sum(len(image.content) for image in self.turn.images)

    def after(self, prefix: str) -> Turn:
        """Return the turn with the provider data that is valid after this prefix."""
        if prefix not in self.prefixes:
            return self.plain
        if len(self.prefixes) == 1:
            return self.turn
        return replace(self.turn, steps=keep_valid_data(self.turn.steps, prefix))


@dataclass(frozen=True, slots=True)
class History:
    """Turns, oldest first. `start` is the index of the first turn that the run before was given."""

    turns: Sequence[LoadedTurn]
    has_more: bool  # whether there are older turns
    start: int

    @property
    def sizes(self) -> list[int]:
        return [loaded.tokens for loaded in self.turns]


@dataclass(slots=True)
class _Memory:
    turns: list[LoadedTurn] = field(default_factory=list)  # oldest first, without a gap
    has_more: bool = True
    omitted: tuple[str, list[str]] | None = None  # the messages before a turn

    @property
    def tokens(self) -> int:
        return sum(loaded.tokens for loaded in self.turns)


@dataclass(frozen=True, slots=True)
class _Event:
    type: str
    data: Any
    has_markers: bool  # or escaped keys that look like one
    offloaded: frozenset[ArtifactId]


class TurnLoader:
    def __init__(
        self, store: TurnStore, artifacts: ArtifactAccess, images: ImageReader, *, max_result_bytes: int
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._images = images
        self._max_result_bytes = max_result_bytes
        self._memory: OrderedDict[tuple[UserId, SessionId], _Memory] = OrderedDict()
        self._sizes: dict[tuple[UserId, SessionId], int] = {}  # bytes in memory

    async def load(self, claim: Claim, budget: int, own: ContextStart | None) -> History:
        """Return the turns before a run: those that fit into the budget, and at least the first given one.

        `own` is the start of an earlier attempt of this run, which the run keeps.
        """
        memory = await self._load_newest(claim)
        first = _first_run(memory.turns, own)
        while (
            first != claim.run_id
            and memory.has_more
            and not _is_enough(memory, budget, first, fixed=own is not None)
        ):
            before = memory.turns[0].turn.run_id if memory.turns else claim.run_id
            page = await self._load_page(claim, before, PAGE)
            memory.turns[:0] = page
            memory.has_more = len(page) == PAGE
            first = first or _first_run(memory.turns, own)
        self._remember(claim, memory)
        turns = memory.turns
        if first == claim.run_id:
            return History(turns, memory.has_more, len(turns))
        at = next((nth for nth, loaded in enumerate(turns) if loaded.turn.run_id == first), 0)
        return History(turns, memory.has_more, at)

    async def list_omitted(self, claim: Claim, first: RunId, limit: int) -> list[str]:
        """Return the user's messages of up to `limit` turns before the turn `first`, oldest first."""
        memory = self._memory.get((claim.user_id, claim.session_id)) or _Memory()
        if memory.omitted is None or memory.omitted[0] != first:
            past = await self._store.list_turns(claim, before=first, limit=limit)
            memory.omitted = (first, [turn.message for turn in reversed(past)])
        return memory.omitted[1]

    async def _load_newest(self, claim: Claim) -> _Memory:
        """Return the turns in memory with the newer ones added, or only the newest turns of the store."""
        known = self._memory.get((claim.user_id, claim.session_id))
        newest = await self._store.list_turns(claim, before=claim.run_id, limit=FIRST_PAGE)
        places = {} if known is None else {loaded.turn.run_id: nth for nth, loaded in enumerate(known.turns)}
        joint = next((nth for nth, past in enumerate(newest) if past.run_id in places), None)
        if known is None or joint is None:
            turns = await self._decode(claim, newest)
            return _Memory(turns, has_more=len(newest) == FIRST_PAGE)
        kept = known.turns[: places[newest[joint].run_id] + 1]
        return replace(known, turns=[*kept, *await self._decode(claim, newest[:joint])])

    async def _load_page(self, claim: Claim, before: RunId, limit: int) -> list[LoadedTurn]:
        return await self._decode(claim, await self._store.list_turns(claim, before=before, limit=limit))

    def _remember(self, claim: Claim, memory: _Memory) -> None:
        key = claim.user_id, claim.session_id
        self._memory[key] = memory
        self._memory.move_to_end(key)
        self._sizes[key] = sum(loaded.size for loaded in memory.turns)
        total = sum(self._sizes.values())
        while total > MAX_MEMORY_BYTES and self._memory:
            oldest, _ = self._memory.popitem(last=False)
            total -= self._sizes.pop(oldest)

    # -- decoding --------------------------------------------------------------------------------------------

    async def _decode(self, claim: Claim, past: Sequence[PastTurn]) -> list[LoadedTurn]:
        """Return the turns, oldest first. Values that no longer exist make the turn one of messages alone."""
        logged = [turn.run_id for turn in past if turn.has_log]
        logs = await self._store.read_logs(logged, STEP_EVENTS) if logged else {}
        size = sum(len(event.data) for events in logs.values() for event in events)
        decoding = asyncio.to_thread(_decode_logs, logs) if size > THREAD_BYTES else None
        decoded, offloaded = _decode_logs(logs) if decoding is None else await decoding
        fetched = await self._fetch(claim.user_id, offloaded)
        images = {
            turn.run_id: await self._images.read(claim.user_id, turn.message)
            for turn in past
            if "[[artifact:" in turn.message
        }

        def build() -> list[LoadedTurn]:
            return [
                self._build(turn, decoded.get(turn.run_id, []), fetched, images.get(turn.run_id, ()))
                for turn in reversed(past)
            ]

        large = size + sum(map(len, fetched.values())) > THREAD_BYTES
        return await asyncio.to_thread(build) if large else build()

    async def _fetch(self, user_id: UserId, names: frozenset[ArtifactId]) -> dict[ArtifactId, bytes]:
        """Return offloaded values, without those that no longer exist."""
        limit = asyncio.Semaphore(MAX_CONCURRENT_READS)

        async def read(name: ArtifactId) -> tuple[ArtifactId, bytes] | None:
            async with limit:
                try:
                    return name, await self._artifacts.read(user_id, name)
                except (NotFound, CorruptData):
                    return None

        return dict(found for found in await asyncio.gather(*map(read, sorted(names))) if found is not None)

    def _build(
        self,
        past: PastTurn,
        events: list[_Event],
        fetched: Mapping[ArtifactId, bytes],
        images: tuple[Image, ...],
    ) -> LoadedTurn:
        steps: tuple[Step, ...] = ()
        start: ContextStart | None = None
        if all(event.offloaded <= fetched.keys() for event in events):
            progress = to_progress(
                (event.type, restore_markers(event.data, fetched) if event.has_markers else event.data)
                for event in events
            )
            steps, start = progress.steps, progress.start
        ending = Ending(past.answer, past.status, past.error_message)
        turn = Turn(
            past.run_id,
            past.message,
            to_turn_steps(past.run_id, steps, ending, self._max_result_bytes),
            past.updates_before,
            past.updates_after,
            images,
        )
        prefixes = frozenset(step.prefix for step in turn.steps if step.provider_data is not None)
        plain = replace(turn, steps=keep_valid_data(turn.steps, "")) if prefixes else turn
        return LoadedTurn(turn, turn_tokens(turn), start, plain, prefixes)


def _decode_logs(
    logs: Mapping[RunId, Sequence[LoggedEvent]],
) -> tuple[dict[RunId, list[_Event]], frozenset[ArtifactId]]:
    """Return the decoded events of each log, and the artifacts of their offloaded values."""
    decoded = {run_id: [_decode_event(event) for event in events] for run_id, events in logs.items()}
    names = (event.offloaded for events in decoded.values() for event in events)
    return decoded, frozenset[ArtifactId]().union(*names)


def _decode_event(event: LoggedEvent) -> _Event:
    data, has_markers = msgspec.json.decode(event.data), MAY_BE_FORGED in event.data
    return _Event(event.type, data, has_markers, markers_in(data) if has_markers else frozenset())


def _first_run(turns: Sequence[LoadedTurn], own: ContextStart | None) -> RunId | None:
    """Return the run of the first turn that the newest run with a start was given, None if not known."""
    if own is not None:
        return own.first_run_id
    for loaded in reversed(turns):
        if loaded.start is not None:
            return loaded.start.first_run_id
    return None


def _is_enough(memory: _Memory, budget: int, first: RunId | None, *, fixed: bool) -> bool:
    if first is not None and any(loaded.turn.run_id == first for loaded in memory.turns):
        return True
    if fixed:  # an earlier attempt was given exactly the turns from `first`, or all
        return False
    return memory.tokens > budget
