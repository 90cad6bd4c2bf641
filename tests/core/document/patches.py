"""Helpers of the tests of documents: applying a patch, the fixtures, and random patches."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.document.document import revision_of
from easel.core.document.patch import Applied, apply_patch
from easel.errors import PatchRejected

if TYPE_CHECKING:
    import random

FIXTURES = Path(__file__).resolve().parents[4] / "shared" / "fixtures"
HEADER = re.compile(r"@@ -([0-9]+)(?:,([0-9]+))? \+([0-9]+)(?:,([0-9]+))? @@")


def apply(text: str, patch: str, *, with_base: bool = True, **limits: Any) -> Applied:
    """Apply a patch, with the `base_revision_id` of the text if `with_base`."""
    revision_id = revision_of(text)
    base = revision_id if with_base else None
    return apply_patch(text, patch, revision_id=revision_id, base_revision_id=base, **limits)


def reject(text: str, patch: str, *, with_base: bool = True, **limits: Any) -> dict[str, Any]:
    """Return the details of the rejection that this patch must get."""
    with pytest.raises(PatchRejected) as rejected:
        apply(text, patch, with_base=with_base, **limits)
    details: dict[str, Any] = rejected.value.details
    assert details["revision_id"] == revision_of(text)
    assert details["revision_id"] in rejected.value.message
    return details


def read_fixture(name: str) -> list[dict[str, Any]]:
    """Return the records of a fixture file, none where the fixtures are not present."""
    path = FIXTURES / name
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


class NaiveRejection(Exception):
    """The naive applier rejects the patch."""


@dataclass(frozen=True, slots=True)
class RandomHunk:
    """A hunk of a random patch: the line of its address and its body."""

    start: int
    body: list[str]

    def sides(self) -> tuple[list[str], list[str]]:
        """Return its old and its new lines, with their newlines."""
        sides: dict[str, list[str]] = {"-": [], "+": []}
        sign = ""
        for line in self.body:
            if line.startswith("\\ "):
                for side in "-+" if sign == " " else sign:
                    sides[side][-1] = sides[side][-1][:-1]
                continue
            sign = line[:1] or " "
            for side in "-+" if sign == " " else sign:
                sides[side].append(line[1:] + "\n")
        return sides["-"], sides["+"]


def apply_naively(text: str, hunks: list[RandomHunk]) -> str:
    """Apply hunks as the rules say it, on whole lines with their newlines: the second implementation."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    result: list[str] = []
    at = 0
    for hunk in hunks:
        old, new = hunk.sides()
        index = hunk.start - 1 if old else hunk.start
        if old == new or not at <= index <= len(lines) or lines[index : index + len(old)] != old:
            raise NaiveRejection
        result += lines[at:index] + new
        at = index + len(old)
    result += lines[at:]
    if any(not line.endswith("\n") for line in result[:-1]) or "".join(result) == text:
        raise NaiveRejection
    return "".join(result)


def render(hunks: list[RandomHunk], chance: random.Random, *, with_right_counts: bool = False) -> str:
    """Return the patch, with wrong counts and new starts unless `with_right_counts`. RS-18

    Those of a last hunk that ends with an old line are right, since it would count as cut off. RS-78
    """
    parts: list[str] = []
    shift = 0
    for hunk in hunks:
        old, new = hunk.sides()
        start = hunk.start + shift + (not old)  # as git wants it, also for a hunk that only deletes
        counts = len(old), start, len(new)
        may_be_wrong = not (with_right_counts or (hunk is hunks[-1] and hunk.body[-1].startswith("-")))
        if may_be_wrong and chance.random() < 0.5:
            counts = tuple(chance.randrange(1, 9) for _ in counts)
        parts.append(f"@@ -{hunk.start},{counts[0]} +{counts[1]},{counts[2]} @@\n")
        parts += [f"{line}\n" for line in hunk.body]
        shift += len(new) - len(old)
    return "".join(parts)


WORDS = (
    "",
    "a",
    "b",
    "a",
    "- item",
    "+ item",
    "-- ",
    "---",
    "+++",
    "@@ -1 +1 @@",
    "```",
    " x",
    "\tx",
    "é\u2028",
    "\\ x",
)


def random_text(chance: random.Random, max_lines: int = 12) -> str:
    lines = [chance.choice(WORDS) for _ in range(chance.randrange(max_lines))]
    return "".join(f"{line}\n" for line in lines)[: None if chance.random() < 0.7 else -1]


def random_hunks(text: str, chance: random.Random) -> list[RandomHunk]:
    """Return hunks that change the text, ascending and without overlap."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    hunks: list[RandomHunk] = []
    at = 0
    for _ in range(chance.randrange(1, 4)):
        first = chance.randrange(at, len(lines) + 1)
        last = chance.randrange(first, min(first + 4, len(lines)) + 1)
        signs = [chance.choice(" -") for _ in lines[first:last]]
        body: list[str] = []
        for sign, line in zip(signs, lines[first:last], strict=True):
            if chance.random() < 0.3:
                body.append(f"+{chance.choice(WORDS)}")
            body.append(sign + line.removesuffix("\n"))
            if not line.endswith("\n"):
                body.append("\\ No newline at end of file")
        if chance.random() < 0.5 or not body:
            body.append(f"+{chance.choice(WORDS)}")
            if chance.random() < 0.1:
                body.append("\\ No newline at end of file")
        body = ["" if line == " " and chance.random() < 0.3 else line for line in body]
        hunks.append(RandomHunk(first + (last > first), body))
        at = last
        if at == len(lines):
            break
    return hunks


def mutate(hunks: list[RandomHunk], chance: random.Random) -> list[RandomHunk]:
    """Return the hunks with a shifted start, a changed, dropped or doubled line, or in another order."""
    hunks = list(hunks)
    at = chance.randrange(len(hunks))
    start, body = hunks[at].start, list(hunks[at].body)
    line = chance.randrange(len(body))
    match chance.randrange(5):
        case 0:
            start = max(0, start + chance.choice((-2, -1, 1, 2)))
        case 1 if body[line][:1] in ("+", "-", " "):
            body[line] += chance.choice((" ", "\r", "x"))
        case 2 if len(body) > 1 and not body[line].startswith("\\ "):
            del body[line]
            if body[line:] and body[line].startswith("\\ "):
                del body[line]
        case 3 if not body[line].startswith("\\ "):
            body.insert(line, body[line])
        case _:
            hunks.reverse()
            return hunks
    if not body:
        return hunks
    hunks[at] = RandomHunk(start, body)
    return hunks
