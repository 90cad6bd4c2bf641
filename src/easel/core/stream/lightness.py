"""What is too heavy for a log or a table, and is moved to artifacts. RS-35

Owns the one law of lightness: an event's data is at most 2 KB, and Base64 above 2 KB stands nowhere. What stands in the place
of a moved value, and how it comes back, is in `marker`; what counts as Base64 is in `encoded`. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from easel.core.stream.encoded import LINE, holds_encoded
from easel.core.stream.marker import (
    LIMIT,
    MAY_BE_FORGED,
    SMALLEST_MARKER,
    Moved,
    escaped_key,
    from_bytes,
    marker_size,
    markers_in,
    mentioned,
    move,
    restored,
    to_bytes,
)
from easel.core.stream.payload import to_json
from easel.ids import ArtifactId

__all__ = ["LIMIT", "Moved", "light_event", "light_value", "lightened", "markers_in", "mentioned", "restored"]


def light_event(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[Moved, ...]]:
    """The data of an event in at most LIMIT bytes of JSON, and what had to be moved for it."""
    light, _, moved = lightened(data)
    return light, moved


def lightened(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, tuple[Moved, ...]]:
    """`light_event` together with the JSON of what it gives, so that an ordinary event is encoded once."""
    text = to_json(data)
    if _is_light(text):
        return data, text, ()
    light, moved = _Event(from_bytes(text)).lightened()
    return light, to_json(light), moved


def light_value(value: Any) -> tuple[Any, tuple[Moved, ...]]:
    """A value of a message, a board or a canvas: without Base64 over LIMIT, and else whole, however long it is."""
    if isinstance(value, str) and not holds_encoded(value):
        return value, ()
    text = to_json(value)
    if _is_light(text):
        return value, ()
    moved: dict[ArtifactId, Moved] = {}
    return _without_encoded(from_bytes(text), moved), tuple(moved.values())


def _is_light(text: str) -> bool:
    if len(text) > LIMIT or MAY_BE_FORGED in text:
        return False
    return text.isascii() or len(text.encode()) <= LIMIT


# --- events: by size --------------------------------------------------------------------------------------------------

# With more parts than this, a container has no place in an event, nor has one that only lost a single part of it.
_WIDEST = LIMIT // 2
_Key = str | int


@dataclass(slots=True, eq=False)
class _Leaf:
    owner: "_Container"
    key: _Key
    value: Any
    size: int  # of its JSON
    gain: int  # bytes that the event loses when this is moved


@dataclass(slots=True, eq=False)
class _Container:
    """An object or array of an event: `number` and `last` span the containers in it, counted in the order of the text."""

    owner: "_Container | None"
    key: _Key
    value: Any
    number: int
    last: int = 0
    size: int = 0  # of its JSON
    least: int = 0  # of its JSON in the event when every leaf in it is moved that is worth it

    def holds(self, other: "_Container") -> bool:
        return self.number <= other.number <= self.last


class _Event:
    """The parts of an event's data with their weights, each weighed once."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._containers: list[_Container] = []
        self._leaves: list[_Leaf] = []  # those worth moving
        self._root = self._weigh(data, None, "")

    def lightened(self) -> tuple[dict[str, Any], tuple[Moved, ...]]:
        chosen = self._chosen()
        places: dict[tuple[int, _Key], dict[str, Any]] = {}
        artifacts: dict[ArtifactId, Moved] = {}
        for part in chosen:
            marker, moved = move(part.value)
            artifacts[moved.artifact_id] = moved
            if part.owner is None:
                return marker, (moved,)
            places[id(part.owner.value), part.key] = marker
        return _rebuilt(self._root.value, places), tuple(artifacts.values())

    def _chosen(self) -> "list[_Leaf | _Container]":
        """The largest leaves; where they do not suffice, the smallest container that does, and of the leaves what it still takes."""
        chosen: list[_Leaf | _Container] = []
        leaves, size = self._leaves, self._root.least
        if size > LIMIT:
            container = min((one for one in self._containers if self._size_without(one) <= LIMIT), key=lambda one: one.size)
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
        return self._root.least - container.least + marker_size(container.size, is_text=False)

    def _weigh(self, value: Any, owner: _Container | None, key: _Key) -> _Container:
        this = _Container(owner, key, value, len(self._containers))
        self._containers.append(this)
        if len(value) > _WIDEST:
            this.size = this.least = len(to_bytes(value))
            this.last = this.number
            return this
        this.size = this.least = 2 + max(0, len(value) - 1)  # brackets and commas
        if isinstance(value, dict):
            given = cast("dict[str, Any]", value)
            this.size = this.least = len(to_bytes(list(given))) + len(given)  # the same, keys and colons
            this.least += sum(len(escaped_key(name, item)) - len(name) for name, item in given.items())
        for name, part in _parts(value):
            if isinstance(part, (dict, list)):
                inner = self._weigh(part, this, name)
                this.size += inner.size
                this.least += inner.least
                continue
            size = len(to_bytes(part))
            gain = _gain(part, size)
            if gain > 0:
                self._leaves.append(_Leaf(this, name, part, size, gain))
            this.size += size
            this.least += size - gain
        this.last = len(self._containers) - 1
        return this


