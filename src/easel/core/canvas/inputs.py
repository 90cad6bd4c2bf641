"""Inputs of a canvas's page: which paths a field may write, and the detection of conflicts. RS-41

Owns the rule of `data-gsv-model`. A field sends the value that it displayed before the edit (`was`). If the
state has another value now, the input is refused, so that it does not overwrite a change that the user has
not seen. Does not know pages or stores.
"""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import UNSET, UnsetType

from easel.core.canvas.spec import CanvasSpec
from easel.core.values.paths import MISSING, StateChange, get_at, parse_path, pointer, set_at
from easel.errors import Forbidden, InputConflict


def apply_input(
    raw_spec: Mapping[str, Any],
    state: Mapping[str, Any],
    path: tuple[str, ...],
    value: Any,
    was: Any | UnsetType,
) -> StateChange | None:
    """Return the state with the input applied, or None if the state has this value already.

    Raises `Forbidden` if the page may not write this path, and `InputConflict` if its value differs from
    `was`.
    """
    if not _read_writable_paths(raw_spec).may_write(path):
        raise Forbidden(
            problem=f"a page must not write {pointer(path) or 'the complete state'}: "
            "its spec's `state` or `writable` does not name it."
        )
    current = get_at(state, path)
    if current is not MISSING and is_equal_json(current, value):
        return None
    if was is not UNSET and not is_equal_json(None if current is MISSING else current, was):
        raise InputConflict(path=pointer(path))
    return set_at(state, path, value)


def _read_writable_paths(raw: Mapping[str, Any]) -> CanvasSpec:
    """Parse only those parts of a stored spec that `CanvasSpec.may_write` needs."""
    writable = raw.get("writable")
    return CanvasSpec(
        state=raw.get("state", {}),
        writable=None if writable is None else tuple(parse_path(path, "writable") for path in writable),
    )


def is_equal_json(left: Any, right: Any) -> bool:
    """Return whether two values are equal JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return left == right
    if isinstance(left, dict) and isinstance(right, dict):
        members, others = cast("dict[str, Any]", left), cast("dict[str, Any]", right)
        return members.keys() == others.keys() and all(
            is_equal_json(members[name], others[name]) for name in members
        )
    if isinstance(left, list) and isinstance(right, list):
        items, others = cast("list[Any]", left), cast("list[Any]", right)
        return len(items) == len(others) and all(map(is_equal_json, items, others))
    return isinstance(left, (str, type(None))) and left == right
