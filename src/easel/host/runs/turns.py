"""The earlier turns of a session, loaded newest first and kept in memory.

Owns the memory of decoded turns: a finished turn never changes, so it is decoded once per process. Turns
in memory are used only while the store still has the newest of them; those of a deleted session are dropped.
Images are not kept in memory: they are read for each run, of the newest turns that fit into a request.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from easel.core.run.context import (
    BYTES_PER_TOKEN,
    IMAGE_TOKENS,
    KEPT_SHARE,
    MAX_TITLE_LENGTH,
    Ending,
    keep_valid_data,
    to_turn_steps,
    turn_tokens,
    update_tokens,
)
from easel.core.run.conversation import ContextStart, Image, Step, Turn
from easel.core.run.past_turn import PastTurn
from easel.core.run.progress import to_progress
from easel.core.run.run import Claim
from easel.core.stream.log import LoggedEvent
from easel.core.stream.marker import MAY_BE_FORGED
from easel.core.stream.payload_limit import markers_in, restore_markers
from easel.errors import CorruptData, NotFound
from easel.host.ports import ArtifactAccess, TurnStore
from easel.host.runs.images import MAX_REQUEST_IMAGE_BYTES, ImageReader, count_images
from easel.ids import AccountId, ArtifactId, RunId, SessionId

FIRST_PAGE, PAGE = 20, 100  # turns; the first page usually connects to what is in memory
STEP_EVENTS = ("step.completed", "tool.result")
THREAD_BYTES = 100_000  # of logs; more is decoded in a thread
MAX_CONCURRENT_READS = 8
MAX_MEMORY_BYTES = 32 * 2**20  # of the turns of all sessions
ENTRY_BYTES = 1_000  # of a session or a turn in memory, beside its texts


@dataclass(frozen=True, slots=True)
class LoadedTurn:
    turn: Turn  # without images
    tokens: int  # with an estimate for images
    tokens_without_updates: int
    start: ContextStart | None  # what the conversation of this run began with
    plain: Turn  # without provider data
    prefixes: frozenset[str]  # of the provider data

    @property
    def size(self) -> int:
        """Return about how many bytes of memory the turn takes."""
        return self.tokens * BYTES_PER_TOKEN + ENTRY_BYTES

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


@dataclass(frozen=True, slots=True)
class TurnImages:
    """The images of turns. `first` is the first turn whose images are given, None if those of all are."""

    images: Mapping[RunId, tuple[Image, ...]]
    first: RunId | None

    def of(self, run_id: RunId) -> tuple[Image, ...]:
        return self.images.get(run_id, ())


@dataclass(slots=True)
class _Memory:
    turns: list[LoadedTurn] = field(default_factory=list)  # oldest first, without a gap
    has_more: bool = True
    omitted: tuple[str, list[str]] | None = None  # the beginnings of the messages before a turn
    first_image: RunId | None = None  # the first turn whose images the run before was given, None: of all

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
        self._memory: OrderedDict[tuple[AccountId, SessionId], _Memory] = OrderedDict()
        self._sizes: dict[tuple[AccountId, SessionId], int] = {}  # bytes in memory

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
            page = await self._decode(claim, await self._store.list_turns(claim, before=before, limit=PAGE))
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
        """Return the beginnings of the messages of up to `limit` turns before the turn `first`."""
        memory = self._memory.get((claim.account_id, claim.session_id)) or _Memory()
        if memory.omitted is None or memory.omitted[0] != first:
            past = await self._store.list_turns(claim, before=first, limit=limit)
            memory.omitted = (first, [turn.message[: 4 * MAX_TITLE_LENGTH] for turn in reversed(past)])
        return memory.omitted[1]

    async def read_images(
        self, claim: Claim, turns: Sequence[LoadedTurn], own: Sequence[Image]
    ) -> TurnImages:
        """Return the images of the newest turns, as many as fit into a request with the run's own ones.

        The first turn with images stays that of the run before as long as all fit. Otherwise images are left
        out until the rest takes half of the limit. Those that are left out stay references in the text.
        """
        memory = self._memory.get((claim.account_id, claim.session_id)) or _Memory()
        start = next((nth for nth, given in enumerate(turns) if given.turn.run_id == memory.first_image), 0)
        used = sum(len(image.content) for image in own)
        images: dict[RunId, tuple[Image, ...]] = {}
        totals: dict[RunId, int] = {}
        first = None if start == 0 else memory.first_image
        for loaded in reversed(turns[start:]):
            if not count_images(loaded.turn.user_message):
                continue
            found = await self._images.read(claim.account_id, loaded.turn.user_message)
            used += sum(len(image.content) for image in found)
            if used > MAX_REQUEST_IMAGE_BYTES:
                kept = [name for name in images if totals[name] <= MAX_REQUEST_IMAGE_BYTES // KEPT_SHARE]
                kept = kept or list(images)[:1]
                images = {name: images[name] for name in kept}
                first = kept[-1] if kept else claim.run_id
                break
            images[loaded.turn.run_id], totals[loaded.turn.run_id] = found, used
        memory.first_image = first
        return TurnImages(images, first)

    async def _load_newest(self, claim: Claim) -> _Memory:
        """Return the turns in memory with the newer ones added, or only the newest turns of the store."""
        known = self._memory.get((claim.account_id, claim.session_id))
        newest = await self._store.list_turns(claim, before=claim.run_id, limit=FIRST_PAGE)
        places = {} if known is None else {loaded.turn.run_id: nth for nth, loaded in enumerate(known.turns)}
        joint = next((nth for nth, past in enumerate(newest) if past.run_id in places), None)
        if known is None or joint is None:
            turns = await self._decode(claim, newest)
            return _Memory(turns, has_more=len(newest) == FIRST_PAGE)
        kept = known.turns[: places[newest[joint].run_id] + 1]
        return replace(known, turns=[*kept, *await self._decode(claim, newest[:joint])])

    def _remember(self, claim: Claim, memory: _Memory) -> None:
        key = claim.account_id, claim.session_id
        self._memory[key] = memory
        self._memory.move_to_end(key)
        self._sizes[key] = ENTRY_BYTES + sum(loaded.size for loaded in memory.turns)
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
        fetched = await self._fetch(claim.account_id, offloaded)

        def build() -> list[LoadedTurn]:
            return [self._build(turn, decoded.get(turn.run_id, []), fetched) for turn in reversed(past)]

        large = size + sum(map(len, fetched.values())) > THREAD_BYTES
        return await asyncio.to_thread(build) if large else build()

    async def _fetch(self, account_id: AccountId, names: frozenset[ArtifactId]) -> dict[ArtifactId, bytes]:
        """Return offloaded values, without those that no longer exist."""
        limit = asyncio.Semaphore(MAX_CONCURRENT_READS)

        async def read(name: ArtifactId) -> tuple[ArtifactId, bytes] | None:
            async with limit:
                try:
                    return name, await self._artifacts.read(account_id, name)
                except (NotFound, CorruptData):
                    return None

        return dict(found for found in await asyncio.gather(*map(read, sorted(names))) if found is not None)

    def _build(self, past: PastTurn, events: list[_Event], fetched: Mapping[ArtifactId, bytes]) -> LoadedTurn:
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
        )
        prefixes = frozenset(step.prefix for step in turn.steps if step.provider_data is not None)
        plain = replace(turn, steps=keep_valid_data(turn.steps, "")) if prefixes else turn
        tokens = turn_tokens(turn) + IMAGE_TOKENS * count_images(past.message)
        return LoadedTurn(turn, tokens, tokens - update_tokens(turn), start, plain, prefixes)


def _decode_logs(
    logs: Mapping[RunId, Sequence[LoggedEvent]],
) -> tuple[dict[RunId, list[_Event]], frozenset[ArtifactId]]:
    """Return the decoded events of each log, and the artifacts of their offloaded values."""
    decoded = {run_id: [_decode_event(event) for event in events] for run_id, events in logs.items()}
    names = (event.offloaded for events in decoded.values() for event in events)
    return decoded, frozenset[ArtifactId]().union(*names)


def _decode_event(event: LoggedEvent) -> _Event:
    data, has_markers = msgspec.json.decode(event.data), MAY_BE_FORGED in event.data
    data.pop("instructions", None)  # needed by the run itself only
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