def _parts(value: Any) -> Iterable[tuple[_Key, Any]]:
    return cast("dict[str, Any]", value).items() if isinstance(value, dict) else enumerate(cast("list[Any]", value))


def _gain(leaf: Any, size: int) -> int:
    """How much smaller an event gets when a leaf of so many bytes is moved: nothing, if its marker is no smaller."""
    if size < SMALLEST_MARKER:
        return 0
    is_text = isinstance(leaf, str)
    return max(0, size - marker_size(len(leaf.encode()) if is_text else size, is_text=is_text))


def _rebuilt(value: Any, places: Mapping[tuple[int, _Key], dict[str, Any]]) -> Any:
    """The value with markers in their places, and with the keys of forged ones escaped."""

    def part(key: _Key, item: Any) -> Any:
        return places.get((id(value), key)) or _rebuilt(item, places)

    if isinstance(value, dict):
        return {escaped_key(key, item): part(key, item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [part(index, item) for index, item in enumerate(cast("list[Any]", value))]
    return value


# --- elsewhere: by what it is -----------------------------------------------------------------------------------------


def _without_encoded(value: Any, moved: dict[ArtifactId, Moved]) -> Any:
    if isinstance(value, str):
        return _moved_to(moved, value) if holds_encoded(value) else value
    inner: dict[ArtifactId, Moved] = {}
    light: Any
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        light = {
            escaped_key(key, item): _without_encoded(item, inner) if isinstance(item, _MAY_HOLD) else item for key, item in given.items()
        }
        is_cut_up = _are_encoded(light.values(), fewest=2) or _are_encoded(given, fewest=1)
    elif isinstance(value, list):
        light = [_without_encoded(item, inner) if isinstance(item, _MAY_HOLD) else item for item in cast("list[Any]", value)]
        is_cut_up = _are_encoded(light, fewest=2)
    else:
        return value
    if is_cut_up:
        return _moved_to(moved, value)
    moved.update(inner)
    return light


_MAY_HOLD = (str, dict, list)


def _are_encoded(parts: Iterable[Any], *, fewest: int) -> bool:
    """Base64 that was cut up and lies in the strings of one container. Short strings are names, however odd."""
    lines = [part for part in parts if isinstance(part, str) and len(part) >= LINE]
    return len(lines) >= fewest and sum(map(len, lines)) > LIMIT and holds_encoded("".join(lines))


def _moved_to(moved: dict[ArtifactId, Moved], value: Any) -> dict[str, Any]:
    marker, one = move(value)
    moved[one.artifact_id] = one
    return marker
