"""An action of a spec, parsed on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from easel.core.canvas.actions import read_action
from easel.core.problems import Problems

if TYPE_CHECKING:
    from easel.core.canvas.actions import Action


def parse_action(action_id: str, raw: Any) -> Action:
    """Return the action that `raw` declares. Raises `BadInput`, which names all invalid members."""
    problems = Problems()
    action = read_action(action_id, raw, problems)
    problems.raise_all(f"actions.{action_id}")
    assert action is not None
    return action
