"""Parsing the text of a result (`parse` of an action), so that lists of a page can show its rows.

Owns which text of a result is parsed, and the three formats. Text that was cut off, or has another format,
fails the action: nothing of it is saved.
"""

import csv
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from easel.core.canvas.actions import Action, Parse, PatchState
from easel.core.stream.json_text import refuse_duplicate_keys
from easel.errors import BadInput

TEXTS = ("output", "body")  # members of a result that have the text: of Bash and of Fetch
MAX_ROWS_LENGTH = 10_000_000  # characters of all rows of CSV, each with the names of its columns
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def parse_result(action: Action, result: Any) -> Any:
    """Return the result with its text parsed. Raises `BadInput` if it has none, or only its beginning."""
    target = None if isinstance(action, PatchState) else action.save_target
    if target is None or target.parse is None:
        return result
    parse, at = _PARSERS[target.parse], f"actions.{action.action_id}.parse"
    if isinstance(result, str):
        return parse(result, f"{at}: the result")
    members = cast("Mapping[str, Any]", result) if isinstance(result, Mapping) else {}
    name = next((name for name in TEXTS if isinstance(members.get(name), str)), None)
    if name is None:
        raise BadInput(problem=f"{at}: the result is no text and has no text `output` or `body` to parse.")
    if members.get("truncated") or members.get("stopped"):
        raise BadInput(problem=f"{at}: result.{name} was cut off at a limit of the tool, so it is not saved.")
    return {**members, name: parse(members[name], f"{at}: result.{name}")}


def parse_json(text: str, at: str) -> Any:
    """Return the value of a JSON text. Raises `BadInput`, also for an object with the same key twice."""
    try:
        value = msgspec.json.decode(text)
        refuse_duplicate_keys(text)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise BadInput(problem=f"{at} is not JSON: {problem}.") from None
    except BadInput as problem:
        raise BadInput(problem=f"{at}: {problem.message}") from None
    return value


def parse_lines(text: str, _: str) -> list[str]:
    """Return the lines without their ends. The end of the last line starts no further one."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def parse_csv(text: str, at: str) -> list[dict[str, str]]:
    """Return an object for each row, with the names of the first row. RFC 4180. Empty lines do not count."""
    try:
        # Only a line feed ends a line: splitlines() would also split at characters inside a value.
        header, *rows = [row for row in csv.reader(_LINE.findall(text.lstrip("\ufeff")), strict=True) if row]
    except (csv.Error, ValueError) as problem:
        reason = problem if isinstance(problem, csv.Error) else "it has no row with the names of its columns"
        raise BadInput(problem=f"{at} is not CSV: {reason}.") from None
    if not all(header) or len(set(header)) < len(header):
        raise BadInput(problem=f"{at} is not CSV: two columns have the same name, or one has none.")
    if wrong := next((number for number, row in enumerate(rows, 2) if len(row) != len(header)), None):
        found = len(rows[wrong - 2])
        raise BadInput(problem=f"{at} is not CSV: row {wrong} has {found} values for {len(header)} columns.")
    if sum(map(len, header)) * len(rows) + len(text) > MAX_ROWS_LENGTH:
        raise BadInput(problem=f"{at}: its rows would have more than {MAX_ROWS_LENGTH} characters.")
    return [dict(zip(header, row, strict=True)) for row in rows]


_PARSERS: Mapping[Parse, Callable[[str, str], Any]] = {
    Parse.JSON: parse_json,
    Parse.LINES: parse_lines,
    Parse.CSV: parse_csv,
}
