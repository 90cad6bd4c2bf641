"""The applier against two independent ones, over random patches: a naive one and `git apply`."""

from __future__ import annotations

import random
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from easel.core.document import patch as patch_module
from easel.errors import PatchRejected
from tests.core.document.patches import (
    NaiveRejection,
    RandomHunk,
    apply,
    apply_naively,
    mutate,
    random_hunks,
    random_text,
    render,
)
from tests.requirements import rule
from tests.support.length import examples

if TYPE_CHECKING:
    from pathlib import Path

CHANCE = random.Random()


@pytest.fixture(autouse=True)
def _mixed_line_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch_module._Application, "check_line_ends", lambda *_, **__: None)


def random_case() -> tuple[str, list[RandomHunk]]:
    text = random_text(CHANCE)
    hunks = random_hunks(text, CHANCE)
    return text, mutate(hunks, CHANCE) if CHANCE.random() < 0.5 else hunks


def apply_strictly(text: str, patch: str) -> str | None:
    try:
        return apply(text, patch).text
    except PatchRejected:
        return None


@rule("RS-17", "RS-18", "CT-25")
@pytest.mark.parametrize(
    "few_lines, line_length, max_block", [(0, 1.0, 100), (1, 5.0, 7), (2, 200.0, 30), (16, 60.0, 65_536)]
)
def test_applier_agrees_with_a_naive_one(
    few_lines: int, line_length: float, max_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patch_module, "_FEW_LINES", few_lines)
    monkeypatch.setattr(patch_module, "_USUAL_LINE_LENGTH", line_length)
    monkeypatch.setattr(patch_module, "_MAX_BLOCK", max_block)
    outcomes = {True: 0, False: 0}
    for _ in range(examples(3_000)):
        text, hunks = random_case()
        patch = render(hunks, CHANCE)
        try:
            expected = apply_naively(text, hunks)
        except NaiveRejection:
            expected = None
        assert apply_strictly(text, patch) == expected, (text, patch)
        outcomes[expected is not None] += 1
    assert min(outcomes.values()) > sum(outcomes.values()) / 5, outcomes


@rule("RS-17", "CT-25")
def test_applier_agrees_with_git(tmp_path: Path) -> None:
    """`git apply` is strict if headers are right and a moved hunk ("offset") counts as a rejection."""
    git = shutil.which("git")
    assert git is not None, "git must be installed"
    document, patch_file = tmp_path / "doc", tmp_path / "patch"
    outcomes = {True: 0, False: 0}
    for _ in range(examples(300)):  # each starts a process
        text, hunks = random_case()
        if not text or has_fault_of_git(text, hunks):
            continue
        patch = render(hunks, CHANCE, with_right_counts=True)
        document.write_bytes(text.encode())
        patch_file.write_bytes(f"--- a/doc\n+++ b/doc\n{patch}".encode())
        command = [
            git,
            "apply",
            "--verbose",
            "--unidiff-zero",
            "--whitespace=nowarn",
            "--allow-empty",
            "patch",
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60)
        accepted = done.returncode == 0 and b"offset" not in done.stderr
        expected = document.read_bytes().decode() if accepted and document.exists() else None
        if accepted and not document.exists():
            expected = ""
        actual = apply_strictly(text, patch)
        assert actual == (None if expected == text else expected), (text, patch, done.stderr)
        outcomes[expected is not None] += 1
    assert min(outcomes.values()) > 5, outcomes


def has_fault_of_git(text: str, hunks: list[RandomHunk]) -> bool:
    """Return whether the patch hits a fault of git.

    Git accepts unsorted insertions, glues lines to one without newline, takes line 0 for line 1, moves the
    second of two insertions at the top, and accepts a hunk that changes nothing.
    """
    if [hunk.start for hunk in hunks].count(0) > 1:
        return True
    end = 0
    line_count = text.count("\n") + (not text.endswith("\n"))
    for hunk in hunks:
        old, new = hunk.sides()
        start = hunk.start - 1 if old else hunk.start
        if start < end:
            return True
        end = start + len(old)
        is_at_end = end == line_count
        inner = [*old[:-1], *new[:-1]] if is_at_end else [*old, *new]
        if any(not line.endswith("\n") for line in inner) or (is_at_end and not old and text[-1] != "\n"):
            return True
        if old == new or (old and hunk.start == 0):
            return True
    return False
