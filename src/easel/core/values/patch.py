"""JSON Patch (RFC 6902) on a canvas's state: `add`, `replace` and `remove`, all operations or none. CV-25

Owns what an operation may look like and what it does. The state that goes in is never altered: containers on the way to a change
are copied once, everything else is shared between the old and the new state, so that a small patch of a large state is cheap.
That, and `changedPaths`, is why this is not the library `jsonpatch`, which copies the whole document first.

An empty patch changes nothing, and says so by an empty `paths`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from easel.core.validation import MAX_DEPTH, is_unsafe_name
from easel.core.values.paths import MISSING, Changed, as_index, check_names, found, is_too_deep_at, pointer
from easel.errors import BadInput

MAX_OPERATIONS = 1_000
MAX_POINTER_LENGTH = 4_096  # characters
END = "-"  # the place after an array's last element


class Op(StrEnum):
    ADD = "add"
    REPLACE = "replace"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Operation:
    op: Op
    path: tuple[str, ...]
    value: Any = None

    def __str__(self) -> str:
        return f"{self.op} {pointer(self.path) or 'the whole state'}"


Patch = tuple[Operation, ...]


# --- reading ------------------------------------------------------------------------------------------------------------


def checked_patch(raw: Any, at: str = "patch") -> Patch:
    """Members that RFC 6902 does not know are ignored, as it asks; operations that we do not do are refused."""
    if not isinstance(raw, list):
        raise BadInput(problem=f"{at}: is a list of JSON Patch operations.")
    operations = cast("list[Any]", raw)
    if len(operations) > MAX_OPERATIONS:
        raise BadInput(problem=f"{at}: has {len(operations)} operations; {MAX_OPERATIONS} is the limit.")
    return tuple(_checked(operation, f"{at}[{number}]") for number, operation in enumerate(operations))


def check_patch_names(patch: Patch, at: str = "patch") -> None:
    """What is put into a state has no name that a path could not have. Asked when a patch is stored or sent, not when it is read again."""
    for number, operation in enumerate(patch):
        check_names(operation.value, f"{at}[{number}].value")


def unchecked(patch: Patch) -> list[dict[str, Any]]:
    """As it was written: what `checked_patch` reads."""
    return [
        {
            "op": one.op.value,
            "path": pointer(one.path),
            **({} if one.op is Op.REMOVE else {"value": one.value}),
        }
        for one in patch
    ]


def _checked(raw: Any, at: str) -> Operation:
    if not isinstance(raw, dict):
        raise BadInput(problem=f"{at}: an operation is an object with `op` and `path`.")
    given = cast("dict[str, Any]", raw)
    named = given.get("op")
    if not isinstance(named, str) or named not in {*Op}:
        raise BadInput(problem=f"{at}.op: is one of add, replace and remove.")
    op = Op(named)
    path = checked_pointer(given.get("path"), f"{at}.path")
    if op is Op.REMOVE:
        if not path:
            raise BadInput(
                problem=f"{at}.path: the state as a whole cannot be removed; replace it by {{}} instead."
            )
        return Operation(op, path)
    if "value" not in given:
        raise BadInput(problem=f"{at}.value: is missing, and {op} needs it.")
    value = given["value"]
    if not path and not isinstance(value, dict):
        raise BadInput(problem=f"{at}.value: a state is an object.")
    if is_too_deep_at(path, value):
        raise BadInput(problem=f"{at}.value: the state would be nested deeper than {MAX_DEPTH} levels.")
    return Operation(op, path, value)


def checked_pointer(text: Any, at: str) -> tuple[str, ...]:
    """A JSON pointer (RFC 6901) by its parts, unescaped."""
    if not isinstance(text, str) or (text and text[0] != "/"):
        raise BadInput(problem=f"{at}: is a JSON pointer such as `/deploy/status`.")
    if len(text) > MAX_POINTER_LENGTH or text.count("/") > MAX_DEPTH:
        raise BadInput(
            problem=f"{at}: a pointer has at most {MAX_POINTER_LENGTH} characters and {MAX_DEPTH} parts."
        )
    parts = text.split("/")[1:]
    for part in parts:
        if "~" in part.replace("~0", "").replace("~1", ""):
            raise BadInput(problem=f"{at}: after `~` there is 0 (for ~) or 1 (for /).")
        if is_unsafe_name(part):
            raise BadInput(problem=f"{at}: `{part}` may not be part of a path.")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


# --- applying -----------------------------------------------------------------------------------------------------------


def applied(patch: Patch, state: Mapping[str, Any], at: str = "patch") -> Changed:
    """The state after all operations; the first one that cannot be done refuses them all."""
    work = _Work(dict(state))
    for number, operation in enumerate(patch):
        try:
            work.do(operation)
        except _CannotDo as reason:
            raise BadInput(problem=f"{at}[{number}]: {operation}: {reason}") from None
    return Changed(work.state, work.changed_paths())


class _CannotDo(Exception):
    """Why an operation does not fit the state."""


class _Work:
    """A state under change. `_ours` are the containers that this patch made and may therefore alter, kept alive by their entry."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state
        self._ours: dict[int, Any] = {id(state): state}
        self._changed: dict[tuple[str, ...], None] = {}

    def do(self, operation: Operation) -> None:
        if not operation.path:
            self.state = self._own(operation.value)
            self._changed[()] = None
            return
        *above, last = operation.path
        parent = self._container(above)
        if isinstance(parent, dict):
            self._do_in_object(operation, parent, last)
        else:
            self._do_in_array(operation, parent, last)

    def _do_in_object(self, operation: Operation, parent: dict[str, Any], name: str) -> None:
        if operation.op is not Op.ADD and name not in parent:
            raise _CannotDo("there is nothing at this path.")
        if operation.op is Op.REMOVE:
            del parent[name]
        else:
            parent[name] = operation.value
        self._changed[operation.path] = None

    def _do_in_array(self, operation: Operation, parent: list[Any], last: str) -> None:
        length = len(parent)
        if operation.op is Op.ADD:
            index = length if last == END else as_index(last, length + 1)
            if index is None:
                raise _CannotDo(f"an element can be added at 0 to {length}, or at the end with `{END}`.")
            parent.insert(index, operation.value)
        else:
            index = as_index(last, length)
            if index is None:
                raise _CannotDo(f"the array has {length} elements, and `{last}` is none of them.")
            if operation.op is Op.REMOVE:
                del parent[index]
            else:
                parent[index] = operation.value
        # Where elements moved, the array as a whole is what changed: no path of its elements means now what it meant before.
        is_still = operation.op is Op.REPLACE or (operation.op is Op.ADD and index == length)
        self._changed[(*operation.path[:-1], str(index)) if is_still else operation.path[:-1]] = None

    def _container(self, path: Sequence[str]) -> dict[str, Any] | list[Any]:
        """The container at a path, ours to alter: whatever lies on the way there is copied once."""
        here: Any = self.state
        for depth, part in enumerate(path):
            inner = found(here, (part,))
            if inner is MISSING:
                raise _CannotDo(f"there is nothing at {pointer(path[: depth + 1])}.")
            if not isinstance(inner, (dict, list)):
                raise _CannotDo(f"{pointer(path[: depth + 1])} is neither an object nor an array.")
            own = self._own(inner)
            here[part if isinstance(here, dict) else int(part)] = own
            here = own
        return here

    def _own(self, container: Any) -> Any:
        if id(container) in self._ours:
            return container
        copy = container.copy()
        self._ours[id(copy)] = copy
        return copy

    def changed_paths(self) -> tuple[str, ...]:
        """In the order of the operations, without what lies inside of another that changed as a whole."""
        changed = self._changed
        return tuple(
            pointer(path)
            for path in changed
            if not any(path[:depth] in changed for depth in range(len(path)))
        )
