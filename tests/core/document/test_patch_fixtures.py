"""The applier on real Markdown edits and on hunks written by a model; see fixtures/README.

The fixtures are data from outside of the project: where they are not present, small ones of our own are used.
"""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from easel.core.document.rejection import MAX_PLACES
from easel.errors import PatchRejected
from tests.core.document.patches import (
    HEADER,
    NaiveRejection,
    RandomHunk,
    apply,
    apply_naively,
    read_fixture,
    reject,
)
from tests.requirements import case, rule
from tests.support.length import examples

CHANCE = random.Random()
MARKER = "\\ No newline at end of file"
WIDTHS = ("patch_u0", "patch_u1", "patch_u3")
OWN_EDIT: dict[str, Any] = {
    "id": "own",
    "old": "# A\n\n- one\n- two\n\n```sh\nmake\n```\nend",
    "new": "# B\n\n- one\n- 2\n- three\n\n```sh\nmake test\n```\nend\n",
    "patch_u0": "@@ -1 +1 @@\n-# A\n+# B\n@@ -4 +4,2 @@\n-- two\n+- 2\n+- three\n@@ -7 +8 @@\n"
    "-make\n+make test\n@@ -9 +10 @@\n-end\n\\ No newline at end of file\n+end\n",
    "patch_u1": "@@ -1,5 +1,6 @@\n-# A\n+# B\n \n - one\n-- two\n+- 2\n+- three\n \n@@ -6,4 +7,4 @@\n"
    " ```sh\n-make\n+make test\n ```\n-end\n\\ No newline at end of file\n+end\n",
    "patch_u3": "@@ -1,9 +1,10 @@\n-# A\n+# B\n \n - one\n-- two\n+- 2\n+- three\n \n ```sh\n-make\n"
    "+make test\n ```\n-end\n\\ No newline at end of file\n+end\n",
}
OWN_CASE: dict[str, Any] = {"case": "own", "document": "a\nb\nc\nb\n"}
OWN_HUNK: dict[str, Any] = {"case": "own", "new_file": False, "no_change": False, "found_at": [2, 4]}
OWN_HUNKS = [
    {**OWN_HUNK, "header": "@@ -2,7 +2,7 @@", "body": ["-b", "+d"], "claimed": {"old_start": 2}},
    {**OWN_HUNK, "header": "@@ -3,1 +3,1 @@", "body": ["-b", "+d"], "claimed": {"old_start": 3}},
]
EDITS = read_fixture("markdown-edits.jsonl") or [OWN_EDIT]


def hunks_of(patch: str) -> list[RandomHunk]:
    """Return the hunks of a right patch by its counts, which the applier does not use."""
    hunks: list[RandomHunk] = []
    lines = patch.split("\n")
    at = next(index for index, line in enumerate(lines) if line.startswith("@@"))
    while at < len(lines) and (found := HEADER.match(lines[at])):
        old, new = (int(found[index] or 1) for index in (2, 4))
        first = at = at + 1
        while old or new or lines[at].startswith("\\ "):
            old -= lines[at][:1] in (" ", "-", "")
            new -= lines[at][:1] in (" ", "+", "")
            at += 1
        hunks.append(RandomHunk(int(found[1]), lines[first:at]))
    return hunks


def render_plainly(hunks: list[RandomHunk]) -> str:
    """Return the patch with counts that are wrong, but do not make it one that was cut off. RS-18, RS-78"""
    ends_with_old = hunks[-1].body[-1].startswith("-")
    last = "1 +1,0" if ends_with_old else "99 +1,77"
    counts = ["99 +1,77"] * (len(hunks) - 1) + [last]
    return "".join(
        f"@@ -{hunk.start},{count} @@\n" + "\n".join(hunk.body) + "\n"
        for hunk, count in zip(hunks, counts, strict=True)
    )


def change_context(hunks: list[RandomHunk], hunk: int, line: int) -> list[RandomHunk] | None:
    body = list(hunks[hunk].body)
    if body[line][:1] not in (" ", "-", ""):
        return None
    body[line] = f"{body[line] or ' '}~"
    return [*hunks[:hunk], RandomHunk(hunks[hunk].start, body), *hunks[hunk + 1 :]]


def drop_line(hunks: list[RandomHunk], hunk: int, line: int) -> list[RandomHunk] | None:
    body = list(hunks[hunk].body)
    if body[line][:1] not in (" ", "-") or len(body) == 1 or body[line + 1 :][:1] == [MARKER]:
        return None
    del body[line]
    return [*hunks[:hunk], RandomHunk(hunks[hunk].start, body), *hunks[hunk + 1 :]]


def shift_start(hunks: list[RandomHunk], hunk: int, _: int) -> list[RandomHunk]:
    moved = RandomHunk(hunks[hunk].start + 1, hunks[hunk].body)
    return [*hunks[:hunk], moved, *hunks[hunk + 1 :]]


def swap_hunks(hunks: list[RandomHunk], hunk: int, _: int) -> list[RandomHunk] | None:
    if hunk == 0:
        return None
    return [*hunks[: hunk - 1], hunks[hunk], hunks[hunk - 1], *hunks[hunk + 1 :]]


