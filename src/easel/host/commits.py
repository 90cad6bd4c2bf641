"""Commits of decisions: what canvases and documents have in common.

Owns that the values that a change offloads are stored before it, and that a lost reply is reported as one.
Does not know the content of a change.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from easel.core.stream.envelope import Envelope
from easel.core.stream.marker import OffloadedValue
from easel.errors import NotFound, Unavailable
from easel.ids import ArtifactId


class Storable(Protocol):
    @property
    def events(self) -> Sequence[Envelope]: ...

    @property
    def offloaded(self) -> Sequence[OffloadedValue]: ...


Before = TypeVar("Before")
After = TypeVar("After")
Decided = TypeVar("Decided", bound="Storable | None")


@dataclass(frozen=True, slots=True)
class Committed(Generic[Before, Decided, After]):
    """A decision: what it was made on, the change that it returned, None for none, and the result."""

    before: Before
    change: Decided
    after: After


class _NotStored(Exception):
    """A change refers to offloaded values that are not stored yet."""

    def __init__(self, values: list[OffloadedValue]) -> None:
        super().__init__()
        self.values = values


async def commit(
    what: str,
    name: str,
    store: Callable[[Callable[[Before], Decided]], Awaitable[After | None]],
    decide: Callable[[Before], Decided],
    save: Callable[[Sequence[OffloadedValue]], Awaitable[None]],
    *,
    complete: Callable[[Before, Decided], Decided] | None = None,
    is_repeatable: bool,
) -> Committed[Before, Decided, After]:
    """Commit the change that `decide` returns, with `store`. Raises `NotFound` if there is nothing to change.

    If the change offloads values that are not stored, `save` stores them and the decision is repeated.
    `complete` adds what every change has. `is_repeatable`: whether the caller may safely retry after a lost
    reply.
    """
    saved = set[ArtifactId]()
    made: tuple[Before, Decided] | None = None

    def record(before: Before) -> Decided:
        nonlocal made
        made, change = None, decide(before)
        if complete is not None:
            change = complete(before, change)
        if change is not None:
            needed = (*change.offloaded, *(value for event in change.events for value in event.offloaded))
            if missing := [value for value in needed if value.artifact_id not in saved]:
                raise _NotStored(missing)
        made = before, change
        return change

    while True:
        try:
            after = await store(record)
        except _NotStored as missing:
            await save(missing.values)
            saved |= {value.artifact_id for value in missing.values}
        except Unavailable as problem:
            if made is None or made[1] is None:
                raise
            sent = Unavailable.after_sending(problem.details["what"], is_repeatable=is_repeatable)
            raise sent from problem
        else:
            if after is None or made is None:
                raise NotFound(what=what, id=name)
            return Committed(*made, after)
