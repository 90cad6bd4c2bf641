"""The size limit of stored values: which values are offloaded to artifacts. RS-35

Owns the choice of these values: the data of an event must take at most 2 KB as it is stored, and no string
may contain Base64 over 2 KB. Does not know the form of a marker (see `marker`), how Base64 is recognised (see
`base64_runs`), or where artifacts are stored.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple, cast

from easel.core.stream.base64_runs import holds_base64
from easel.core.stream.json_text import to_json
from easel.core.stream.marker import (
    LIMIT,
    MAY_BE_FORGED,
    MIN_MARKER_BYTES,
    OffloadedValue,
    escape_key,
    from_bytes,
    make_marker,
    marker_size,
    markers_in,
    mentioned_artifacts,
    restore_markers,
    to_bytes,
)
from easel.core.stream.weight import added_by_storing, added_to_number

__all__ = [
    "LIMIT",
    "OffloadedValue",
    "markers_in",
    "mentioned_artifacts",
    "offload_event",
    "offload_large_values",
    "restore_markers",
]


def offload_event(
    data: Mapping[str, Any], limit: int = LIMIT
) -> tuple[Mapping[str, Any], str, tuple[OffloadedValue, ...]]:
    """Return the data of an event in at most `limit` bytes, its JSON, and the values that were offloaded."""
    text = to_json(data)
    if is_small(text, limit):
        added = added_by_storing(text, data.values())
        if not added or len(text.encode()) + added <= limit:
            return data, text, ()
    decoded = from_bytes(text)
    light, offloaded = _rebuild(decoded, _EventParts(decoded, limit).choose())
    return light, to_json(light), offloaded


def offload_large_values(value: Any) -> tuple[Any, tuple[OffloadedValue, ...]]:
    """Return a value of a message, board or canvas with markers in place of Base64 over LIMIT.

    Also returns the offloaded values.
    """
    if isinstance(value, str) and not holds_base64(value):
        return value, ()
    text = to_json(value)
    if is_small(text):
        return value, ()
    decoded = from_bytes(text)
    places = set(_base64_places(decoded, _ROOT))
    return _rebuild(decoded, places) if places or MAY_BE_FORGED in text else (decoded, ())


def is_small(text: str, limit: int = LIMIT) -> bool:
    """Return whether a JSON text is within the limit and has no key that needs escaping."""
    if len(text) > limit or MAY_BE_FORGED in text:
        return False
    return text.isascii() or len(text.encode()) <= limit


_Key = str | int
_Place = tuple[int, _Key]  # the `id()` of the container, and the key or index in it
_ROOT: _Place = (0, "")


def _base64_places(value: Any, place: _Place) -> Iterator[_Place]:
    """Yield the places of strings with Base64 over LIMIT. For such a key, yield the place of its object."""
    if isinstance(value, str):
        if holds_base64(value):
            yield place
    elif isinstance(value, (dict, list)):
        for key, item in _items(value):
            if isinstance(key, str) and holds_base64(key):
                yield place
            yield from _base64_places(item, (id(cast("object", value)), key))


# --- events: by size ----------------------------------------------------------------------------------------

# A container with more items than this takes more than LIMIT bytes, however small the items are.
_MAX_ITEMS = LIMIT // 2


class _Part(NamedTuple):
    """A leaf or a container of an event. The parts inside it have the numbers from `number` to `last`."""

    place: _Place
    number: int
    last: int
    size: int  # bytes of its JSON, as stored
    gain: int  # bytes by which the event shrinks if it is offloaded, of a container with all its leaves


class _EventParts:
    """The parts of an event's data with their sizes, each measured once."""

    def __init__(self, data: dict[str, Any], limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._containers: list[_Part] = []
        self._leaves: list[_Part] = []  # only leaves with a gain
        _, _, self._min_size = self._measure(data, _ROOT)

    def choose(self) -> set[_Place]:
        """Return the places to offload: the largest leaves, after a container if leaves do not suffice."""
        chosen: set[_Place] = set()
        leaves, size = self._leaves, self._min_size
        if size > self._limit:
            fitting = (part for part in self._containers if size - part.gain <= self._limit)
            container = min(fitting, key=lambda part: (part.size, part.number))
            chosen.add(container.place)
            leaves = [leaf for leaf in leaves if not container.number <= leaf.number <= container.last]
            size -= container.gain
        size += sum(leaf.gain for leaf in leaves)
        for leaf in sorted(leaves, key=lambda leaf: leaf.size, reverse=True):
            if size <= self._limit:
                break
            size -= leaf.gain
            chosen.add(leaf.place)
        return chosen

    def _measure(self, value: Any, place: _Place) -> tuple[int, int, int]:
        """Return the bytes of JSON: as in an artifact, as stored, and as stored with every leaf offloaded."""
        number = self._count = self._count + 1
        if not isinstance(value, (dict, list)):
            content = to_bytes(value)
            size = len(content) + (added_to_number(content) if isinstance(value, float) else 0)
            if gain := _gain(value, len(content), size):
                self._leaves.append(_Part(place, number, number, size, gain))
            return len(content), size, size - gain
        items = cast("dict[str, Any] | list[Any]", value)
        if len(items) > _MAX_ITEMS:
            json_size = size = min_size = len(to_bytes(items))
        else:
            json_size = size = min_size = 2 + max(0, len(items) - 1)  # brackets and commas
            if isinstance(items, dict):
                json_size = size = min_size = len(to_bytes(list(items))) + len(items)  # keys and colons too
                min_size += sum(len(escape_key(name, item)) - len(name) for name, item in items.items())
            for key, item in _items(items):
                inner = self._measure(item, (id(items), key))
                json_size, size, min_size = json_size + inner[0], size + inner[1], min_size + inner[2]
        gain = min_size - marker_size(json_size, is_text=False)
        self._containers.append(_Part(place, number, self._count, size, gain))
        return json_size, size, min_size


def _gain(leaf: Any, json_size: int, size: int) -> int:
    """Return by how many bytes an event shrinks if the leaf is offloaded; 0 if the marker is not smaller."""
    if size < MIN_MARKER_BYTES:
        return 0
    is_text = isinstance(leaf, str)
    return max(0, size - marker_size(len(leaf.encode()) if is_text else json_size, is_text=is_text))


# --- the result ---------------------------------------------------------------------------------------------


def _items(value: Any) -> Iterable[tuple[_Key, Any]]:
    return (
        cast("dict[str, Any]", value).items()
        if isinstance(value, dict)
        else enumerate(cast("list[Any]", value))
    )


def _rebuild(value: Any, places: Set[_Place]) -> tuple[Any, tuple[OffloadedValue, ...]]:
    """Return the value with markers at these places and forged markers escaped, and the offloaded values."""
    artifacts: dict[str, OffloadedValue] = {}

    def copy(item: Any, place: _Place) -> Any:
        if place in places:
            marker, offloaded = make_marker(item)
            artifacts[offloaded.artifact_id] = offloaded
            return marker
        if isinstance(item, dict):
            members = cast("dict[str, Any]", item)
            return {
                escape_key(key, member): copy(member, (id(members), key)) for key, member in members.items()
            }
        if isinstance(item, list):
            elements = cast("list[Any]", item)
            return [copy(element, (id(elements), at)) for at, element in enumerate(elements)]
        return item

    return copy(value, _ROOT), tuple(artifacts.values())
