"""The script of a vendor server: what it answers to one request after the other. Knows no vendor."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `args` as text is sent as it is, also if it is no JSON.

    In a script, "$last.path" and "$2.path" in `args` stand for values of tool results in the request.
    """

    tool: str
    args: Any = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. With `status`, an error instead; with `cut_after`, the connection ends in the middle."""

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    is_redacted: bool = False  # Anthropic: a thinking block that only the vendor can read
    has_ids: bool = True  # Gemini: whether calls have ids
    status: int = 200
    message: str = "the server is tired"
    retry_after: str | None = None
    cut_after: int | None = None
    fails_after: int | None = None  # an overload, as an event of the stream
    hangs_after: int | None = None  # sends so many events, then nothing until the client disconnects
    has_end: bool = True  # whether the stream says that the answer is complete
    is_cut_off: bool = False  # the answer reached the limit of tokens
    is_filtered: bool = False  # the vendor's content filter withheld the answer


def load_answers(path: Path) -> list[Answer]:
    """Read a script: a JSON list of answers, with `calls` as `{"tool": NAME, "args": {…}}`."""
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return [Answer(**{**row, "calls": tuple(Call(**call) for call in row.get("calls", []))}) for row in rows]


def resolve(args: Any, results: Sequence[Any]) -> Any:
    """Return arguments with each "$last.path" or "$2.path" replaced by that value of a tool result."""
    if isinstance(args, dict):
        return {key: resolve(value, results) for key, value in cast("dict[str, Any]", args).items()}
    if isinstance(args, list):
        return [resolve(value, results) for value in cast("list[Any]", args)]
    if not isinstance(args, str) or not args.startswith("$"):
        return args
    which, *path = args[1:].split(".")
    if which != "last" and not which.isdigit():
        return args
    value = results[-1 if which == "last" else int(which) - 1]
    for key in path:
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value