@rule("CT-24", "CT-25", "RS-18", "RS-19")
@pytest.mark.parametrize("width", WIDTHS)
def test_every_edit_applies_byte_for_byte(width: str) -> None:
    for edit in EDITS:
        patch = edit[width]
        for form in (
            patch,
            patch.removesuffix("\n"),
            render_plainly(hunks_of(patch)),
            f"````diff\n{patch}````",
        ):
            applied = apply(edit["old"], form, with_base=width == "patch_u0")
            assert applied.text == edit["new"], edit["id"]
            assert len(applied.old_ranges) == applied.applied_hunks == len(hunks_of(patch))


@rule("CT-06", "CT-25", "RS-17")
@case("C6")
@pytest.mark.parametrize("mutate", [change_context, drop_line, shift_start, swap_hunks])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_mutation_is_rejected(width: str, mutate: Any) -> None:
    """A mutated patch that is still exact by the rules, such as a shift between equal lines, is applied.

    A naive applier decides which ones these are; a dropped outer context line is not an error either.
    """
    rejected_count = 0
    for edit in EDITS[: examples(len(EDITS))]:
        hunks = hunks_of(edit[width])
        hunk = CHANCE.randrange(len(hunks))
        mutated = mutate(hunks, hunk, CHANCE.randrange(len(hunks[hunk].body)))
        if mutated is None:
            continue
        try:
            expected = apply_naively(edit["old"], mutated)
        except NaiveRejection:
            details = reject(edit["old"], render_plainly(mutated))
            assert details["reason"] in {"mismatch", "order", "past_end", "newline", "no_change"}, edit["id"]
            rejected_count += 1
        else:
            assert mutate is not change_context
            assert mutate is not swap_hunks
            assert apply(edit["old"], render_plainly(mutated)).text == expected
    if len(EDITS) > 1 and not (mutate is drop_line and width == "patch_u0"):
        assert rejected_count > 10


@rule("RS-78")
@pytest.mark.parametrize("width", WIDTHS)
def test_patch_that_was_cut_off_is_rejected_or_applied_with_the_advice_to_read(width: str) -> None:
    """Cut within a line and at the end of a line. Only a patch that looks complete is applied in silence."""
    outcomes = dict.fromkeys(("cut_off", "advice", "complete", "other"), 0)
    for edit in EDITS[: examples(len(EDITS))]:
        for part in (1 / 3, 1 / 2, 2 / 3, 9 / 10):
            within = edit[width][: int(len(edit[width]) * part)]
            for patch in (within, within[: within.rfind("\n") + 1]):
                must_be_refused, looks_complete = judge_cut(patch)
                try:
                    applied = apply(edit["old"], patch)
                except PatchRejected as problem:
                    outcome = "cut_off" if problem.details["reason"] == "cut_off" else "other"
                    assert (outcome == "cut_off") == must_be_refused, edit["id"]
                else:
                    assert not must_be_refused, edit["id"]
                    assert (applied.advice is None) == looks_complete, edit["id"]
                    outcome = "complete" if looks_complete else "advice"
                outcomes[outcome] += 1
    if len(EDITS) > 1:
        assert min(outcomes.values()) > 10, outcomes


def judge_cut(patch: str) -> tuple[bool, bool]:
    """Return whether RS-78 refuses a patch that was cut, and whether nothing shows that it was."""
    *_, header, body = ["", "", *re.split(r"^(@@ .*\n?)", patch, flags=re.MULTILINE)]
    found, lines = HEADER.match(header), body.split("\n")[: None if body[-1:] != "\n" else -1]
    if found is None or not header.endswith("\n"):
        return False, False
    old, new = (sum(line[:1] in signs for line in lines) for signs in ((" ", "-", ""), (" ", "+", "")))
    is_short = old < int(found[2] or 1) and new < int(found[4] or 1)
    return is_short and lines[-1].startswith("-"), not is_short and patch.endswith("\n")


@rule("RS-17", "RS-18", "RS-22")
def test_hunks_of_a_model_are_accepted_where_their_text_is() -> None:
    cases = read_fixture("llm-hunks/gpt-engineer-cases.jsonl") or [OWN_CASE]
    documents = {one["case"]: one["document"] for one in cases}
    accepted_count = 0
    for hunk in read_fixture("llm-hunks/gpt-engineer-hunks.jsonl") or OWN_HUNKS:
        if hunk["new_file"]:
            continue
        text = documents[hunk["case"]]
        patch = "\n".join([hunk["header"], *hunk["body"], ""])
        if hunk["claimed"]["old_start"] in hunk["found_at"] and not hunk["no_change"]:
            apply(text, patch, with_base=False)
            accepted_count += 1
            continue
        details = reject(text, patch, with_base=False)
        assert details["hunk"] == 1
        if not hunk["no_change"]:
            assert isinstance(details["line"], int)
            near = details.get("found_at", [])
            assert near == hunk["found_at"] or (len(near) == MAX_PLACES and set(near) < set(hunk["found_at"]))
            assert all(f"{line}" in details["problem"] for line in near)
    assert accepted_count == (1 if cases == [OWN_CASE] else 31)
