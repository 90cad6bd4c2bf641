"""JSON Patch (RFC 6902) on a canvas's state: `add`, `replace` and `remove`, all operations or none. CV-25

Owns the syntax and the effect of operations. The given state is never altered: containers on the way to a
change are copied once and all others are shared, so that a small patch of a large state is cheap. The library
`jsonpatch` is not used, because it copies the complete document and does not report changed paths. Does not
know stores.

An empty patch changes nothing and has no changed paths.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, cast

from easel.core.stream.payload_limit import OffloadedValue, offload_large_values
from easel.core.validation import MAX_DEPTH, is_unsafe_name, refuse
from easel.core.values.paths import (
    MISSING,
    StateChange,
    as_index,
    check_names,
    get_at,
    is_too_deep_at,
    pointer,
)

MAX_OPERATIONS = 1_000
MAX_POINTER_LENGTH = 4_096  # characters
END = "-"  # the index after an array's last element


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
        return f"{self.op} {pointer(self.path) or 'the complete state'}"


Patch = tuple[Operation, ...]


# --- reading ------------------------------------------------------------------------------------------------


def parse_patch(raw: Any, at: str = "patch") -> Patch:
    """Parse a list of operations.

    Ignores unknown members, as RFC 6902 requires. Raises `BadInput` for an invalid or unsupported operation.
    """
    return tuple(
        parse_operation(operation, f"{at}[{number}]")
        for number, operation in enumerate(require_operations(raw, at))
    )


def require_operations(raw: Any, at: str) -> list[Any]:
    """Return the operations of a patch, each not parsed yet."""
    if not isinstance(raw, list):
        refuse(at, "must be a list of JSON Patch operations.")
    operations = cast("list[Any]", raw)
    if len(operations) > MAX_OPERATIONS:
        refuse(at, f"must have at most {MAX_OPERATIONS} operations; this has {len(operations)}.")
    return operations


def check_patch_names(patch: Patch, at: str = "patch") -> None:
    """Raise `BadInput` if the value of an operation has an unsafe member name.

    Called for patches from clients, not for stored patches that are read back.
    """
    for number, operation in enumerate(patch):
        check_names(operation.value, f"{at}[{number}].value")


def to_json_patch(patch: Patch) -> list[dict[str, Any]]:
    """Return the patch as JSON, the inverse of `parse_patch`."""
    return [
        {
            "op": operation.op.value,
            "path": pointer(operation.path),
            **({} if operation.op is Op.REMOVE else {"value": operation.value}),
        }
        for operation in patch
    ]


def offload_patch(patch: Patch) -> tuple[Patch, tuple[OffloadedValue, ...]]:
    """Return the operations with large values offloaded, as a state has them, and those values. RS-35"""
    stored: list[Operation] = []
    offloaded: list[OffloadedValue] = []
    for operation in patch:
        value, of_value = offload_large_values(operation.value)
        stored.append(replace(operation, value=value))
        offloaded += of_value
    return tuple(stored), tuple(offloaded)


def parse_operation(raw: Any, at: str) -> Operation:
    if not isinstance(raw, dict):
        refuse(at, "must be an object with `op` and `path`.")
    members = cast("dict[str, Any]", raw)
    name = members.get("op")
    if not isinstance(name, str) or name not in {*Op}:
        refuse(f"{at}.op", "must be one of add, replace and remove.")
    op = Op(name)
    path = parse_pointer(members.get("path"), f"{at}.path")
    if op is Op.REMOVE:
        if not path:
            refuse(f"{at}.path", "the complete state cannot be removed; replace it with {} instead.")
        return Operation(op, path)
    if "value" not in members:
        refuse(f"{at}.value", f"is required for {op}.")
    value = members["value"]
    if not path and not isinstance(value, dict):
        refuse(f"{at}.value", "a state must be an object.")
    if is_too_deep_at(path, value):
        refuse(f"{at}.value", f"the state must not be nested deeper than {MAX_DEPTH} levels.")
    return Operation(op, path, value)


def parse_pointer(text: Any, at: str) -> tuple[str, ...]:
    """Return the unescaped parts of a JSON pointer (RFC 6901)."""
    if not isinstance(text, str) or (text and text[0] != "/"):
        refuse(at, "must be a JSON pointer such as `/deploy/status`.")
    if len(text) > MAX_POINTER_LENGTH or text.count("/") > MAX_DEPTH:
        refuse(at, f"must have at most {MAX_POINTER_LENGTH} characters and {MAX_DEPTH} parts.")
    parts = text.split("/")[1:]
    for part in parts:
        if "~" in part.replace("~0", "").replace("~1", ""):
            refuse(at, "`~` must be followed by 0 (for ~) or 1 (for /).")
        if is_unsafe_name(part):
            refuse(at, f"`{part}` must not be part of a path.")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


# --- applying -----------------------------------------------------------------------------------------------


def apply_patch(patch: Patch, state: Mapping[str, Any], at: str = "patch") -> StateChange:
    """Return the state after all operations.

    Raises `BadInput` for the first operation that fails; then no operation takes effect.
    """
    patched = _PatchedState(dict(state))
    for number, operation in enumerate(patch):
        patched.apply(operation, f"{at}[{number}]: {operation}")
    return StateChange(patched.state, patched.changed_paths())


class _PatchedState:
    """A state to which operations are being applied.

    `_copies` has the containers that were copied for this patch. Only these may be altered.
    """

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state
        self._copies: dict[int, Any] = {id(state): state}
        self._changed: dict[tuple[str, ...], None] = {}

    def apply(self, operation: Operation, at: str) -> None:
        if not operation.path:
            self.state = self._copy_once(operation.value)
            self._changed[()] = None
            return
        *above, last = operation.path
        parent = self._container(above, at)
        if isinstance(parent, dict):
            self._apply_in_object(operation, parent, last, at)
        else:
            self._apply_in_array(operation, parent, last, at)

    def _apply_in_object(self, operation: Operation, parent: dict[str, Any], name: str, at: str) -> None:
        if operation.op is not Op.ADD and name not in parent:
            refuse(at, "nothing exists at this path.")
        if operation.op is Op.REMOVE:
            del parent[name]
        else:
            parent[name] = operation.value
        self._changed[operation.path] = None

    def _apply_in_array(self, operation: Operation, parent: list[Any], last: str, at: str) -> None:
        length = len(parent)
        if operation.op is Op.ADD:
            index = length if last == END else as_index(last, length + 1)
            if index is None:
                refuse(at, f"the index must be 0 to {length}, or `{END}` for the end.")
            parent.insert(index, operation.value)
        else:
            index = as_index(last, length)
            if index is None:
                refuse(at, f"the array has {length} elements; `{last}` is not one of them.")
            if operation.op is Op.REMOVE:
                del parent[index]
            else:
                parent[index] = operation.value
        # If elements have moved, their paths name other elements now, so the complete array is reported.
        is_stable = operation.op is Op.REPLACE or (operation.op is Op.ADD and index == length)
        self._changed[(*operation.path[:-1], str(index)) if is_stable else operation.path[:-1]] = None

    def _container(self, path: Sequence[str], at: str) -> dict[str, Any] | list[Any]:
        """Return a container that may be altered. Copies each container on the path to it at most once."""
        container: Any = self.state
        for depth, part in enumerate(path):
            inner = get_at(container, (part,))
            if inner is MISSING:
                refuse(at, f"nothing exists at {pointer(path[: depth + 1])}.")
            if not isinstance(inner, (dict, list)):
                refuse(at, f"{pointer(path[: depth + 1])} is neither an object nor an array.")
            copy = self._copy_once(inner)
            container[part if isinstance(container, dict) else int(part)] = copy
            container = copy
        return container

    def _copy_once(self, container: Any) -> Any:
        if id(container) in self._copies:
            return container
        copy = container.copy()
        self._copies[id(copy)] = copy
        return copy

    def changed_paths(self) -> tuple[str, ...]:
        """Return the changed paths in order of change, without paths inside other changed paths."""
        changed = self._changed
        return tuple(
            pointer(path)
            for path in changed
            if not any(path[:depth] in changed for depth in range(len(path)))
        )
