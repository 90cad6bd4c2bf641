"""The secrets of an action, by name: which calls may use them. RS-66

Owns the checks at the start of an execution and at its confirmation. Does not know the values.
"""

from collections.abc import Mapping

from easel.core.action.confirmation import Work
from easel.core.action.hints import explain_weakened
from easel.core.action.resolution import ResolvedCall
from easel.core.canvas.canvas import Canvas
from easel.core.canvas.spec import CanvasSpec
from easel.core.tool.definition import X_SECRETS, ToolDefinition
from easel.errors import BadInput, Forbidden


def check_secrets(
    canvas: Canvas,
    spec: CanvasSpec,
    action_id: str,
    work: Work,
    *,
    definition: ToolDefinition | None,
    weakened: Mapping[str, str],
) -> None:
    """Check the secrets of a call, also of one that a person confirms.

    Raises `Forbidden` while no person has accepted the canvas with its tools as they are now, and for a
    secret that the spec does not list. Raises `BadInput` if the tool takes no variables.
    """
    if not isinstance(work, ResolvedCall) or not work.secret_names:
        return
    if unlisted := sorted(work.secret_names.difference(spec.secrets)):
        problem = f"actions.{action_id}: toolPolicy.secrets of the canvas does not list {unlisted[0]}."
        raise Forbidden(problem=problem)
    if not canvas.is_accepted or weakened:
        problem = (
            f"actions.{action_id} uses your secret {', '.join(sorted(work.secret_names))}, and no person has "
            f"accepted the canvas as it is now. Accept it, then run it again. {explain_weakened(weakened)}"
        )
        raise Forbidden(problem=problem.rstrip())
    if work.env and definition is not None:
        require_variables(action_id, definition)


def require_variables(action_id: str, definition: ToolDefinition) -> None:
    """Raise `BadInput` if the tool takes no variables."""
    if not definition.takes_secrets:
        raise BadInput(
            problem=f"actions.{action_id}.secrets: {definition.name} takes no variables; only a tool whose "
            f'schema has `"{X_SECRETS}": true` does, such as Bash of Easel. Use {{"$secret": "NAME"}} in an '
            "argument."
        )
