"""The policy of actions: the allowlist, confirmation by a person, and the hints of tool definitions.
CV-40, CV-41, RS-13, RS-45, RS-59

Owns the decisions. Arguments are the tool definitions, `floor` (the server's lowest confirmation level) and
`is_accepted` (whether a person accepted the spec). The policy is checked at every execution, for every kind
of trigger, and when a spec is stored.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from easel.core.action.fetch import check_fetch
from easel.core.action.resolution import Commands, format_argument_path
from easel.core.action.secrets import require_variables
from easel.core.action.warnings import find_warnings
from easel.core.canvas.actions import Action, Approval, CallTool, Confirm, SendMessage
from easel.core.canvas.spec import CanvasSpec
from easel.core.problems import Problems
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import why_missing
from easel.core.validation import refuse
from easel.core.values.paths import MISSING, get_at
from easel.core.values.references import STATE, find_references, leaves
from easel.core.values.template import Template, as_text
from easel.core.web.hosts import FETCH, READ_METHODS
from easel.errors import Forbidden, NotFound, Unavailable

_ORDER = (Confirm.NEVER, Confirm.AUTO, Confirm.ALWAYS)
# The lowest confirmation level of each EASEL_APPROVAL_MODE. SB-01
APPROVAL_MODES: Mapping[str, Confirm] = {
    "minimal": Confirm.ALWAYS,
    "trusted": Confirm.AUTO,
    "full-access": Confirm.NEVER,
}
Definitions = Mapping[str, ToolDefinition]


# --- before an action runs ------------------------------------------------------------------------


def admit(spec: CanvasSpec, action_id: str) -> Action:
    """Return the action with this exact id. CV-36, CV-40, X4, X5

    Raises `NotFound` if the spec does not declare it, and `Forbidden` if its tool is not on the allowlist.
    """
    action = spec.actions.get(action_id)
    if action is None:
        raise NotFound(what="action", id=action_id[:200])
    if isinstance(action, CallTool) and action.tool not in spec.tools:
        raise Forbidden(
            problem=f"actions.{action_id}: toolPolicy.allow of the canvas does not list {action.tool}."
        )
    return action


def definition_of(
    action: CallTool, definitions: Definitions, reasons: Mapping[str, str] | None = None
) -> ToolDefinition:
    """Return the definition of the action's tool. RS-45

    Raises `Unavailable` if there is no definition, because the arguments cannot be checked without it.
    `reasons` has the tools that this machine cannot offer.
    """
    definition = definitions.get(action.tool)
    if definition is None:
        tool, why = f"Tool {action.tool}", why_missing(action.tool, definitions, reasons or {})
        problem = Unavailable.with_message(f"{tool} is unavailable: {why} Nothing was changed.", what=tool)
        problem.retry_after = None  # trying again in a moment does not help
        raise problem
    return definition


def confirmation(action: Action, *, floor: Confirm = Confirm.NEVER, is_accepted: bool = True) -> Confirm:
    """Return the effective confirmation level. RS-14, RS-59

    It is at least `floor`, and at least `auto` if no person has accepted the spec. An action that another
    person must approve always asks. RS-77
    """
    if action.approval is Approval.ANOTHER:
        return Confirm.ALWAYS
    declared = Confirm.AUTO if action.confirm is Confirm.NEVER and not is_accepted else action.confirm
    return max(declared, floor, key=_ORDER.index)


def needs_consent(
    action: Action,
    definition: ToolDefinition | None,
    *,
    floor: Confirm = Confirm.NEVER,
    is_accepted: bool = True,
) -> bool:
    """Return whether a person must confirm this execution. RS-13, RS-45

    A tool without a definition counts as not read-only.
    """
    match confirmation(action, floor=floor, is_accepted=is_accepted):
        case Confirm.ALWAYS:
            return True
        case Confirm.NEVER:
            return False
        case Confirm.AUTO:
            # A message starts a run of an agent, so it needs confirmation if no person accepted the spec.
            return (
                not is_harmless(definition, action.template)
                if isinstance(action, CallTool)
                else isinstance(action, SendMessage) and not is_accepted
            )


def check_invocation(
    definition: ToolDefinition,
    args: Mapping[str, Any],
    *,
    floor: Confirm,
    approval_by: Approval = Approval.ANYONE,
) -> None:
    """Raise `Forbidden` if a person may not call the tool directly: the server asks before each such call.

    The call counts as an action of an accepted canvas with `confirm: never`: the request is the person's
    decision. RS-67
    """
    if floor is Confirm.ALWAYS or (floor is Confirm.AUTO and not is_harmless(definition, args)):
        raise Forbidden(
            problem=f"this server asks for confirmation before {definition.name} runs (EASEL_APPROVAL_MODE); "
            "call it with an action of a canvas."
        )
    if approval_by is Approval.ANOTHER and not is_harmless(definition, args):
        raise Forbidden(
            problem=f"in this team another person must approve a call of {definition.name} (approval_by); "
            "call it with an action of a canvas."
        )


def check_gesture(action: Action, *, has_gesture: bool, is_accepted: bool) -> None:
    """Raise `Forbidden` if an unaccepted canvas's page starts a tool without a person's gesture. RS-63"""
    if isinstance(action, CallTool) and not is_accepted and not has_gesture:
        raise Forbidden(
            problem="the page wants to run a tool without a click or key press of yours. Until a person "
            "accepts this canvas, use a button of the page."
        )


def may_run_unattended(
    action: Action, definition: ToolDefinition | None, *, floor: Confirm, is_accepted: bool
) -> bool:
    """Return whether a refresh may run the action: only if it needs no confirmation. RS-59

    If no person has accepted the spec, a refresh may only call tools.
    """
    return not needs_consent(action, definition, floor=floor, is_accepted=is_accepted) and (
        is_accepted or isinstance(action, CallTool)
    )


def is_harmless(definition: ToolDefinition | None, args: Mapping[str, Any]) -> bool:
    """Return whether the call only reads: by the tool's hints, or as a fetch with such a method. RS-74"""
    if definition is None or definition.name == FETCH:
        return definition is not None and args.get("method") in READ_METHODS
    return definition.read_only and not definition.destructive


