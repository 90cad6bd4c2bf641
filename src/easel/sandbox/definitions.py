"""What the tools of a machine say of themselves: their arguments, and what they do to the world. RS-44"""

from collections.abc import Mapping
from typing import Any

from easel.core.tool.definition import X_SHELL, ToolDefinition
from easel.sandbox import files, search
from easel.sandbox.workspace import MAX_PATH_LENGTH

MAX_COMMAND_LENGTH = 100_000  # bytes; the kernel takes no argument of more than 128 KiB
TIMEOUT_MS = 300_000
MAX_TIMEOUT_MS = 3_600_000
NETWORK = "x-network"  # on a tool that may use the network, where those it works for may. RS-54


def _takes(properties: Mapping[str, Any], *required: str) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _path(says: str) -> Mapping[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": MAX_PATH_LENGTH, "description": says}


def _text(says: str, **more: Any) -> Mapping[str, Any]:
    return {"type": "string", "description": says, **more}


def _number(says: str, least: int, most: int) -> Mapping[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most, "description": says}


def definitions(prefix: str, *, has_shell: bool, network: bool) -> list[ToolDefinition]:
    """Named `{prefix}__Bash` and so on; with an empty prefix, as a node names its own, `Bash`."""
    bash = _takes(
        {
            "command": _text(
                "The command line.", minLength=1, maxLength=MAX_COMMAND_LENGTH, **{X_SHELL: True}
            ),
            "workdir": _path("The folder it starts in."),
            "timeout": {
                **_number("Milliseconds after which it is stopped.", 1, MAX_TIMEOUT_MS),
                "default": TIMEOUT_MS,
            },
        },
        "command",
    )
    named = [
        ToolDefinition(
            "Bash",
            "Runs a command with bash and gives its output, standard error included, and its exit code.",
            {**bash, NETWORK: True} if network else bash,
            destructive=True,
        ),
        ToolDefinition(
            "Read",
            "Reads a text file, or some lines of it.",
            _takes(
                {
                    "path": _path("The file."),
                    "offset": _number("The first line; 1 if left out.", 1, 1_000_000_000),
                    "limit": _number(f"How many lines; {files.MAX_LINES} if left out.", 1, files.MAX_LINES),
                },
                "path",
            ),
            read_only=True,
        ),
        ToolDefinition(
            "Write",
            "Writes a text file, over the one that is there, and makes the folders on the way.",
            _takes({"path": _path("The file."), "content": _text("All of its text.")}, "path", "content"),
            destructive=True,
            idempotent=True,
        ),
        ToolDefinition(
            "Edit",
            "Replaces a text in a file by another. It has to be there exactly once, unless all are to be replaced.",
            _takes(
                {
                    "path": _path("The file."),
                    "old_string": _text("What stands there, to the letter.", minLength=1),
                    "new_string": _text("What is to stand there."),
                    "replace_all": {"type": "boolean", "description": "Replace it wherever it stands."},
                },
                "path",
                "old_string",
                "new_string",
            ),
            destructive=True,
        ),
        ToolDefinition(
            "Glob",
            "Finds files by their names: `*` and `?` within a folder, `**` through folders, `[…]` and `{a,b}` choose.",
            _takes(
                {
                    "pattern": _text("Such as `**/*.py`.", minLength=1, maxLength=search.MAX_PATTERN_LENGTH),
                    "path": _path("The folder to look in."),
                },
                "pattern",
            ),
            read_only=True,
        ),
        ToolDefinition(
            "Grep",
            "Finds lines of text files that an expression (RE2) matches.",
            _takes(
                {
                    "pattern": _text("The expression.", minLength=1, maxLength=search.MAX_PATTERN_LENGTH),
                    "path": _path("The folder, or the file, to look in."),
                    "glob": _text(
                        "Only files with such names.", minLength=1, maxLength=search.MAX_PATTERN_LENGTH
                    ),
                    "ignore_case": {"type": "boolean"},
                    "limit": _number("How many lines; 100 if left out.", 1, search.MAX_FOUND),
                },
                "pattern",
            ),
            read_only=True,
        ),
    ]
    return [
        ToolDefinition(
            f"{prefix}__{one.name}" if prefix else one.name,
            one.description,
            one.schema,
            read_only=one.read_only,
            idempotent=one.idempotent,
            destructive=one.destructive,
        )
        for one in named
        if has_shell or one.name != "Bash"
    ]
