"""Dot paths: the addresses in a canvas's state that `saveAs`, `writable` and placeholders use.

Owns the syntax of paths, the lookup in plain objects and arrays (never attributes), and the effect of
`saveAs`. Does not know stores: a function takes a state and returns the next state, which shares its
unchanged parts with the given one. No state is altered in place.

`null` means "no value yet" (the specification's example begins with `"logsTail": null`): a `null` on the way
to a path is replaced by an object, and a placeholder whose path leads to `null` has no value.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final, cast

from easel.core.validation import MAX_DEPTH, is_too_deep, is_unsafe_name, refuse
from easel.errors import BadInput

Path = tuple[str, ...]

MAX_PATH_DEPTH = 32
MAX_SHOWN_LENGTH = 100  # characters of a name in an error message
MAX_PATH_LENGTH = 1_000  # characters
PART = r"[\w-]{1,128}"
_PART = re.compile(PART)
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


class Missing(Enum):
    """The result of a lookup that found no value. Differs from None, which is the value `null`."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


class SaveMode(StrEnum):
    """How `saveAs` combines a result with the value already stored. RS-12"""

    REPLACE = "replace"
    MERGE = "merge"
    APPEND = "append"


@dataclass(frozen=True, slots=True)
class StateChange:
    """The state after a change, and the changed paths as JSON pointers. No paths: the state is unchanged."""

    state: Mapping[str, Any]
    paths: tuple[str, ...]


# --- syntax -------------------------------------------------------------------------------------------------


def check_names(value: Any, at: str) -> None:
    """Raise `BadInput` for an unsafe member name, which no path could reach, and for U+0000. Case X7"""
    refuse_nul(value, at)
    # Each entry links to its parent's entry, so that a location is formatted only when an error is raised.
    pending: list[tuple[Any, tuple[Any, ...] | None]] = [(value, None)]
    while pending:
        container, steps = pending.pop()
        inner: Iterable[tuple[str | int, Any]] = ()
        if isinstance(container, dict):
            inner = cast("dict[str, Any]", container).items()
        elif isinstance(container, list):
            inner = enumerate(cast("list[Any]", container))
        for part, item in inner:
            if isinstance(part, str) and is_unsafe_name(part):
                where = f"{at}{_format_location(steps)}"
                refuse(where, f"`{_shorten(part)}` must not be a name in a state.")
            if isinstance(item, (dict, list)):
                pending.append((cast("Any", item), (part, steps)))
            elif isinstance(item, str) and "\x00" in item:
                refuse_nul(item, f"{at}{_format_location((part, steps))}")


def refuse_nul(value: Any, at: str) -> None:
    """Raise `BadInput` for a text with a zero byte, which no database stores."""
    if isinstance(value, str) and "\x00" in value:
        refuse(at, "a text must not contain U+0000, which cannot be stored.")


def _format_location(steps: tuple[Any, ...] | None) -> str:
    parts: list[str] = []
    while steps is not None:
        part, steps = steps
        parts.append(f"[{part}]" if isinstance(part, int) else f".{_shorten(part)}")
    return _shorten("".join(reversed(parts)), 2 * MAX_SHOWN_LENGTH)


def _shorten(text: str, limit: int = MAX_SHOWN_LENGTH) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def parse_path(text: Any, at: str) -> Path:
    if not isinstance(text, str) or not text or len(text) > MAX_PATH_LENGTH:
        refuse(at, f"must be a dot path such as `deploy.last`, at most {MAX_PATH_LENGTH} characters.")
    path = tuple(text.split("."))
    if len(path) > MAX_PATH_DEPTH:
        refuse(at, f"a path must have at most {MAX_PATH_DEPTH} parts; this has {len(path)}.")
    for part in path:
        if not _PART.fullmatch(part):
            refuse(
                at,
                f"`{text}` is not a dot path; "
                "parts must be letters, digits, `_` and `-`, separated by single dots.",
            )
        if is_unsafe_name(part):
            refuse(at, f"`{part}` must not be part of a path.")
    return path


def pointer(path: Sequence[str]) -> str:
    """Return the path as a JSON pointer, the form of `changedPaths`."""
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in path)


def as_index(part: str, length: int) -> int | None:
    """Return the path part as an index of an array of this length, or None if the array has no such index."""
    return int(part) if _INDEX.fullmatch(part) and int(part) < length else None


