"""The secrets of an action, by name: which calls may use them, and whose values may stand beside them.
RS-66, RS-73

Owns the checks at the start of an execution and at its confirmation. Does not know the values.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from easel.core.action.confirmation import Work
from easel.core.action.hints import explain_weakened
from easel.core.action.resolution import ResolvedCall
from easel.core.canvas.actions import Action, CallTool, PatchState
from easel.core.canvas.canvas import Canvas
from easel.core.canvas.spec import CanvasSpec
from easel.core.canvas.unreviewed import is_related
from easel.core.principal import Principal
from easel.core.stream.marker import unescape_key
from easel.core.tool.definition import X_SECRETS, ToolDefinition
from easel.core.values.paths import pointer
from easel.core.values.references import INPUT, STATE, ValueRef, leaves
from easel.core.values.template import Template
from easel.errors import BadInput, Forbidden

MAX_NAMED = 5  # values in the reason of a question


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


# --- whose values ---------------------------------------------------------------------------------


def explain_unreviewed(canvas: Canvas, action: Action, work: Work, principal: Principal) -> str:
    """Return why a person must confirm a call with secrets: values that no person wrote; else empty. RS-73"""
    has_secrets = isinstance(work, ResolvedCall) and work.secret_names
    if not isinstance(action, CallTool) or not has_secrets:
        return ""
    if not (found := dict(_find_authors(canvas, action.template, principal))):
        return ""
    named = [f"{path} was written by {author}" for path, author in [*found.items()][:MAX_NAMED]]
    more = [f"{len(found) - MAX_NAMED} more"] if len(found) > MAX_NAMED else []
    return f"It uses secrets, and since a person accepted this canvas {', '.join([*named, *more])}."


def find_copied(canvas: Canvas, action: Action, principal: Principal) -> Mapping[str, str]:
    """Return the authors of the values that a `state.patch` copies, by the paths it copies them to. RS-73"""
    operations = action.patch if isinstance(action, PatchState) else ()
    return {
        pointer([unescape_key(part) for part in operation.path]): author
        for operation in operations
        for _, author in _find_authors(canvas, operation.value, principal)
    }


def name_result(action: Action) -> str:
    """Return the author of what `saveAs` stores."""
    return f"the result of {action.tool}" if isinstance(action, CallTool) else "an agent's answer"


def _find_authors(canvas: Canvas, tree: Any, principal: Principal) -> Iterator[tuple[str, str]]:
    """Yield each value in a parsed tree that no person wrote, as errors show it, with its author."""
    for _, leaf in leaves(tree):
        uses = (
            leaf.placeholders if isinstance(leaf, Template) else [leaf] if isinstance(leaf, ValueRef) else []
        )
        for use in uses:
            at = f"{use.source}.{'.'.join(use.path)}"
            if use.source == INPUT and not principal.is_person:
                yield at, principal.author
            if use.source == STATE:
                related = (path for path in canvas.unreviewed if is_related(path, pointer(use.path)))
                yield from ((at, canvas.unreviewed[path]) for path in related)