# --- when a spec is stored ------------------------------------------------------------------------


def check_reach(spec: CanvasSpec, may_call: Callable[[str], bool]) -> None:
    """Raise `Forbidden` if the spec allows a tool that its author may not call. RS-59"""
    for tool in sorted(spec.tools):
        if not may_call(tool):
            raise Forbidden(
                problem=f"toolPolicy.allow: you may not call {tool}, so your canvas must not allow it."
            )


def check_templates(
    spec: CanvasSpec, definitions: Definitions, *, floor: Confirm = Confirm.NEVER
) -> list[str]:
    """Check a spec against the tool definitions. Returns warnings for its author. RS-16, RS-45

    Raises `BadInput` with all unsafe shell templates, and refreshes of actions that need confirmation.
    """
    problems = Problems()
    warnings = collect_problems(spec, definitions, problems, floor=floor)
    problems.raise_all("The spec")
    return warnings


def collect_problems(
    spec: CanvasSpec, definitions: Definitions, problems: Problems, *, floor: Confirm = Confirm.NEVER
) -> list[str]:
    """Add the problems of a spec, or of its valid parts, with the tool definitions. Returns warnings."""
    values: list[str] = []
    for action in spec.actions.values():
        if isinstance(action, CallTool) and (definition := definitions.get(action.tool)):
            values += _check_commands(action, definition, spec, problems)
    for number, refresh in enumerate(spec.refreshes):
        if refresh.action_id in spec.actions:
            at = f"refresh[{number}].action"
            action = spec.actions[refresh.action_id]
            problems.take(None, _check_unattended, at, action, definitions, floor=floor)
    return [*find_warnings(spec, definitions), *values]


def _check_unattended(at: str, action: Action, definitions: Definitions, *, floor: Confirm) -> None:
    known = definitions.get(action.tool) if isinstance(action, CallTool) else None
    is_known = known is not None or not isinstance(action, CallTool) or action.confirm is Confirm.ALWAYS
    if is_known and needs_consent(action, known, floor=floor):
        where = "" if needs_consent(action, known) else " on this server (EASEL_APPROVAL_MODE)"
        refuse(at, f"`{action.action_id}` needs confirmation by a person{where}, so a refresh cannot run it.")


def _check_commands(
    action: CallTool, definition: ToolDefinition, spec: CanvasSpec, problems: Problems
) -> Iterator[str]:
    """Check the templates that a shell reads, and that no reference is in place of them. RS-66, RS-71

    Yields a warning for each value in the spec's state that does not fit its place.
    """
    commands, take = Commands(action, definition, spec), problems.take
    for path, reference in find_references(action.template):
        take(None, commands.check_reference, path, reference)
    if action.secrets:
        take(None, require_variables, action.action_id, definition)
    take(None, check_fetch, action)
    for path, leaf in leaves(action.template):
        if isinstance(leaf, Template) and (command := take(None, commands.compile, leaf, path)):
            at = format_argument_path(action.action_id, path)
            for slot, name in zip(command.slots, leaf.placeholders, strict=True):
                value = as_text(get_at(spec.state, name.path) if name.source == STATE else MISSING)
                if value and (problem := command.find_problem(slot, value, name)):
                    yield f"{at}: the value of {name} in the spec's state {problem}"