def is_too_deep_at(path: Sequence[str], value: Any) -> bool:
    """Return whether storing the value at this path would exceed the maximum depth of a state."""
    for _ in path:
        value = [value]
    return is_too_deep(value)


# --- reading and writing ------------------------------------------------------------------------------------


def get_at(value: Any, path: Sequence[str]) -> Any | Missing:
    """Return the value at a path inside plain JSON, or `MISSING`."""
    for part in path:
        if isinstance(value, dict):
            value = cast("dict[str, Any]", value).get(part, MISSING)
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            index = as_index(part, len(items))
            value = MISSING if index is None else items[index]
        else:
            return MISSING
    return value


def set_at(state: Mapping[str, Any], path: Path, value: Any) -> StateChange:
    """Return the state with the value stored at a path.

    Creates missing objects on the way. Raises `BadInput` if another value is in the way. CV-21
    """
    if is_too_deep_at(path, value):
        raise BadInput(
            problem=f"{'.'.join(path)}: the state must not be nested deeper than {MAX_DEPTH} levels."
        )
    return StateChange(_set(dict(state), path, 0, value), (pointer(path),))


def _set(current: Any, path: Path, depth: int, value: Any) -> Any:
    if depth == len(path):
        return value
    part = path[depth]
    if current is None or current is MISSING:
        current = {}
    if isinstance(current, dict):
        members = cast("dict[str, Any]", current)
        return {**members, part: _set(members.get(part, MISSING), path, depth + 1, value)}
    if isinstance(current, list):
        items = cast("list[Any]", current)
        index = as_index(part, len(items))
        if index is None:
            raise BadInput(
                problem=f"{'.'.join(path)}: the array `{'.'.join(path[:depth])}` has no element `{part}`."
            )
        return [*items[:index], _set(items[index], path, depth + 1, value), *items[index + 1 :]]
    raise BadInput(problem=f"{'.'.join(path)}: `{'.'.join(path[:depth])}` is neither an object nor an array.")


# --- results of actions -------------------------------------------------------------------------------------


def to_outcome(result: Any, finished_at_ms: int) -> dict[str, Any]:
    """Return the value that `saveAs` stores for a tool's result or a session's answer. RS-43"""
    return {"ok": True, "result": result, "finishedAt": finished_at_ms}


def save_outcome(
    state: Mapping[str, Any], path: Path, mode: SaveMode, outcome: Mapping[str, Any]
) -> StateChange:
    """Return the state with an outcome saved at `path`. RS-12, RS-43"""
    check_can_save(state, path, mode)
    match mode:
        case SaveMode.REPLACE:
            return set_at(state, path, dict(outcome))
        case SaveMode.APPEND:
            current = get_at(state, path)
            items = cast("list[Any]", current) if isinstance(current, list) else []
            changed = set_at(state, path, [*items, dict(outcome)])
            return StateChange(
                changed.state, (pointer((*path, str(len(items)))),) if items else changed.paths
            )
        case SaveMode.MERGE:
            result = outcome["result"]
            if not isinstance(result, dict):
                raise BadInput(problem=f"saveAs {'.'.join(path)}: the result must be an object to be merged.")
            current = get_at(state, path)
            members = cast("dict[str, Any]", current) if isinstance(current, dict) else {}
            new_members = cast("dict[str, Any]", result)
            changed = set_at(state, path, {**members, **new_members})
            return StateChange(
                changed.state,
                tuple(pointer((*path, name)) for name in new_members)
                if members and new_members
                else changed.paths,
            )


def check_can_save(state: Mapping[str, Any], path: Path, mode: SaveMode) -> None:
    """Raise `BadInput` if no result could be saved at `path`; called before a tool runs. RS-12"""
    set_at(state, path, None)
    current = get_at(state, path)
    if current is MISSING or current is None or mode is SaveMode.REPLACE:
        return
    if mode is SaveMode.APPEND and not isinstance(current, list):
        raise BadInput(problem=f"saveAs {'.'.join(path)}: the current value must be an array to append to.")
    if mode is SaveMode.MERGE and not isinstance(current, dict):
        raise BadInput(problem=f"saveAs {'.'.join(path)}: the current value must be an object to merge into.")
