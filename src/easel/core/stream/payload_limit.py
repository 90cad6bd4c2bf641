"""The size limit of stored values: which values are offloaded to artifacts. RS-35

Owns the choice of these values: the data of an event must take at most 2 KB as it is stored, and no string
may contain Base64 over 2 KB. Does not know the form of a marker (see `marker`), how Base64 is recognised (see
`base64_runs`), or where artifacts are stored.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, cast

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


@dataclass(slots=True, eq=False)
class _Leaf:
    owner: "_Container"
    key: _Key
    value: Any
    size: int  # bytes of its JSON, as stored
    gain: int  # bytes by which the event shrinks if this leaf is offloaded


@dataclass(slots=True, eq=False)
class _Container:
    """An object or array of an event.

    Containers are numbered in document order. The containers inside this one have the numbers after `number`
    up to `last`.
    """

    owner: "_Container | None"
    key: _Key
    value: Any
    number: int
    last: int = 0
    json_size: int = 0  # bytes of its JSON, as in its artifact
    size: int = 0  # bytes of its JSON, as stored
    min_size: int = 0  # bytes of its JSON, as stored, if every leaf with a gain is offloaded

    def holds(self, other: "_Container") -> bool:
        return self.number <= other.number <= self.last


class _EventParts:
    """The parts of an event's data with their sizes, each measured once."""

    def __init__(self, data: dict[str, Any], limit: int) -> None:
        self._limit = limit
        self._containers: list[_Container] = []
        self._leaves: list[_Leaf] = []  # only leaves with a gain
        self._root = self._measure(data, None, "")

    def choose(self) -> set[_Place]:
        """Return the places to offload: the largest leaves, after a container if leaves do not suffice."""
        chosen: list[_Leaf | _Container] = []
        leaves, size = self._leaves, self._root.min_size
        if size > self._limit:
            container = min(
                (container for container in self._containers if self._size_without(container) <= self._limit),
                key=lambda container: container.size,
            )
            chosen.append(container)
            leaves = [leaf for leaf in leaves if not container.holds(leaf.owner)]
            size = self._size_without(container)
        size += sum(leaf.gain for leaf in leaves)
        for leaf in sorted(leaves, key=lambda leaf: leaf.size, reverse=True):
            if size <= self._limit:
                break
            size -= leaf.gain
            chosen.append(leaf)
        return {_ROOT if part.owner is None else (id(part.owner.value), part.key) for part in chosen}

    def _size_without(self, container: _Container) -> int:
        return self._root.min_size - container.min_size + marker_size(container.json_size, is_text=False)

    def _measure(self, value: Any, owner: _Container | None, key: _Key) -> _Container:
        this = _Container(owner, key, value, len(self._containers))
        self._containers.append(this)
        if len(value) > _MAX_ITEMS:
            this.json_size = this.size = this.min_size = len(to_bytes(value))
            this.last = this.number
            return this
        escapes = 0
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            own = len(to_bytes(list(members))) + len(members)  # brackets and commas, keys and colons
            escapes = sum(len(escape_key(name, item)) - len(name) for name, item in members.items())
        else:
            own = 2 + max(0, len(value) - 1)
        this.json_size, this.size, this.min_size = own, own, own + escapes
        for name, item in _items(value):
            if isinstance(item, (dict, list)):
                inner = self._measure(item, this, name)
                this.json_size += inner.json_size
                this.size += inner.size
                this.min_size += inner.min_size
                continue
            content = to_bytes(item)
            size = len(content) + (added_to_number(content) if isinstance(item, float) else 0)
            gain = _gain(item, len(content), size)
            if gain > 0:
                self._leaves.append(_Leaf(this, name, item, size, gain))
            this.json_size += len(content)
            this.size += size
            this.min_size += size - gain
        this.last = len(self._containers) - 1
        return this


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
