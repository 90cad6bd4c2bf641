"""Computing on documents: a patch against `git apply`, and queries against Python's `re`.

Nothing is stored: these are the pure functions of `core/document` on texts in memory. Samples of both sides
alternate. Of a query the best sample counts, since disturbances only add to computing.
"""

from __future__ import annotations

import random
import re
import subprocess
import time
from typing import TYPE_CHECKING

from bench.figures import Figure, at_least, at_most, median, within
from easel.core.document.diff import make_diff
from easel.core.document.document import revision_of
from easel.core.document.patch import apply_patch
from easel.core.document.search import MAX_REGEX_SECONDS, grep
from easel.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.setting import Setting

LINES, HUNKS = 10_000, 40
TEXT_BYTES = 1_000_000
QUERIES = ("canvas", "canvas lease", "Zebra crossing")  # often, rarely and never in the text
PATTERNS = (r"canvas\s+\w+", r"(lease|patch|draft) of", r"^- .*[0-9]{3}$", r"\bZebra\b")
HOSTILE = (
    r"(a+)+$b",
    r"(x+x+)+y",
    r"(.*)*(.*)*z",
    r"(a?){100}a{100}q",
    r"(a|e|ea|ae|aae)*(c|d)*[^a]{300}Q",
    r"(a|.){0,500}(b.{200})Q",
    r"(?i)(a[bc]?.{40}|d.{60}){3}Q",
    "|".join(f"{letter}.{{30}}Q" for letter in "abcdefghijklmnop"),
)
WORDS = [
    "a",
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "for",
    "with",
    "as",
    "on",
    "by",
    "it",
    "be",
    "are",
    "from",
    "at",
    "or",
    "an",
    "this",
    "which",
    "not",
    "run",
    "canvas",
    "document",
    "lease",
    "patch",
    "line",
    "text",
    "model",
    "user",
    "agent",
    "hunk",
    "draft",
    "version",
    "store",
    "event",
    "session",
    "revision",
    "number",
    "section",
    "list",
    "item",
    "heading",
    "query",
    "match",
    "pattern",
    "server",
    "client",
    "request",
    "answer",
    "token",
    "budget",
    "prompt",
    "message",
    "hidden",
    "update",
    "author",
]


async def documents(setting: Setting) -> list[Figure]:
    """A 40-hunk patch against `git apply`; text and regex queries over 1 MB against `re`."""
    return _measure(setting)


def _measure(setting: Setting) -> list[Figure]:
    chance = random.Random(12)
    rounds = setting.size(30, 3)
    return [*_patches(setting.folder, chance, rounds), *_queries(chance, rounds)]


def _patches(folder: Path, chance: random.Random, rounds: int) -> list[Figure]:
    lines = [_sentence(chance) for _ in range(LINES)]
    edited = [*lines]
    for number in range(HUNKS):
        edited[number * (LINES // HUNKS) + 100] = _sentence(chance)
    old, new = ("".join(f"{line}\n" for line in one) for one in (lines, edited))
    patch = make_diff(old, new)
    assert patch.count("@@ -") == HUNKS
    revision_id = revision_of(old)
    document, patch_file = folder / "document.md", folder / "change.patch"
    patch_file.write_text(f"--- a/document.md\n+++ b/document.md\n{patch}")
    ours: list[float] = []
    git: list[float] = []
    diffs: list[float] = []
    for _ in range(rounds):
        document.write_text(old)
        git.append(_milliseconds(lambda: _git_apply(folder, patch_file)))
        assert document.read_text() == new
        ours += [_milliseconds(lambda: apply_patch(old, patch, revision_id=revision_id)) for _ in range(5)]
        diffs.append(_milliseconds(lambda: make_diff(old, new)))
    assert apply_patch(old, patch, revision_id=revision_id).text == new
    name = f"{HUNKS}-hunk patch on {LINES:,} lines"
    return [
        within(name, median(ours), 2, unit="ms", what="promised"),
        at_least(name, 1000 / median(ours), 1000 / median(git), unit="/s", bar=10, against="git apply"),
        within(f"diff of these {LINES:,} lines", median(diffs), 50, unit="ms", what="promised"),
    ]


def _git_apply(folder: Path, patch: Path) -> None:
    subprocess.run(["git", "apply", "--whitespace=nowarn", patch.name], cwd=folder, check=True, timeout=60)


def _queries(chance: random.Random, rounds: int) -> list[Figure]:
    text = _markdown(chance)
    by_text = _compare(
        [(lambda q=query: grep(text, q), _plain_search(text, re.escape(query))) for query in QUERIES], rounds
    )
    by_regex = _compare(
        [(lambda p=pattern: grep(text, p, regex=True), _plain_search(text, pattern)) for pattern in PATTERNS],
        rounds,
    )
    hostile = max(
        _milliseconds(lambda p=pattern: _search_with_deadline(text, p))
        for pattern in HOSTILE
        for _ in range(2)
    )
    return [
        at_most("text query over 1 MB, sections named", *by_text, unit="ms", bar=2, against="re"),
        at_most("regex query over 1 MB", *by_regex, unit="ms", bar=30, against="re"),
        within("slowest hostile regex over 1 MB", hostile, 250, unit="ms", what="promised"),
    ]


def _compare(
    pairs: list[tuple[Callable[[], object], Callable[[], object]]], rounds: int
) -> tuple[float, float]:
    """Return the milliseconds of all queries of ours and of the floor."""
    ours: list[float] = []
    floor: list[float] = []
    for _ in range(rounds):
        ours.append(sum(_milliseconds(query) for query, _ in pairs))
        floor.append(sum(_milliseconds(query) for _, query in pairs))
    return min(ours), min(floor)


def _plain_search(text: str, pattern: str, max_matches: int = 100) -> Callable[[], list[tuple[int, str]]]:
    """Return a search with `re` that gives numbers and texts of the matched lines, as ours does."""
    regex = re.compile(pattern, re.MULTILINE)

    def search() -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        number, counted, end = 1, 0, -1
        for match in regex.finditer(text):
            if match.start() <= end:
                continue  # on the line of the match before
            if len(found) == max_matches:
                break
            start = text.rfind("\n", 0, match.start()) + 1
            end = text.find("\n", match.start())
            number, counted = number + text.count("\n", counted, start), start
            found.append((number, text[start:end]))
        return found

    return search


def _search_with_deadline(text: str, pattern: str) -> None:
    deadline = time.perf_counter() + MAX_REGEX_SECONDS
    try:
        grep(text, pattern, regex=True, is_over=lambda: time.perf_counter() > deadline)
    except BadInput:
        return


def _markdown(chance: random.Random) -> str:
    """Return 1 MB of Markdown: paragraphs, list items, a heading every 60 lines, a code block every 200."""
    lines: list[str] = []
    size = 0
    while size < TEXT_BYTES:
        at = len(lines)
        match at % 200:
            case 0 | 60 | 120:
                line = f"## {_sentence(chance)[:40]} {at}"
            case 150 | 160:
                line = "```"
            case _:
                line = f"- {_sentence(chance)} {at}" if at % 4 == 0 else _sentence(chance)
        lines.append(line)
        size += len(line) + 1
    return "".join(f"{line}\n" for line in lines)


def _sentence(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randrange(6, 16))).capitalize() + "."


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000
