"""What of a spec may run: the allowlist, the consent of a person, and what the tools' own definitions say. CV-40, CV-41, RS-13, RS-45, RS-59

Owns the decisions; the definitions in force, the server's own floor and whether a person has accepted the spec are arguments.
Everything here is asked at every execution, whoever triggers it, and again whenever a spec is stored.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from easel.core.canvas.actions import Action, CallTool, Confirm, PatchState, SendMessage, place_of_argument
from easel.core.canvas.spec import CanvasSpec
from easel.core.shell.template import compile_template, is_shell
from easel.core.tool.definition import ToolDefinition
from easel.core.values.patch import Op
from easel.core.values.paths import MISSING, found, pointer
from easel.core.values.template import Template, leaves, lookalikes
from easel.errors import BadInput, Forbidden, NotFound, Unavailable

_ORDER = (Confirm.NEVER, Confirm.AUTO, Confirm.ALWAYS)
# How far actions are let without asking, by the words of EASEL_APPROVAL_MODE, and the least that each asks for. SB-01
APPROVAL_MODES: Mapping[str, Confirm] = {
    "minimal": Confirm.ALWAYS,
    "trusted": Confirm.AUTO,
    "full-access": Confirm.NEVER,
}
Definitions = Mapping[str, ToolDefinition]


# --- before an action runs ----------------------------------------------------------------------------------------------


def admit(spec: CanvasSpec, action_id: str) -> Action:
    """The declared action of exactly this name, if its tool is allowed. Asked before any template is looked at. CV-36, CV-40, X4, X5"""
    action = spec.actions.get(action_id)
    if action is None:
        raise NotFound(what="action", id=action_id[:200])
    if isinstance(action, CallTool) and action.tool not in spec.tools:
        raise Forbidden(
            problem=f"actions.{action_id}: the canvas's toolPolicy.allow does not name {action.tool}."
        )
    return action


def definition_of(action: CallTool, definitions: Definitions) -> ToolDefinition:
    """A tool without a definition cannot be called: nothing is known of its arguments. RS-45"""
    definition = definitions.get(action.tool)
    if definition is None:
        raise Unavailable(what=f"Tool {action.tool}")
    return definition


def confirmation(action: Action, *, floor: Confirm = Confirm.NEVER, is_accepted: bool = True) -> Confirm:
    """The level in force. The server's floor can only raise it, and `never` is an agent's to say only after a person accepted. RS-14, RS-59"""
    declared = Confirm.AUTO if action.confirm is Confirm.NEVER and not is_accepted else action.confirm
    return max(declared, floor, key=_ORDER.index)


def needs_consent(
    action: Action,
    definition: ToolDefinition | None,
    *,
    floor: Confirm = Confirm.NEVER,
    is_accepted: bool = True,
) -> bool:
    """Whether a person has to agree to this one invocation. What is unknown is not read-only. RS-13, RS-45"""
    match confirmation(action, floor=floor, is_accepted=is_accepted):
        case Confirm.ALWAYS:
            return True
        case Confirm.NEVER:
            return False
        case Confirm.AUTO:
            # A message starts an agent in a session: an agent's canvas reaches no session on its own.
            return (
                not is_harmless(definition)
                if isinstance(action, CallTool)
                else isinstance(action, SendMessage) and not is_accepted
            )


def may_run_by_itself(
    action: Action, definition: ToolDefinition | None, *, floor: Confirm, is_accepted: bool
) -> bool:
    """Nobody is there to be asked; and an agent's canvas that nobody has accepted does not change itself behind everybody's back. RS-59"""
    return not needs_consent(action, definition, floor=floor, is_accepted=is_accepted) and (
        is_accepted or isinstance(action, CallTool)
    )


def is_harmless(definition: ToolDefinition | None) -> bool:
    return definition is not None and definition.read_only and not definition.destructive


# --- when a spec is stored ----------------------------------------------------------------------------------------------


def check_reach(spec: CanvasSpec, may_call: Callable[[str], bool]) -> None:
    """An agent's canvas reaches no further than the agent. RS-59"""
    for tool in sorted(spec.tools):
        if not may_call(tool):
            raise Forbidden(
                problem=f"toolPolicy.allow: you may not call {tool} yourself, so your canvas may not either."
            )


def check_templates(
    spec: CanvasSpec, definitions: Definitions, *, floor: Confirm = Confirm.NEVER
) -> list[str]:
    """Refuses what the tools' definitions forbid, and answers with what an author will want to know. RS-16, RS-45"""
    for action in spec.actions.values():
        if isinstance(action, CallTool) and (definition := definitions.get(action.tool)):
            _check_commands(action, definition)
    for number, refresh in enumerate(spec.refreshes):
        action = spec.actions[refresh.action_id]
        known = definitions.get(action.tool) if isinstance(action, CallTool) else None
        is_known = known is not None or not isinstance(action, CallTool) or action.confirm is Confirm.ALWAYS
        if is_known and needs_consent(action, known, floor=floor):
            where = "" if needs_consent(action, known) else " on this server (EASEL_APPROVAL_MODE)"
            raise BadInput(
                problem=f"refresh[{number}].action: `{refresh.action_id}` needs a person's consent{where}, and a refresh has none to ask."
            )
    return list(_warnings(spec, definitions))


def _check_commands(action: CallTool, definition: ToolDefinition) -> None:
    for path, leaf in leaves(action.template):
        if isinstance(leaf, Template) and is_shell(definition.schema, path):
            compile_template(
                leaf, place_of_argument(action.action_id, path), allows_options=action.allows_options
            )


def _warnings(spec: CanvasSpec, definitions: Definitions) -> Iterator[str]:
    for tool in sorted(spec.tools):
        if tool not in definitions:
            yield f"toolPolicy.allow: there is no tool {tool} now; an action that needs it fails until there is."
    for action in spec.actions.values():
        at = f"actions.{action.action_id}"
        match action:
            case CallTool():
                if action.tool not in spec.tools:
                    yield f"{at}.tool: {action.tool} is not in toolPolicy.allow, so this action will be refused."
                for text in _texts(action.template):
                    yield from (
                        f"{at}.args: {one} is no placeholder, and is sent as it stands."
                        for one in lookalikes(text)
                    )
            case SendMessage():
                for text in _texts(action.message):
                    yield from (
                        f"{at}.message: {one} is no placeholder, and is sent as it stands."
                        for one in lookalikes(text)
                    )
            case PatchState():
                yield from _missing_targets(action, spec, at)


def _texts(tree: Any) -> Iterator[str]:
    for _, leaf in leaves(tree):
        yield from (
            part for part in (leaf.parts if isinstance(leaf, Template) else [leaf]) if isinstance(part, str)
        )


def _missing_targets(action: PatchState, spec: CanvasSpec, at: str) -> Iterator[str]:
    """`replace` and `remove` need their target; an author who meant "set" wants `add`."""
    added: set[tuple[str, ...]] = set()
    for number, operation in enumerate(action.patch):
        if operation.op is Op.ADD:
            added.add(operation.path[:1])
        elif (
            operation.path
            and operation.path[:1] not in added
            and found(spec.state, operation.path) is MISSING
        ):
            yield f"{at}.patch[{number}]: the spec's state has no {pointer(operation.path)}, which {operation.op} needs; `add` makes it."
