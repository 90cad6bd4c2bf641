"""The text of a result as a value (`parse` of an action), so that lists of a page can show its rows.

Owns which text is parsed, and the formats. A text that was cut off or has another format fails the action.
"""

import csv
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from easel.core.canvas.actions import Action, Parse, PatchState
from easel.core.stream.json_text import refuse_duplicate_keys
from easel.core.validation import refuse
from easel.errors import BadInput

TEXTS = ("output", "body")  # members of a result that have the text: of Bash and of Fetch
MAX_ROWS_LENGTH = 10_000_000  # characters of the rows of CSV, each with the names of its columns
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def parse_result(action: Action, result: Any) -> Any:
    """Return the result with its text parsed. Raises `BadInput` if there is none, or only its beginning."""
    target = None if isinstance(action, PatchState) else action.save_target
    if target is None or target.parse is None:
        return result
    parse, at = _PARSERS[target.parse], f"actions.{action.action_id}.parse"
    if isinstance(result, str):
        return parse(result, f"{at}: result")
    members = cast("Mapping[str, Any]", result if isinstance(result, Mapping) else {})
    for name in TEXTS:
        if isinstance(text := members.get(name), str):
            if members.get("truncated") or members.get("stopped"):
                refuse(at, f"result.{name} was cut off at a limit of the tool.")
            return {**members, name: parse(text, f"{at}: result.{name}")}
    raise BadInput(problem=f"{at}: the result is no text, and has no text `output` or `body`.")


def parse_json(text: str, at: str) -> Any:
    """Return the value of JSON. Raises `BadInput`, also for an object with the same key twice."""
    try:
        value = msgspec.json.decode(text)
        refuse_duplicate_keys(text)
    except (BadInput, msgspec.DecodeError, RecursionError) as problem:
        refuse(at, f"is not JSON: {problem}")
    return value


def parse_lines(text: str, _: str) -> list[str]:
    """Return the lines without their ends. The end of the last line does not start another."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def parse_csv(text: str, at: str) -> list[dict[str, str]]:
    """Return an object for each row, by the names in the first row. RFC 4180. Empty lines do not count."""
    try:
        # Only a line feed ends a line; splitlines() would split at more characters.
        rows = [row for row in csv.reader(_LINE.findall(text.lstrip("\ufeff")), strict=True) if row]
    except csv.Error as problem:
        refuse(at, f"is not CSV: {problem}.")
    names = rows.pop(0) if rows else []
    if not names or not all(names) or len({*names}) < len(names):
        refuse(at, "is not CSV: its first row must name each column, with different names.")
    for number, row in enumerate(rows, 2):
        if len(row) != len(names):
            refuse(at, f"is not CSV: row {number} has {len(row)} values for {len(names)} columns.")
    if len(text) + len(rows) * sum(map(len, names)) > MAX_ROWS_LENGTH:
        refuse(at, f"gives rows of more than {MAX_ROWS_LENGTH} characters.")
    return [dict(zip(names, row, strict=True)) for row in rows]


_PARSERS: Mapping[Parse, Callable[[str, str], Any]] = {
    Parse.JSON: parse_json,
    Parse.LINES: parse_lines,
    Parse.CSV: parse_csv,
}
