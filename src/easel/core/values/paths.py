"""Dot paths: how `saveAs`, `writable` and the placeholders of templates name a place in a canvas's state.

Owns what a path may look like, how it is followed through plain objects and arrays (never through attributes of anything), and
what `saveAs` leaves at its end. Knows no store: a state goes in, the next state comes out, and what did not change is shared
between the two. Neither is ever altered in place.

`null` is how a state says "no value yet" (the specification's example begins with `"logsTail": null`): an object may be made
in its place, and a template finds nothing there.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final, cast

from easel.core.validation import MAX_DEPTH, is_too_deep, is_unsafe_name
from easel.errors import BadInput

Path = tuple[str, ...]

MAX_PATH_DEPTH = 32
MAX_SHOWN_LENGTH = 100  # characters of a name in a refusal
MAX_PATH_LENGTH = 1_000  # characters; a longer one is not even looked at
PART = r"[\w-]{1,128}"
_PART = re.compile(PART)
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


class Missing(Enum):
    """What is found where nothing is; `null` is a value."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


class SaveMode(StrEnum):
    """What `saveAs` does with what is there already. RS-12"""

    REPLACE = "replace"
    MERGE = "merge"
    APPEND = "append"


@dataclass(frozen=True, slots=True)
class Changed:
    """A state after a change, and where it changed, as JSON pointers. No path: nothing was asked for, nothing changed."""

    state: Mapping[str, Any]
    paths: tuple[str, ...]


# --- what a path looks like ---------------------------------------------------------------------------------------------


def check_names(value: Any, at: str) -> None:
    """Refuses a value that has such a name anywhere, since no patch and no template could reach it; says where. Case X7"""
    # Where something stands is put together only once it is needed: a step holds the one before it.
    left: list[tuple[Any, tuple[Any, ...] | None]] = [(value, None)]
    while left:
        one, steps = left.pop()
        inner: Iterable[tuple[str | int, Any]] = ()
        if isinstance(one, dict):
            inner = cast("dict[str, Any]", one).items()
        elif isinstance(one, list):
            inner = enumerate(cast("list[Any]", one))
        for part, there in inner:
            if isinstance(part, str) and is_unsafe_name(part):
                raise BadInput(problem=f"{at}{_place(steps)}: `{_short(part)}` may not be a name in a state.")
            if isinstance(there, (dict, list)):
                left.append((cast("Any", there), (part, steps)))


def _place(steps: tuple[Any, ...] | None) -> str:
    parts: list[str] = []
    while steps is not None:
        part, steps = steps
        parts.append(f"[{part}]" if isinstance(part, int) else f".{_short(part)}")
    return _short("".join(reversed(parts)), 2 * MAX_SHOWN_LENGTH)


def _short(text: str, most: int = MAX_SHOWN_LENGTH) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def checked_path(text: Any, at: str) -> Path:
    if not isinstance(text, str) or not text or len(text) > MAX_PATH_LENGTH:
        raise BadInput(
            problem=f"{at}: is a dot path such as `deploy.last`, of at most {MAX_PATH_LENGTH} characters."
        )
    path = tuple(text.split("."))
    if len(path) > MAX_PATH_DEPTH:
        raise BadInput(problem=f"{at}: a path has at most {MAX_PATH_DEPTH} parts, this one has {len(path)}.")
    for part in path:
        if not _PART.fullmatch(part):
            raise BadInput(
                problem=f"{at}: `{text}` is no dot path; its parts are letters, digits, `_` and `-`, with single dots between them."
            )
        if is_unsafe_name(part):
            raise BadInput(problem=f"{at}: `{part}` may not be part of a path.")
    return path


def pointer(path: Sequence[str]) -> str:
    """The same place as a JSON pointer, as `changedPaths` names it."""
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in path)


def as_index(part: str, length: int) -> int | None:
    """The index that a part of a path means in an array of this length; none if it means no element there."""
    return int(part) if _INDEX.fullmatch(part) and int(part) < length else None


