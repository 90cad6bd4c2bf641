"""Resolution of an action: its declaration, the state and the input give one tool call or message.

Owns filling the placeholders. A resolved call is final: the call that a person confirms is the call that is
executed. X6
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from easel.core.canvas.actions import CallTool, SendMessage, WhenMissing
from easel.core.shell.arguments import is_shell
from easel.core.shell.template import compile_template
from easel.core.tool.definition import ToolDefinition
from easel.core.values.template import MAX_FILLED_LENGTH, Filler, Template, Values, leaves

# Raises `BadInput` if the arguments do not fit the tool's schema, so that no person is asked to approve them.
CheckArguments = Callable[[ToolDefinition, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class ResolvedCall:
    """A tool call with all placeholders filled."""

    tool: str
    args: Mapping[str, Any]
    session_key: str  # the session whose folder the tool works in
    shell_args: tuple[str, ...] = ()  # paths of the arguments that a shell reads; their values were quoted


@dataclass(frozen=True, slots=True)
class Message:
    """A message to a session, with all placeholders filled."""

    session_key: str
    text: str


def resolve_call(
    action: CallTool,
    definition: ToolDefinition,
    values: Values,
    session_key: str,
    check_arguments: CheckArguments | None = None,
    *,
    limit: int = MAX_FILLED_LENGTH,
) -> ResolvedCall:
    """Fill the placeholders in the arguments. CV-26, CV-27, RS-16, RS-45

    The tool's current definition decides which arguments a shell reads. Raises `BadInput` if a template of
    such an argument is not safe, and the error of `check_arguments`.
    """
    filler = Filler(values, limit=limit)

    def for_shell(template: Template, path: tuple[str | int, ...]) -> str | None:
        if not is_shell(definition, path):
            return None
        at = format_argument_path(action.action_id, path)
        command = compile_template(template, at, allows_options=action.allows_options)
        return command.fill(
            filler.resolve_texts(template), at, missing_is_empty=action.missing is WhenMissing.EMPTY
        )

    args = filler.fill_tree(action.template, for_shell)
    if check_arguments is not None:
        check_arguments(definition, args)
    return ResolvedCall(action.tool, args, session_key, find_shell_args(args, definition))


def find_shell_args(args: Any, definition: ToolDefinition) -> tuple[str, ...]:
    """Return the paths of the arguments that a shell reads, according to the tool's definition."""
    return tuple(
        _format_path(path)
        for path, leaf in leaves(args)
        if isinstance(leaf, str) and is_shell(definition, path)
    )


def find_text_args(args: Any) -> tuple[str, ...]:
    """Return the paths of all text arguments."""
    return tuple(_format_path(path) for path, leaf in leaves(args) if isinstance(leaf, str))


def resolve_message(action: SendMessage, values: Values, *, limit: int = MAX_FILLED_LENGTH) -> str:
    return Filler(values, limit=limit).fill(action.message)


def format_argument_path(action_id: str, path: tuple[str | int, ...]) -> str:
    """Return the path of an argument as errors show it, such as `actions.deploy.args.files[0]`."""
    return f"actions.{action_id}.args{_format_path(path)}"


def _format_path(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
