"""The patch of a `state.patch` action: resolved before it is confirmed, then applied. CV-25, RS-66

Owns filling the references in the operations. A resolved patch has the values themselves, so that a person
confirms them; the state gets large ones as markers. Does not know stores.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from easel.core.canvas.actions import PatchState
from easel.core.canvas.spec import check_state_size
from easel.core.stream.marker import OffloadedValue
from easel.core.values.patch import (
    Patch,
    apply_patch,
    check_patch_names,
    offload_patch,
    parse_patch,
    to_json_patch,
)
from easel.core.values.paths import StateChange
from easel.core.values.references import find_references
from easel.core.values.template import MAX_FILLED_LENGTH, Filler, Values


def resolve_patch(action: PatchState, values: Values, *, limit: int = MAX_FILLED_LENGTH) -> Patch:
    """Return the patch with the values of its references, all of the state before the patch.

    Raises `BadInput` if a value is missing or must not be at its place in a state.
    """
    if not any(True for operation in action.patch for _ in find_references(operation.value)):
        return action.patch
    at = f"actions.{action.action_id}.patch"
    filler = Filler(values, limit=limit, at=at)
    filled = tuple(
        replace(operation, value=filler.fill_tree(operation.value, at=(number, "value")))
        for number, operation in enumerate(action.patch)
    )
    resolved = parse_patch(to_json_patch(filled), at)  # checks the values as those of a patch from a client
    check_patch_names(resolved, at)
    return resolved


def apply_to_state(
    patch: Patch, state: Mapping[str, Any], action_id: str, max_bytes: int
) -> tuple[StateChange, tuple[OffloadedValue, ...]]:
    """Return the state after a resolved patch, and the values to store before it."""
    stored, offloaded = offload_patch(patch)
    patched = apply_patch(stored, state, f"actions.{action_id}.patch")
    check_state_size(patched.state, max_bytes)
    return patched, offloaded
