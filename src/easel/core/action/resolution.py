"""Resolution of an action: its declaration, the state and the input give one tool call or message.

Owns filling the placeholders. A resolved call is final: the call that a person confirms is the call that is
executed. X6
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from easel.core.action.fetch import fill_url
from easel.core.canvas.actions import CallTool, SendMessage, WhenMissing
from easel.core.canvas.spec import CanvasSpec
from easel.core.shell.template import ShellTemplate, Terms, compile_template
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import is_own_tool
from easel.core.tool.shell_arguments import Reading, ShellArguments
from easel.core.values.references import (
    ArgumentPath,
    Reference,
    SecretRef,
    SecretUse,
    ValueRef,
    find_references,
    format_path,
    get_argument,
    leaves,
)
from easel.core.values.template import MAX_FILLED_LENGTH, Filler, Placeholder, Template, Values
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
    shell_args: tuple[str, ...] = ()  # paths of the arguments that a shell reads
    secrets: tuple[SecretUse, ...] = ()  # `args` has the name of a secret where its value belongs
    env: tuple[str, ...] = ()  # the names of the secrets that are variables of its command
    texts: tuple[tuple[str, str], ...] = ()  # variables of its command with any text. RS-71

    @property
    def secret_names(self) -> frozenset[str]:
        return frozenset((*(use.name for use in self.secrets), *self.env))


@dataclass(frozen=True, slots=True)
class ResolvedMessage:
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
    policy: CanvasSpec | None = None,
    limit: int = MAX_FILLED_LENGTH,
) -> ResolvedCall:
    """Fill the placeholders and references in the arguments. CV-26, CV-27, RS-16, RS-45, RS-66, RS-71

    The tool's current definition, and `policy` if a person accepted it, decide which arguments a shell reads.
    Raises `BadInput` if a value does not fit its place there, and the error of `check_arguments`.
    """
    filler = Filler(values, limit=limit, at=format_argument_path(action.action_id, ()))
    commands = Commands(action, definition, policy)
    for path, reference in find_references(action.template):
        commands.check_reference(path, reference)
    variables: dict[str, str] = {}

    def fill_special(template: Template, path: ArgumentPath) -> str | None:
        at = format_argument_path(action.action_id, path)
        if action.tool == FETCH and path == ("url",):
            is_empty = action.missing is WhenMissing.EMPTY
            return fill_url(template, filler.resolve_texts(template), at, missing_is_empty=is_empty)
        if (command := commands.compile(template, path)) is None:
            return None
        filled, found = command.fill(filler.resolve_texts(template), at)
        variables.update(found)
        return filled

    args = filler.fill_tree(action.template, fill_special)
    commands.check_values(args)
    if check_arguments is not None and not filler.secrets:  # else names would be checked, not the values
        check_arguments(definition, args)
    return ResolvedCall(
        action.tool,
        args,
        session_key,
        find_shell_args(args, definition),
        tuple(filler.secrets),
        action.secrets,
        tuple(sorted(variables.items())),
    )


class Commands:
    """The arguments of an action that a shell reads. RS-71"""

    def __init__(self, action: CallTool, definition: ToolDefinition, policy: CanvasSpec | None) -> None:
        self._action = action
        self._definition = definition
        policy = policy or CanvasSpec()
        shell, data = policy.shell.get(action.tool, ()), policy.data.get(action.tool, ())
        self._reads = ShellArguments(definition, shell, data)
        self._terms = Terms(action.texts, action.options, action.missing is WhenMissing.EMPTY)

    def compile(self, template: Template, path: ArgumentPath) -> ShellTemplate | None:
        """Return the compiled template, or None if no shell reads it. Raises `BadInput` for unsafe places."""
        reading = self._reads.read(path)
        if reading is Reading.DATA:
            return None
        at = format_argument_path(self._action.action_id, path)
        named = [name for name in template.placeholders if self._terms.variable_of(name)]
        if named and not self._definition.takes_secrets:
            raise BadInput(
                problem=f"{at}: {named[0]} cannot take any text: {self._action.tool} takes no variables for "
                "its command, as Bash of Easel does. Leave it out of `text`."
            )
        is_word = reading is Reading.WORD
        if reading is Reading.ARGUMENTS and path and isinstance(path[-1], int):
            siblings = get_argument(self._action.template, path[:-1])
            is_word = not _has_blank(siblings[0])  # a list of arguments, else a list of commands
            if is_word:
                compile_template(_join_arguments(siblings), at, replace(self._terms, texts=()))
        if is_word:
            return ShellTemplate.of_word(template, replace(self._terms, texts=()))
        return compile_template(template, at, self._terms)

    def check_reference(self, path: ArgumentPath, reference: Reference) -> None:
        """Raise `BadInput` if a reference is in place of a command, or gives a secret to Easel. RS-66

        A secret is refused for Easel's own tools: they write canvases, boards, documents and their logs.
        """
        at = format_argument_path(self._action.action_id, path)
        if isinstance(reference, SecretRef) and is_own_tool(self._definition.name):
            raise BadInput(
                problem=f"{at}: Easel's own tools store what they get, so {reference} cannot stand here; "
                "it is for tools of a node and of the machine."
            )
        reading = self._reads.read(path)
        if reading is Reading.COMMAND or (reading is Reading.ARGUMENTS and isinstance(reference, SecretRef)):
            raise BadInput(
                problem=f"{at}: a shell reads this argument, so {reference} cannot stand here; use a "
                "placeholder in a text, and `secrets` of the action for a secret."
            )

    def check_values(self, args: Any) -> None:
        """Raise `BadInput` if an inserted value has a text that a shell reads; numbers have none."""
        for path, reference in find_references(self._action.template):
            for inside in self._reads.find_texts(get_argument(args, path), path):
                if isinstance(reference, ValueRef):
                    at = format_argument_path(self._action.action_id, inside)
                    raise BadInput(
                        problem=f"{at}: a shell reads this text, so it cannot come from {reference}; use a "
                        "placeholder in a text. If no shell reads it, let a person name the argument in "
                        f'"toolPolicy": {{"data": {{"{self._action.tool}": ["{path[0]}"]}}}}.'
                    )


def _has_blank(part: Any) -> bool:
    text = part if isinstance(part, str) else ""
    if isinstance(part, Template):
        text = "".join(piece for piece in part.parts if isinstance(piece, str))
    return re.search(r"\s", text) is not None


def _join_arguments(parts: Sequence[Any]) -> Template:
    """Return a list of arguments as one command, with each of them in single quotes."""
    joined: list[str | Placeholder] = []
    for part in parts:
        pieces = part.parts if isinstance(part, Template) else (part if isinstance(part, str) else "0",)
        quoted = [piece.replace("'", "'\\''") if isinstance(piece, str) else piece for piece in pieces]
        joined += ["'", *quoted, "' "]
    return Template(tuple(joined))


def find_shell_args(args: Any, definition: ToolDefinition) -> tuple[str, ...]:
    """Return the paths of the arguments that a shell reads, according to the tool's definition."""
    return tuple(map(format_path, ShellArguments(definition).find_texts(args)))


def find_text_args(args: Any) -> tuple[str, ...]:
    """Return the paths of all text arguments."""
    return tuple(format_path(path) for path, leaf in leaves(args) if isinstance(leaf, str))


def resolve_message(action: SendMessage, values: Values, *, limit: int = MAX_FILLED_LENGTH) -> str:
    return Filler(values, limit=limit).fill(action.message)


def format_argument_path(action_id: str, path: ArgumentPath) -> str:
    """Return the path of an argument as errors show it, such as `actions.deploy.args.files[0]`."""
    return f"actions.{action_id}.args{format_path(path)}"
