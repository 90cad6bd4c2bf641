"""The strict applier: what it accepts, byte for byte, and what it rejects."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest

from easel.core.document import hunks as hunks_module
from easel.core.document import patch as patch_module
from easel.core.document.hunks import MAX_HUNKS
from easel.core.document.patch import MAX_PATCH_BYTES, apply_patch
from easel.errors import PatchRejected
from tests.core.document.patches import apply, reject
from tests.requirements import case, rule

TEXT = "# Plan\n\n- one\n- two\n- three\n\nThe end.\n"


@rule("CT-24", "RS-17")
@pytest.mark.parametrize(
    "patch, expected",
    [
        ("@@ -4 +4 @@\n-- two\n+- 2\n", TEXT.replace("- two", "- 2")),
        ("@@ -3,3 +3,2 @@\n - one\n-- two\n - three\n", TEXT.replace("- two\n", "")),
        ("@@ -7,1 +7,2 @@\n The end.\n+Bye.\n", TEXT + "Bye.\n"),
        ("@@ -1,2 +1,1 @@\n-# Plan\n-\n+# Aim\n", TEXT.replace("# Plan\n\n", "# Aim\n")),
        (
            "@@ -1 +1 @@\n-# Plan\n+# Aim\n@@ -7 +7 @@\n-The end.\n+The end\n",
            TEXT.replace("Plan", "Aim").replace("end.", "end"),
        ),
    ],
)
def test_patch_is_applied(patch: str, expected: str) -> None:
    applied = apply(TEXT, patch, with_base=False)
    assert applied.text == expected
    assert applied.applied_hunks == patch.count("@@ -")


@rule("RS-19")
@pytest.mark.parametrize(
    "patch",
    [
        "@@ -4,1 +4,1 @@\n-- two\n+- 2",  # no final newline
        "--- a/plan.md\n+++ b/plan.md\n@@ -4 +4 @@\n-- two\n+- 2\n",
        "diff --git a/p b/p\nindex 1..2 100644\n--- a/p\n+++ b/p\n@@ -4 +4 @@ # Plan\n-- two\n+- 2\n",
        "--- /dev/null\n+++ plan.md\n@@ -4 +4 @@\n-- two\n+- 2\n",
        "```diff\n@@ -4 +4 @@\n-- two\n+- 2\n```\n",
        "\n~~~~\n@@ -4 +4 @@\n-- two\n+- 2\n~~~~\n\n",
        "@@ -4 +4 @@\r\n-- two\r\n+- 2\r\n",  # the document has no CRLF, so these are the argument's
        "@@ -1,5 +1,5 @@\n # Plan\n\n - one\n-- two\n+- 2\n - three\n",  # an empty line is blank context
        "@@-4,1 +4,1@@\n-- two\n+- 2\n",
    ],
)
def test_lexical_noise_is_accepted(patch: str) -> None:
    assert apply(TEXT, patch, with_base=False).text == TEXT.replace("- two", "- 2")


@rule("RS-18")
@case("C6")
@pytest.mark.parametrize("counts", ["-4,3 +4,3", "-4,7 +9,7", "-4,0 +1,0", "-4,9999999 +4", "-4 +4,2"])
def test_counts_are_derived_from_the_body(counts: str) -> None:
    applied = apply(TEXT, f"@@ {counts} @@\n-- two\n+- 2\n+- 2b\n", with_base=False)
    assert applied.text == TEXT.replace("- two", "- 2\n- 2b")
    expected = [] if counts == "-4 +4,2" else ["Hunk 1: the header was read as `@@ -4 +4,2 @@`."]
    assert applied.corrections == expected


@rule("RS-78")
@pytest.mark.parametrize(
    "patch, line, places, word",
    [
        ("@@ -3,3 +3,4 @@\n - one\n-- two\n", 5, None, "`@@ -3,2 +3 @@`"),
        ("@@ -3,3 +3,3 @@\n - one\n-- tw", 4, None, "Line 4 of the document differs"),
        ("@@ -1 +1 @@\n-# Plan\n+# Aim\n+x\n@@ -5,2 +6,2 @@\n-- two\n", 5, [4], "`@@ -5 +5,0 @@`"),
    ],
)
def test_patch_that_was_cut_off_is_rejected(patch: str, line: int, places: Any, word: str) -> None:
    details = reject(TEXT, patch, with_base=False)
    assert (details["reason"], details["line"], details.get("found_at")) == ("cut_off", line, places)
    assert details["hunk"] == patch.count("@@ -")
    assert word in details["problem"]


@rule("RS-78")
@pytest.mark.parametrize(
    "patch, problem",
    [
        ("@@ -1 +1,2 @@\n-# Plan\n+# Aim\n+x\n@@ -4,3 +5,3 @@\n-- two\n+- 2\n", "fewer lines"),
        ("@@ -1 +1,2 @@\n-# Plan\n+# Aim\n+x\n@@ -4 +5 @@\n-- two\n+- 2", "no newline"),
        ("@@ -4 +4 @@\n-- two\n+- 2\n", None),
        ("```\n@@ -4 +4,2 @@\n-- two\n+- 2\n```", None),  # the hunk is complete: the fence follows it
        ("@@ -4,2 +4,2 @@\n-- two\n+- 2\n@@ -6,3 +6,0 @@\n-\n", None),
    ],
)
def test_patch_that_may_have_been_cut_off_is_applied_with_the_advice_to_read(
    patch: str, problem: Any
) -> None:
    advice = apply(TEXT, patch, with_base=False).advice
    if problem is None:
        assert advice is None
    else:
        assert advice is not None
        assert problem in advice
        assert "line 5 " in advice, "the last line of the hunk in the new text"


@rule("RS-21")
@pytest.mark.parametrize(
    "text, patch, expected",
    [
        ("a\nb\n", "@@ -1,0 +2 @@\n+x\n", "a\nx\nb\n"),
        ("a\nb\n", "@@ -0,0 +1 @@\n+x\n", "x\na\nb\n"),
        ("a\nb\n", "@@ -2,0 +3 @@\n+x\n\\ No newline at end of file\n", "a\nb\nx"),
        ("", "@@ -0,0 +1,2 @@\n+x\n+y\n", "x\ny\n"),
        ("", "@@ -0,0 +1 @@\n+x\n\\ No newline at end of file", "x"),
    ],
)
def test_insertion_goes_after_its_line(text: str, patch: str, expected: str) -> None:
    assert apply(text, patch).text == expected


@rule("RS-21")
def test_insertion_needs_base_revision_unless_the_document_is_empty() -> None:
    assert reject("a\n", "@@ -1,0 +2 @@\n+x\n", with_base=False)["reason"] == "needs_base_revision"
    assert apply("", "@@ -0,0 +1 @@\n+x\n", with_base=False).text == "x\n"


@rule("CT-27", "RS-48")
def test_other_base_revision_is_rejected_even_if_the_hunks_match() -> None:
    patch = "@@ -4 +4 @@\n-- two\n+- 2\n"
    with pytest.raises(PatchRejected) as rejected:
        apply_patch(TEXT, patch, revision_id="now", base_revision_id="before")
    assert (rejected.value.details["reason"], rejected.value.details["revision_id"]) == (
        "base_revision",
        "now",
    )


@rule("CT-05", "CT-06")
@case("C10")
@pytest.mark.parametrize(
    "text, patch, expected",
    [
        ("a\r\nb\r\n", "@@ -2 +2 @@\n-b\r\n+c\r\n", "a\r\nc\r\n"),
        ("", "@@ -0,0 +1,2 @@\r\n+a\r\n+b\r\n", "a\r\nb\r\n"),  # nothing says how its lines end
        ("a\r\nb\r\n", "@@ -2 +2 @@\r\n-b\r\n+c\r\n", "a\r\nc\r\n"),
        ("a\nb", "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n", "a\nc"),
        ("a\nb", "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+b\n", "a\nb\n"),
        ("a\nb\n", "@@ -2 +2 @@\n-b\n+b\n\\ No newline at end of file\n", "a\nb"),
        ("a\nb", "@@ -1,2 +1,2 @@\n-a\n+x\n b\n\\ No newline at end of file\n", "x\nb"),
        ("a\nb", "@@ -1,2 +1 @@\n a\n-b\n\\ No newline at end of file\n", "a\n"),
        ("a\u2028b\rc\x0bd\nx\n", "@@ -2 +2 @@\n-x\n+y\n", "a\u2028b\rc\x0bd\ny\n"),
        ("\ufeffa\nb\n", "@@ -1 +1 @@\n-\ufeffa\n+\ufeffx\n", "\ufeffx\nb\n"),
        ("e\u0301\n👨\u200d👩\n", "@@ -1 +1 @@\n-e\u0301\n+\u00e9\n", "\u00e9\n👨\u200d👩\n"),
        ("\ta  \nb\n", "@@ -1 +1 @@\n-\ta  \n+\ta\n", "\ta\nb\n"),
        ("a\n", "@@ -1 +0,0 @@\n-a\n", ""),
        ("x\r\ny\n", "@@ -2 +2,2 @@\n-y\n+z\r\n+y\n", "x\r\nz\r\ny\n"),  # mixed before, so mixed after
    ],
)  # fmt: skip
def test_every_byte_outside_of_the_change_is_kept(text: str, patch: str, expected: str) -> None:
    assert apply(text, patch).text == expected


@rule("CT-25", "RS-17", "RS-20")
@case("C6")
@pytest.mark.parametrize(
    "patch, reason",
    [
        ("", "no_hunks"),
        ("  \n\n", "no_hunks"),
        ("Replace two by 2.", "no_hunks"),
        ("```diff\n```", "no_hunks"),
        ("--- a\n+++ b\n", "no_hunks"),
        ("```diff\n@@ -4 +4 @@\n-- two\n+- 2\n", "not_unified_diff"),
        ("Here it is:\n@@ -4 +4 @@\n-- two\n+- 2\n", "not_unified_diff"),
        ("*** Begin Patch\n*** Update File: x\n@@\n-- two\n+- 2\n*** End Patch", "not_unified_diff"),
        ("@@ -4 +4 @@\n-- two\n+- 2\n*** End Patch\n", "not_unified_diff"),
        ("@@ ... @@\n-- two\n+- 2\n", "bad_header"),
        ("@@\n-- two\n+- 2\n", "bad_header"),
        ("@@ -4,99999999 +4 @@\n-- two\n+- 2\n", "bad_header"),
        ("@@ -0,1 +0,1 @@\n-# Plan\n+# Aim\n", "bad_header"),
        ("@@ -4 +4 @@\n", "no_change"),
        ("@@ -4 +4 @@\n - two\n", "no_change"),
        ("@@ -4 +4 @@\n-- two\n+- two\n", "no_change"),
        ("@@ -4 +4 @@\n-- two\n+- 2\n@@ -5 +5 @@\n - three\n", "no_change"),
        ("@@ -4 +4 @@\n-- two\n+- 2\ntwo\n", "bad_line"),
        ("@@ -4 +4 @@\n\\ No newline at end of file\n-- two\n+- 2\n", "bad_line"),
        ("@@ -2,0 +3 @@\n+x\n\n", "bad_line"),
        ("@@ -3 +3 @@\n-- two\n+- 2\n", "mismatch"),  # offset drift
        ("@@ -5 +5 @@\n-- two\n+- 2\n", "mismatch"),
        ("@@ -4 +4 @@\n-- Two\n+- 2\n", "mismatch"),
        ("@@ -4 +4 @@\n-- two \n+- 2\n", "mismatch"),
        ("@@ -3,3 +3,3 @@\n - one!\n-- two\n+- 2\n - three\n", "mismatch"),  # fuzz
        ("@@ -4 +4 @@\n-- two\n+- 2\n@@ -1 +1 @@\n-# Plan\n+# Aim\n", "order"),
        ("@@ -4,2 +4 @@\n-- two\n - three\n@@ -5 +4 @@\n-- three\n+- 3\n", "order"),
        ("@@ -4,2 +4 @@\n-- two\n - three\n@@ -4,0 +5 @@\n+x\n", "order"),
        ("@@ -7,2 +7 @@\n The end.\n-more\n", "past_end"),
        ("@@ -70 +70 @@\n-more\n+less\n", "past_end"),
        ("@@ -8,0 +9 @@\n+x\n", "past_end"),
        ("@@ -7 +7 @@\n-The end.\n\\ No newline at end of file\n+x\n", "newline"),
        ("@@ -1 +1 @@\n-# Plan\n+x\n\\ No newline at end of file\n", "newline"),
        ("@@ -7 +7,2 @@\n-The end.\n+x\n\\ No newline at end of file\n+y\n", "newline"),
        ("@@ -4 +4 @@\n-- two\n+- 2\r\n", "line_ends"),
        ("@@ -4 +4 @@\n-- two\r\n+- 2\r\n", "mismatch"),
        ("--- a/x\n+++ b/x\n@@ -4 +4 @@\n-- two\n+- 2\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "two_files"),
        (
            "--- a/x\n+++ b/x\n@@ -4,9 +4 @@\n-- two\n+- 2\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n",
            "two_files",
        ),
        ("@@ -4 +4 @@\n-- two\n+- 2\ndiff --git a/y b/y\n@@ -1 +1 @@\n-a\n+b\n", "two_files"),
        ("--- a/x\n+++ b/x\n--- a/y\n+++ b/y\n@@ -4 +4 @@\n-- two\n+- 2\n", "two_files"),
        ("--- ../../etc/passwd\n+++ ../../etc/passwd\n@@ -4 +4 @@\n-- two\n+- 2\n", "bad_path"),
        ("--- a/x\n+++ /etc/passwd\n@@ -4 +4 @@\n-- two\n+- 2\n", "bad_path"),
        ("--- a\\..\\x\n+++ b/x\n@@ -4 +4 @@\n-- two\n+- 2\n", "bad_path"),
        ("@@ -4 +4 @@\n-     4\t- two\n+- 2\n", "gutter"),
        ("@@ -4 +4 @@\n     4\t-- two\n     4\t+- 2\n", "gutter"),
        ("@@ -3,2 +3,2 @@\n     3\t- one\n-- two\n+- 2\n", "gutter"),
        ("100004\t-- two\n@@ -4 +4 @@\n-- two\n+- 2\n", "gutter"),
        ("@@ -4 +4 @@\n4 | -- two\n+- 2\n", "gutter"),
        ("@@ -4 +4 @@\n-- two\n+- \x00\n", "bad_characters"),
        ("@@ -4 +4 @@\n-- two\n+- \ud800\n", "bad_characters"),
    ],
)
def test_patch_is_rejected(patch: str, reason: str) -> None:
    assert reject(TEXT, patch)["reason"] == reason


@rule("CT-25")
@case("C6")
@pytest.mark.parametrize(
    "text, patch, reason",
    [
        ("a\r\nb\r\n", "@@ -2 +2 @@\n-b\n+c\n", "mismatch"),
        ("a\r\nb\r\n", "@@ -2 +2 @@\n-b\r\n+c\n", "line_ends"),
        ("", "@@ -0,0 +1,2 @@\n+a\r\n+b\n", "line_ends"),
        ("a\nb", "@@ -2 +2 @@\n-b\n+c\n", "newline"),
        ("a\nb", "@@ -2,0 +3 @@\n+c\n", "newline"),
    ],
)
def test_line_ends_are_compared(text: str, patch: str, reason: str) -> None:
    assert reject(text, patch)["reason"] == reason


@case("C5")
@rule("CT-06")
def test_one_bad_hunk_of_fifty_rejects_all() -> None:
    text = "".join(f"line {number}\n" for number in range(1, 501))
    hunks = [f"@@ -{number} +{number} @@\n-line {number}\n+LINE {number}\n" for number in range(10, 510, 10)]
    assert apply(text, "".join(hunks)).text == "".join(
        f"{'LINE' if number % 10 == 0 else 'line'} {number}\n" for number in range(1, 501)
    )
    hunks[36] = hunks[36].replace("-line", "-Line")
    details = reject(text, "".join(hunks))
    assert (details["hunk"], details["line"]) == (37, 370)


@rule("RS-22")
def test_rejection_names_the_divergent_line_and_where_the_text_occurs() -> None:
    details = reject(TEXT, "@@ -2,2 +2,2 @@\n - one\n-- two\n+- 2\n")
    assert {name: details[name] for name in ("hunk", "line", "expected", "found_at")} == {
        "hunk": 1,
        "line": 2,
        "expected": "-·one",
        "found_at": [3],
    }
    assert details["lines"] == "     1\t# Plan\n     2\t\n     3\t- one\n     4\t- two\n     5\t- three"
    problem = str(details["problem"])
    assert "occurs at line 3" in problem
    assert "· is a space" in problem
    assert "canvas_read_lines" in str(details["next"])


@rule("RS-22")
@pytest.mark.parametrize(
    "text, patch, expected, actual",
    [
        ("a b\n", "@@ -1 +1 @@\n-a  b\n+c\n", "a··b", "a·b"),
        ("\ta\n", "@@ -1 +1 @@\n-    a\n+c\n", "····a", "⇥a"),
        ("a\r\n", "@@ -1 +1 @@\n-a\n+c\n", "a", "a␍"),
        ("a\u00a0b\n", "@@ -1 +1 @@\n-a b\n+c\n", "a·b", "a⍽b"),
        (f"{'x' * 400}y\n", f"@@ -1 +1 @@\n-{'x' * 400}z\n+c\n", f"…{'x' * 80}z", f"…{'x' * 80}y"),
    ],
)
def test_rejection_makes_white_space_visible(text: str, patch: str, expected: str, actual: str) -> None:
    details = reject(text, patch)
    assert (details["expected"], details["actual"]) == (expected, actual)


@rule("RS-22")
@pytest.mark.parametrize(
    "text, patch, hint",
    [
        ("- a\n- b\n", "@@ -1 +1 @@\n- a\n+- c\n", "write `--·a` to delete it, or `·-·a` to keep it"),
        ("---\n", "@@ -1 +1 @@\n---\n+***\n", "write `----` to delete it"),
        ("  a\nb\n", "@@ -1,2 +1,2 @@\n  a\n-b\n+c\n", "a space before the whole line"),
        ("a\nb\n", "@@ -1 +1 @@\n-a\n+c\n\n", "An empty line at the end of a hunk"),
        ("a\r\nb\r\n", "@@ -1 +1 @@\n-a\n+c\n", "end with CRLF there"),
    ],
)
def test_rejection_hints_at_common_mistakes(text: str, patch: str, hint: str) -> None:
    assert hint in reject(text, patch)["hint"]


def test_old_ranges_name_the_lines_of_each_hunk() -> None:
    patch = "@@ -1 +1 @@\n-# Plan\n+# Aim\n@@ -2,0 +3 @@\n+x\n@@ -3,3 +4,2 @@\n - one\n-- two\n - three\n"
    assert apply(TEXT, patch).old_ranges == [(1, 1), (3, 2), (3, 5)]


def test_added_lines_that_resemble_file_headers_are_text() -> None:
    text = "-- a\nb\n"
    patch = "@@ -1,2 +1,2 @@\n--- a\n+++ c\n b\n@@ -2,0 +3 @@\n+d\n"
    assert apply(text, patch).text == "++ c\nb\nd\n"


@case("C8")
@pytest.mark.parametrize(
    "patch",
    [
        pytest.param("@@ -1 +1 @@\n-a\n+" + "b" * (5 * MAX_PATCH_BYTES), id="5 MB"),
        pytest.param("@@ -1 +1 @@\n-a\n+b\n" * 200_000, id="200,000 hunks"),
        pytest.param("@@ -1 +1 @@\n-a\n+b\n" * (MAX_HUNKS + 1), id="too many hunks"),
        pytest.param("x" * 50_000_000, id="one line of 50 MB"),
        pytest.param("@@ -1,99999999 +1,99999999 @@\n-a\n+b\n", id="absurd count"),
        pytest.param("@@ -9" + "9" * 5_000 + " +1 @@\n-a\n+b\n", id="absurd number"),
        pytest.param("@@ -1 +1 @@\n" + "+\n" * 500_000, id="500,000 lines"),
        pytest.param("@@ -1 +1 @@\n" + " a\n" * 90_000, id="context only"),
        pytest.param("@@ -2 +2 @@\n" + "-\n" * 90_000, id="long mismatch"),
        pytest.param("`" * 900_000, id="fence"),
        pytest.param("\n" * 90_000, id="blank lines"),
    ],
)
def test_patch_bomb_is_rejected_fast_and_with_little_memory(patch: str) -> None:
    text = "\n" * 50_000 + "a\n" * 200_000
    began = time.process_time()
    reject(text, patch)
    assert time.process_time() - began < 0.2
    tracemalloc.start()
    try:
        reject(text, patch)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


@rule("CT-25")
@pytest.mark.parametrize(
    "module, name, limit",
    [
        (patch_module, "MAX_PATCH_BYTES", 20),
        (hunks_module, "MAX_PATCH_LINES", 3),
        (hunks_module, "MAX_HUNKS", 1),
    ],
)
def test_patch_over_a_limit_is_rejected(
    module: Any, name: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, limit)
    patch = "@@ -4 +4 @@\n-- two\n+- number two\n@@ -7 +7 @@\n-The end.\n+The very end.\n"
    assert reject(TEXT, patch)["reason"] == "too_large"


def test_document_above_the_limit_may_be_shortened() -> None:
    patch = "@@ -4 +4 @@\n-- two\n+- number two\n"
    assert reject(TEXT, patch, max_text_bytes=20)["reason"] == "too_large"
    assert apply(TEXT, "@@ -4 +3,0 @@\n-- two\n", max_text_bytes=20).text == TEXT.replace("- two\n", "")


@rule("CT-05")
def test_document_of_1_mb_is_patched_byte_for_byte() -> None:
    lines = [f"{number}: ä\t{'x' * (number % 90)}\r\n" for number in range(1, 20_001)]
    text = "".join(lines)
    assert len(text.encode()) > 1_000_000
    old, new = lines[9_999], lines[9_999].replace("x", "y")
    lines[9_999] = new
    assert apply(text, f"@@ -10000 +10000 @@\n-{old}+{new}").text == "".join(lines)


@case("C8")
def test_long_line_after_many_short_ones_does_not_slow_a_patch_down() -> None:
    text = "a\n" * 100_017 + "x" * 800_000 + "\n"
    took: list[float] = []
    for _ in range(3):
        began = time.process_time()
        assert apply(text, "@@ -100001 +100001 @@\n-a\n+b\n").applied_hunks == 1
        took.append(time.process_time() - began)
    assert min(took) < 0.2


@case("C8")
def test_long_and_short_lines_in_turn_do_not_slow_a_patch_down() -> None:
    text = ("x" * 1_000 + "\ny\n" + "a\n" * 1_000 + "z\n") * 490
    hunks = [
        f"@@ -{first + line} +{first + line} @@\n-{old}\n+b\n"
        for first in range(0, 490 * 1_003, 1_003)
        for line, old in ((2, "y"), (1_003, "z"))
    ]
    took: list[float] = []
    for _ in range(3):
        began = time.process_time()
        assert apply(text, "".join(hunks)).applied_hunks == 980
        took.append(time.process_time() - began)
    assert min(took) < 0.1
