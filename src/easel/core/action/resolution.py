"""Resolution of an action: its declaration, the state and the input give one tool call or message.

Owns filling the placeholders. A resolved call is final: the call that a person confirms is the call that is
executed. X6
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from easel.core.action.fetch import fill_url
from easel.core.canvas.actions import CallTool, SendMessage, WhenMissing
from easel.core.shell.arguments import find_shell_texts, is_shell, may_contain_shell
from easel.core.shell.template import compile_template
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import is_own_tool
from easel.core.values.references import (
    ArgumentPath,
    Reference,
    SecretRef,
    SecretUse,
    ValueRef,
    find_references,
    format_path,
    get_argument,
)
from easel.core.values.template import MAX_FILLED_LENGTH, Filler, Template, Values, leaves
from easel.core.web.hosts import FETCH
from easel.errors import BadInput

# Raises `BadInput` if the arguments do not fit the tool's schema, so that no person is asked to approve them.
CheckArguments = Callable[[ToolDefinition, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class ResolvedCall:
    """A tool call with all placeholders and references filled, except the values of secrets."""

    tool: str
    args: Mapping[str, Any]
    session_key: str  # the session whose folder the tool works in
    shell_args: tuple[str, ...] = ()  # paths of the arguments that a shell reads; their values were quoted
    secrets: tuple[SecretUse, ...] = ()  # `args` has the name of a secret where its value belongs
    env: tuple[str, ...] = ()  # the names of the secrets that are variables of its command

    @property
    def secret_names(self) -> frozenset[str]:
        return frozenset((*(use.name for use in self.secrets), *self.env))


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
    """Fill the placeholders and references in the arguments. CV-26, CV-27, RS-16, RS-45, RS-66

    The tool's current definition decides which arguments a shell reads. Raises `BadInput` if a template of
    such an argument is not safe or a reference is part of it, and the error of `check_arguments`.
    """
    filler = Filler(values, limit=limit, at=format_argument_path(action.action_id, ()))
    for path, reference in find_references(action.template):
        check_reference(action, definition, path, reference)

    def fill_special(template: Template, path: ArgumentPath) -> str | None:
        at, missing_is_empty = (
            format_argument_path(action.action_id, path),
            action.missing is WhenMissing.EMPTY,
        )
        if action.tool == FETCH and path == ("url",):
            return fill_url(template, filler.resolve_texts(template), at, missing_is_empty=missing_is_empty)
        if not is_shell(definition, path):
            return None
        command = compile_template(template, at, allows_options=action.allows_options)
        return command.fill(filler.resolve_texts(template), at, missing_is_empty=missing_is_empty)

    args = filler.fill_tree(action.template, fill_special)
    _check_values(action, definition, args)
    if check_arguments is not None and not filler.secrets:  # else names would be checked, not the values
        check_arguments(definition, args)
    shell_args = find_shell_args(args, definition)
    return ResolvedCall(action.tool, args, session_key, shell_args, tuple(filler.secrets), action.secrets)


def check_reference(
    action: CallTool, definition: ToolDefinition, path: ArgumentPath, reference: Reference
) -> None:
    """Raise `BadInput` if a reference is in an argument that a shell reads, or in place of one. RS-66

    A secret is refused also for Easel's own tools: they write canvases, boards, documents and their logs.
    """
    if isinstance(reference, SecretRef) and is_own_tool(definition.name):
        at = format_argument_path(action.action_id, path)
        raise BadInput(
            problem=f"{at}: Easel's own tools store what they get, so {reference} cannot stand here; it is "
            "for tools of a node and of the machine."
        )
    if may_contain_shell(definition, path):
        at = format_argument_path(action.action_id, path)
        raise BadInput(
            problem=f"{at}: a shell reads this argument or a part of it, so {reference} cannot stand "
            "here; use a placeholder in a text."
        )


def _check_values(action: CallTool, definition: ToolDefinition, args: Any) -> None:
    """Raise `BadInput` if an inserted value has a text that a shell reads, such as a member `command`."""
    for path, reference in find_references(action.template):
        if isinstance(reference, ValueRef):
            inserted = get_argument(args, path)
            for inside in find_shell_texts(definition, inserted, path):
                at = format_argument_path(action.action_id, inside)
                raise BadInput(
                    problem=f"{at}: a shell reads this text, so it cannot come from {reference}; if no shell "
                    f'reads it, {action.tool} must say `"x-shell": false` in its schema.'
                )


def find_shell_args(args: Any, definition: ToolDefinition) -> tuple[str, ...]:
    """Return the paths of the arguments that a shell reads, according to the tool's definition."""
    return tuple(map(format_path, find_shell_texts(definition, args)))


def find_text_args(args: Any) -> tuple[str, ...]:
    """Return the paths of all text arguments."""
    return tuple(format_path(path) for path, leaf in leaves(args) if isinstance(leaf, str))


def resolve_message(action: SendMessage, values: Values, *, limit: int = MAX_FILLED_LENGTH) -> str:
    return Filler(values, limit=limit).fill(action.message)


def format_argument_path(action_id: str, path: ArgumentPath) -> str:
    """Return the path of an argument as errors show it, such as `actions.deploy.args.files[0]`."""
    return f"actions.{action_id}.args{format_path(path)}"
