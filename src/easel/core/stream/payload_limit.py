"""What is too heavy for a log or a table, and is moved to artifacts. RS-35

Owns the one law of lightness: an event's data is at most 2 KB as it is stored, and Base64 above 2 KB stands nowhere, in no string
and not cut up over several. What stands in the place of a moved value, and how it comes back, is in `marker`; what counts as
Base64 is in `encoded`; what numbers weigh is in `weight`. Pure.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, cast

from easel.core.stream.encoded import holds_encoded, scattered
from easel.core.stream.json_text import to_json
from easel.core.stream.marker import (
    LIMIT,
    MAY_BE_FORGED,
    MIN_MARKER_BYTES,
    OffloadedValue,
    escaped_key,
    from_bytes,
    marker_size,
    markers_in,
    mentioned,
    move,
    restored,
    to_bytes,
)
from easel.core.stream.weight import added_by_storing, added_to_number

__all__ = [
    "LIMIT",
    "OffloadedValue",
    "light_event",
    "light_value",
    "lightened",
    "markers_in",
    "mentioned",
    "restored",
]


def light_event(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[OffloadedValue, ...]]:
    """The data of an event in at most LIMIT bytes of JSON, and what had to be moved for it."""
    light, _, offloaded = lightened(data)
    return light, offloaded


def lightened(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, tuple[OffloadedValue, ...]]:
    """`light_event` together with the JSON of what it gives, so that an ordinary event is encoded once."""
    text = to_json(data)
    if _is_light(text):
        added = added_by_storing(text, data.values())
        if not added or len(text.encode()) + added <= LIMIT:
            return data, text, ()
    light, offloaded = _rebuilt(given := from_bytes(text), _Event(given).to_move())
    return light, to_json(light), offloaded


def light_value(value: Any) -> tuple[Any, tuple[OffloadedValue, ...]]:
    """A value of a message, a board or a canvas: without Base64 over LIMIT, and else whole, however long it is."""
    if isinstance(value, str) and not holds_encoded(value):
        return value, ()
    text = to_json(value)
    if _is_light(text):
        return value, ()
    given = from_bytes(text)
    moving = _Value(given).to_move()
    return _rebuilt(given, moving) if moving or MAY_BE_FORGED in text else (given, ())


def _is_light(text: str) -> bool:
    if len(text) > LIMIT or MAY_BE_FORGED in text:
        return False
    return text.isascii() or len(text.encode()) <= LIMIT


# --- events: by size --------------------------------------------------------------------------------------------------

# With more parts than this, a container has no place in an event, nor has one that only lost a single part of it.
_WIDEST = LIMIT // 2
_Key = str | int
_Place = tuple[int, _Key]  # the container by its identity, and where in it
_ROOT: _Place = (0, "")


@dataclass(slots=True, eq=False)
class _Leaf:
    owner: "_Container"
    key: _Key
    value: Any
    size: int  # of its JSON, as it is stored
    gain: int  # bytes that the event loses when this is moved


@dataclass(slots=True, eq=False)
class _Container:
    """An object or array of an event: `number` and `last` span the containers in it, counted in the order of the text."""

    owner: "_Container | None"
    key: _Key
    value: Any
    number: int
    last: int = 0
    written: int = 0  # bytes of its JSON, as its artifact has them
    size: int = 0  # of its JSON, as it is stored
    least: int = 0  # of its JSON in the event when every leaf in it is moved that is worth it

    def holds(self, other: "_Container") -> bool:
        return self.number <= other.number <= self.last


class _Event:
    """The parts of an event's data with their weights, each weighed once."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._containers: list[_Container] = []
        self._leaves: list[_Leaf] = []  # those worth moving
        self._root = self._weigh(data, None, "")

    def to_move(self) -> set[_Place]:
        return {_place(part) for part in self._chosen()}

    def _chosen(self) -> "list[_Leaf | _Container]":
        """The largest leaves; where they do not suffice, the smallest container that does, and of the leaves what it still takes."""
        chosen: list[_Leaf | _Container] = []
        leaves, size = self._leaves, self._root.least
        if size > LIMIT:
            container = min(
                (one for one in self._containers if self._size_without(one) <= LIMIT),
                key=lambda one: one.size,
            )
            chosen.append(container)
            leaves = [leaf for leaf in leaves if not container.holds(leaf.owner)]
            size = self._size_without(container)
        size += sum(leaf.gain for leaf in leaves)
        for leaf in sorted(leaves, key=lambda leaf: leaf.size, reverse=True):
            if size <= LIMIT:
                break
            size -= leaf.gain
            chosen.append(leaf)
        return chosen

    def _size_without(self, container: _Container) -> int:
        return self._root.least - container.least + marker_size(container.written, is_text=False)

    def _weigh(self, value: Any, owner: _Container | None, key: _Key) -> _Container:
        this = _Container(owner, key, value, len(self._containers))
        self._containers.append(this)
        if len(value) > _WIDEST:
            this.written = this.size = this.least = len(to_bytes(value))
            this.last = this.number
            return this
        if isinstance(value, dict):
            given = cast("dict[str, Any]", value)
            own = len(to_bytes(list(given))) + len(given)  # brackets and commas, keys and colons
            this.least = sum(len(escaped_key(name, item)) - len(name) for name, item in given.items())
        else:
            own = 2 + max(0, len(value) - 1)
        this.written, this.size, this.least = own, own, own + this.least
        for name, part in _parts(value):
            if isinstance(part, (dict, list)):
                inner = self._weigh(part, this, name)
                this.written += inner.written
                this.size += inner.size
                this.least += inner.least
                continue
            content = to_bytes(part)
            size = len(content) + (added_to_number(content) if isinstance(part, float) else 0)
            gain = _gain(part, len(content), size)
            if gain > 0:
                self._leaves.append(_Leaf(this, name, part, size, gain))
            this.written += len(content)
            this.size += size
            this.least += size - gain
        this.last = len(self._containers) - 1
        return this


