"""Definitions of the machine tools: names, descriptions, argument schemas and effects. RS-44"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from easel.core.tool.definition import X_SECRETS, X_SHELL, ToolDefinition
from easel.sandbox import files, search
from easel.sandbox.workspace import MAX_PATH_LENGTH

MAX_COMMAND_LENGTH = 100_000  # bytes; the kernel limits an argument to 128 KiB
TIMEOUT_MS = 300_000
MAX_TIMEOUT_MS = 3_600_000
NETWORK = "x-network"  # schema key of a tool that may use the network if its workspace allows it. RS-54


def _object(properties: Mapping[str, Any], *required: str) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _path(description: str) -> Mapping[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": MAX_PATH_LENGTH, "description": description}


def _text(description: str, **more: Any) -> Mapping[str, Any]:
    return {"type": "string", "description": description, **more}


def _number(description: str, minimum: int, maximum: int) -> Mapping[str, Any]:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, "description": description}


def definitions(prefix: str, *, has_shell: bool, network: bool) -> list[ToolDefinition]:
    """Return the tool definitions, named such as `{prefix}__Bash`, or `Bash` if the prefix is empty."""
    bash = _object(
        {
            "command": _text(
                "The command line.", minLength=1, maxLength=MAX_COMMAND_LENGTH, **{X_SHELL: True}
            ),
            "workdir": {**_path("The folder it starts in."), X_SHELL: False},
            "timeout": {
                **_number("Milliseconds after which it is stopped.", 1, MAX_TIMEOUT_MS),
                "default": TIMEOUT_MS,
            },
        },
        "command",
    )
    tools = [
        ToolDefinition(
            "Bash",
            "Runs a command with bash and returns its output, including standard error, and its exit code.",
            {**bash, X_SECRETS: True, **({NETWORK: True} if network else {})},
            destructive=True,
        ),
        ToolDefinition(
            "Read",
            "Reads a text file, or some lines of it.",
            _object(
                {
                    "path": _path("The file."),
                    "offset": _number("The first line; default 1.", 1, 1_000_000_000),
                    "limit": _number(
                        f"The maximum number of lines; default {files.MAX_LINES}.", 1, files.MAX_LINES
                    ),
                },
                "path",
            ),
            read_only=True,
        ),
        ToolDefinition(
            "Write",
            "Writes a text file, replacing an existing one, and creates missing parent folders.",
            _object(
                {"path": _path("The file."), "content": _text("The complete text of the file.")},
                "path",
                "content",
            ),
            destructive=True,
            idempotent=True,
        ),
        ToolDefinition(
            "Edit",
            "Replaces a text in a file by another. It must occur exactly once, unless replace_all is set.",
            _object(
                {
                    "path": _path("The file."),
                    "old_string": _text("The text to replace, exactly as in the file.", minLength=1),
                    "new_string": _text("The new text."),
                    "replace_all": {"type": "boolean", "description": "Replace every occurrence."},
                },
                "path",
                "old_string",
                "new_string",
            ),
            destructive=True,
        ),
        ToolDefinition(
            "Glob",
            "Finds files by name. `*` and `?` match within a folder, `**` across folders; "
            "`[…]` and `{a,b}` list choices.",
            _object(
                {
                    "pattern": _text("Such as `**/*.py`.", minLength=1, maxLength=search.MAX_PATTERN_LENGTH),
                    "path": _path("The folder to search."),
                },
                "pattern",
            ),
            read_only=True,
        ),
        ToolDefinition(
            "Grep",
            "Finds lines of text files that match a regular expression (RE2).",
            _object(
                {
                    "pattern": _text(
                        "The regular expression.", minLength=1, maxLength=search.MAX_PATTERN_LENGTH
                    ),
                    "path": _path("The folder or file to search."),
                    "glob": _text(
                        "Search only files whose names match.",
                        minLength=1,
                        maxLength=search.MAX_PATTERN_LENGTH,
                    ),
                    "ignore_case": {"type": "boolean"},
                    "limit": _number("The maximum number of lines; default 100.", 1, search.MAX_RESULTS),
                },
                "pattern",
            ),
            read_only=True,
        ),
    ]
    return [
        replace(tool, name=f"{prefix}__{tool.name}" if prefix else tool.name)
        for tool in tools
        if has_shell or tool.name != "Bash"
    ]
