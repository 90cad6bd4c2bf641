"""What a person enters in a field of a canvas's page: where that may go, and when somebody else was there first. RS-41

Owns the rule of `data-gsv-model`. A field says what it showed before it was edited; if the state has something else there now, the
entry is refused, so that nobody's change is written over unseen.
"""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import UNSET, UnsetType

from easel.core.canvas.spec import CanvasSpec
from easel.core.values.paths import MISSING, Changed, checked_path, found, pointer, put
from easel.errors import Forbidden, InputConflict


def entered(
    raw_spec: Mapping[str, Any],
    state: Mapping[str, Any],
    path: tuple[str, ...],
    value: Any,
    was: Any | UnsetType,
) -> Changed | None:
    """The state with the entry in it; None if it has it already."""
    if not _places(raw_spec).may_write(path):
        raise Forbidden(
            problem=f"a page may not write {pointer(path) or 'the snapshot state'}: its spec's `state` or `writable` does not name it."
        )
    there = found(state, path)
    if there is not MISSING and is_same(there, value):
        return None
    if was is not UNSET and not is_same(None if there is MISSING else there, was):
        raise InputConflict(path=pointer(path))
    return put(state, path, value)


def _places(raw: Mapping[str, Any]) -> CanvasSpec:
    """Of a stored spec, what says where its page may write; the rest is not read."""
    writable = raw.get("writable")
    return CanvasSpec(
        state=raw.get("state", {}),
        writable=None if writable is None else tuple(checked_path(one, "writable") for one in writable),
    )


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one == other
    if isinstance(one, dict) and isinstance(other, dict):
        members, others = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        return members.keys() == others.keys() and all(
            is_same(members[name], others[name]) for name in members
        )
    if isinstance(one, list) and isinstance(other, list):
        items, rest = cast("list[Any]", one), cast("list[Any]", other)
        return len(items) == len(rest) and all(map(is_same, items, rest))
    return isinstance(one, (str, type(None))) and one == other