def _gain(leaf: Any, written: int, size: int) -> int:
    """How much smaller an event gets when a leaf of so many bytes is moved: nothing, if its marker is no smaller."""
    if size < MIN_MARKER_BYTES:
        return 0
    is_text = isinstance(leaf, str)
    return max(0, size - marker_size(len(leaf.encode()) if is_text else written, is_text=is_text))


# --- elsewhere: by what it is -----------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Home:
    """An object or array of a value, in which strings are."""

    owner: "_Home | None"
    key: _Key
    value: Any
    depth: int


class _Value:
    """The strings of a value in the order of the text, keys too, and where each of them is."""

    def __init__(self, value: Any) -> None:
        self._moving: set[_Place] = set()
        self._texts: list[str] = []
        self._homes: list[_Home] = []
        self._keys: set[str] = set()
        if isinstance(value, str):
            self._moving.add(_ROOT)
        elif isinstance(value, (dict, list)):
            self._gather(_Home(None, "", value, 0))

    def to_move(self) -> set[_Place]:
        """Strings that hold Base64 over LIMIT, and the smallest containers of what is cut up over several."""
        for run in scattered(self._texts):
            self._add_homes(run)
        return self._moving

    def _gather(self, home: _Home) -> None:
        for key, item in _parts(home.value):
            if isinstance(key, str) and not self._is_name(key):
                self._take(key, home, _place(home))
            if isinstance(item, str):
                self._take(item, home, (id(home.value), key))
            elif isinstance(item, (dict, list)):
                self._gather(_Home(home, key, item, home.depth + 1))

    def _is_name(self, key: str) -> bool:
        """Without a capital, or not the first of its kind: no piece of Base64."""
        if len(key) > LIMIT:
            return False
        is_known = key.islower() or key in self._keys
        self._keys.add(key)
        return is_known

    def _take(self, text: str, home: _Home, place: _Place) -> None:
        if len(text) > LIMIT and holds_encoded(text):
            self._moving.add(place)
            return
        # What is cut up goes on from the end of one string at the beginning of the next.
        for part in (text[:LIMIT], text[-LIMIT:]) if len(text) > 2 * LIMIT else (text,):
            self._texts.append(part)
            self._homes.append(home)

    def _add_homes(self, run: Mapping[int, int]) -> None:
        weights: dict[_Home, int] = {}
        levels: dict[int, list[_Home]] = {}

        def add(home: _Home, weight: int) -> None:
            if home not in weights:
                weights[home] = 0
                levels.setdefault(home.depth, []).append(home)
            weights[home] += weight

        for at, weight in run.items():
            add(self._homes[at], weight)
        for depth in range(max(levels), -1, -1):
            for home in levels.get(depth, ()):
                if weights[home] > LIMIT:
                    self._moving.add(_place(home))
                elif home.owner is not None:
                    add(home.owner, weights[home])


# --- what is left -----------------------------------------------------------------------------------------------------


def _place(part: "_Leaf | _Container | _Home") -> _Place:
    return _ROOT if part.owner is None else (id(part.owner.value), part.key)


def _parts(value: Any) -> Iterable[tuple[_Key, Any]]:
    return (
        cast("dict[str, Any]", value).items()
        if isinstance(value, dict)
        else enumerate(cast("list[Any]", value))
    )


def _rebuilt(value: Any, moving: Set[_Place]) -> tuple[Any, tuple[OffloadedValue, ...]]:
    """The value with markers in the places of what moves, and with the keys of forged ones escaped; and what was moved."""
    artifacts: dict[str, OffloadedValue] = {}

    def light(item: Any, place: _Place) -> Any:
        if place in moving:
            marker, offloaded = move(item)
            artifacts[offloaded.artifact_id] = offloaded
            return marker
        if isinstance(item, dict):
            given = cast("dict[str, Any]", item)
            return {escaped_key(key, part): light(part, (id(given), key)) for key, part in given.items()}
        if isinstance(item, list):
            many = cast("list[Any]", item)
            return [light(part, (id(many), at)) for at, part in enumerate(many)]
        return item

    return light(value, _ROOT), tuple(artifacts.values())