def is_too_deep_at(path: Sequence[str], value: Any) -> bool:
    """Whether a value at this path would make a state deeper than any reader has to expect."""
    for _ in path:
        value = [value]
    return is_too_deep(value)


# --- following a path ---------------------------------------------------------------------------------------------------


def found(value: Any, path: Sequence[str]) -> Any | Missing:
    """What stands at a path of plain JSON. Text has no parts."""
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


def put(state: Mapping[str, Any], path: Path, value: Any) -> Changed:
    """The state with a value at a path. Missing objects on the way are made; whatever else is in the way stays. CV-21"""
    if is_too_deep_at(path, value):
        raise BadInput(
            problem=f"{'.'.join(path)}: with this value the state would be nested deeper than {MAX_DEPTH} levels."
        )
    return Changed(_put(dict(state), path, 0, value), (pointer(path),))


def _put(there: Any, path: Path, depth: int, value: Any) -> Any:
    if depth == len(path):
        return value
    part = path[depth]
    if there is None or there is MISSING:
        there = {}
    if isinstance(there, dict):
        members = cast("dict[str, Any]", there)
        return {**members, part: _put(members.get(part, MISSING), path, depth + 1, value)}
    if isinstance(there, list):
        items = cast("list[Any]", there)
        index = as_index(part, len(items))
        if index is None:
            raise BadInput(
                problem=f"{'.'.join(path)}: `{'.'.join(path[:depth])}` is an array without an element `{part}`."
            )
        return [*items[:index], _put(items[index], path, depth + 1, value), *items[index + 1 :]]
    raise BadInput(
        problem=f"{'.'.join(path)}: `{'.'.join(path[:depth])}` is neither an object nor an array, so nothing can be put into it."
    )


# --- what an action saves -----------------------------------------------------------------------------------------------


def outcome(result: Any, finished_at_ms: int) -> dict[str, Any]:
    """What `saveAs` stores of a tool's result or a session's answer. RS-43"""
    return {"ok": True, "result": result, "finishedAt": finished_at_ms}


def saved(state: Mapping[str, Any], path: Path, mode: SaveMode, done: Mapping[str, Any]) -> Changed:
    """The state with an outcome in it. RS-12, RS-43"""
    check_saving(state, path, mode)
    match mode:
        case SaveMode.REPLACE:
            return put(state, path, dict(done))
        case SaveMode.APPEND:
            there = found(state, path)
            items = cast("list[Any]", there) if isinstance(there, list) else []
            changed = put(state, path, [*items, dict(done)])
            return Changed(changed.state, (pointer((*path, str(len(items)))),) if items else changed.paths)
        case SaveMode.MERGE:
            result = done["result"]
            if not isinstance(result, dict):
                raise BadInput(
                    problem=f"saveAs {'.'.join(path)}: only an object can be merged, and the result is none."
                )
            there = found(state, path)
            members = cast("dict[str, Any]", there) if isinstance(there, dict) else {}
            news = cast("dict[str, Any]", result)
            changed = put(state, path, {**members, **news})
            return Changed(
                changed.state,
                tuple(pointer((*path, name)) for name in news) if members and news else changed.paths,
            )


def check_saving(state: Mapping[str, Any], path: Path, mode: SaveMode) -> None:
    """Refuses before a tool has run what could not be kept after it has. What it returns is judged when it is there."""
    put(state, path, None)
    there = found(state, path)
    if there is MISSING or there is None or mode is SaveMode.REPLACE:
        return
    if mode is SaveMode.APPEND and not isinstance(there, list):
        raise BadInput(
            problem=f"saveAs {'.'.join(path)}: what is there is no array, so nothing can be appended to it."
        )
    if mode is SaveMode.MERGE and not isinstance(there, dict):
        raise BadInput(
            problem=f"saveAs {'.'.join(path)}: what is there is no object, so nothing can be merged into it."
        )
