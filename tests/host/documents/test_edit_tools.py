"""The tools that find, read and edit: exact lines, strict patches, and locate before edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from easel.core.document.document import revision_of
from easel.core.stream.json_text import to_json
from easel.host.documents.answers import ToolRules
from tests.host.documents.harness import PLAN, Instance, unique
from tests.requirements import case, rule

if TYPE_CHECKING:
    from pathlib import Path

    from easel.core.run.run import Claim

EDIT = "@@ -6 +6 @@\n-- two\n+- 2\n"
EDITED = PLAN.replace("- two", "- 2")


async def begin(instance: Instance, text: str | None = PLAN) -> tuple[Claim, str, str]:
    """Return a claim, a document and the lease that the claim has of it."""
    session = unique("s")
    canvas_id = await instance.create(text, session=session)
    claim = await instance.start(session)
    return claim, canvas_id, await instance.check_out(claim)


# --- finding and reading ------------------------------------------------------------------------------------


@rule("CT-21", "RS-46", "RS-52", "CT-04")
async def test_grep_returns_numbered_lines_with_their_section(small: Instance):
    claim, _, lease_id = await begin(small)
    answer = await small.call(claim, "grep", lease_id=lease_id, query="- t")
    assert [(match["line"], match["text"]) for match in answer["matches"]] == [(6, "- two"), (7, "- three")]
    assert "Steps" in answer["matches"][0]["section"]
    assert answer["revision_id"] == revision_of(PLAN)
    literal = await small.call(claim, "grep", lease_id=lease_id, query="^- t")
    assert literal["matches"] == []
    regex = await small.call(claim, "grep", lease_id=lease_id, query="^- (two|one)$", regex=True)
    assert [match["line"] for match in regex["matches"]] == [5, 6]
    within = await small.call(claim, "grep", lease_id=lease_id, query="e", section="## Notes")
    assert [match["line"] for match in within["matches"]] == [9, 11]


@rule("CT-22", "RS-46", "CT-04")
async def test_read_returns_exactly_these_lines(small: Instance):
    claim, _, lease_id = await begin(small)
    answer = await small.call(claim, "read_lines", lease_id=lease_id, start_line=5, end_line=6)
    assert answer["text"] == "     5\t- one\n     6\t- two"
    assert (answer["start_line"], answer["end_line"], answer["line_count"]) == (5, 6, 11)
    assert answer["revision_id"] == revision_of(PLAN)
    clamped = await small.call(claim, "read_lines", lease_id=lease_id, start_line=10, end_line=99)
    assert (clamped["start_line"], clamped["end_line"]) == (10, 11)
    section = await small.call(claim, "read_lines", lease_id=lease_id, section="## Notes")
    assert section["text"] == "     9\t## Notes\n    10\t\n    11\tNothing yet."
    item = await small.call(claim, "read_lines", lease_id=lease_id, section="Steps", item=3)
    assert item["text"] == "     7\t- three"


@pytest.mark.parametrize(
    "args, word",
    [
        ({"start_line": 12, "end_line": 20}, "11 lines"),
        ({"start_line": 5, "end_line": 4}, "end_line"),
        ({"start_line": 5}, "end_line"),
        ({}, "section"),
        ({"item": 4}, "3 list items"),
        ({"section": "## Nowhere"}, "Nowhere"),
        ({"section": "Steps", "item": 4}, "3 list items"),
        ({"section": "Steps", "start_line": 1, "end_line": 2}, "section"),
    ],
)
async def test_read_of_lines_that_do_not_exist_is_a_failure(small: Instance, args: dict[str, Any], word: str):
    claim, _, lease_id = await begin(small)
    answer = await small.call(claim, "read_lines", lease_id=lease_id, **args)
    assert answer["ok"] is False
    assert word in answer["message"]
    assert answer["revision_id"] == revision_of(PLAN)


@rule("CT-23")
async def test_whole_document_is_read_or_refused_with_advice_if_it_is_too_large(small: Instance):
    claim, _, lease_id = await begin(small)
    answer = await small.call(claim, "read_all", lease_id=lease_id)
    assert [line.partition("\t")[2] for line in answer["text"].split("\n")] == PLAN.split("\n")[:-1]
    assert answer["line_count"] == 11
    claim, _, lease_id = await begin(small, "a long line of text\n" * 20_000)
    refused = await small.call(claim, "read_all", lease_id=lease_id)
    assert (refused["ok"], refused["code"]) == (False, "TOO_LARGE")
    assert "canvas_grep" in refused["message"]
    assert (await small.call(claim, "read_lines", lease_id=lease_id, start_line=1, end_line=50))["ok"]


@rule("CT-22", "RS-47")
@pytest.mark.parametrize("start_line", [1, 301])
async def test_read_that_is_too_long_says_which_lines_to_read(
    small: Instance, tmp_path: Path, start_line: int
):
    limited = Instance(small.database, tmp_path, ToolRules(max_result_bytes=16_384))
    claim, _, lease_id = await begin(limited, f"# {'long title ' * 50}\n" + 'a "quoted" line\n' * 2_000)
    args = {"lease_id": lease_id, "start_line": start_line}
    refused = await limited.call(claim, "read_lines", **args, end_line=2_000)
    assert (refused["ok"], refused["code"]) == (False, "TOO_LARGE")
    last = int(refused["message"].partition(f"Read lines {start_line} to ")[2].split(" ")[0])
    assert f"on from line {last + 1}" in refused["message"]
    shown = await limited.call(claim, "read_lines", **args, end_line=last)
    assert shown["ok"]
    assert shown["end_line"] == last
    assert 11_000 < len(to_json(shown)) < 16_384
    await limited.close()


@rule("CT-21", "RS-47")
async def test_matches_that_do_not_fit_are_left_out_and_not_counted_as_read(small: Instance, tmp_path: Path):
    limited = Instance(small.database, tmp_path, ToolRules(max_result_bytes=16_384))
    text = "".join(f"line {number} {'x' * 300}\n" for number in range(1, 101))
    claim, canvas_id, lease_id = await begin(limited, text)
    answer = await limited.call(claim, "grep", lease_id=lease_id, query="line")
    assert answer["is_truncated"] is True
    assert len(to_json(answer)) < 16_384
    count = len(answer["matches"])
    assert 30 < count < 60
    assert (await limited.get(canvas_id)).inspected == ((1, count),)
    await limited.close()


@rule("CT-22", "RS-46")
async def test_integer_may_be_written_with_a_fraction_of_zero(small: Instance):
    claim, _, lease_id = await begin(small)
    lines = await small.call(claim, "read_lines", lease_id=lease_id, start_line=5.0, end_line=6.0)
    assert (lines["text"], lines["start_line"]) == ("     5\t- one\n     6\t- two", 5)
    item = await small.call(claim, "read_lines", lease_id=lease_id, section="Steps", item=3.0)
    assert item["text"] == "     7\t- three"


async def test_grep_of_a_large_document_returns_the_first_matches_and_their_number(small: Instance):
    claim, _, lease_id = await begin(small, "a long line of text\n" * 20_000)
    answer = await small.call(claim, "grep", lease_id=lease_id, query="line")
    assert answer["ok"]
    assert 0 < len(answer["matches"]) < 20_000
    assert answer["is_truncated"] is True


@pytest.mark.parametrize("query", ["(", "(?=look)", "a{2000}", "\\1"])
async def test_regular_expression_that_is_not_supported_is_a_failure(small: Instance, query: str):
    claim, _, lease_id = await begin(small)
    answer = await small.call(claim, "grep", lease_id=lease_id, query=query, regex=True)
    assert (answer["ok"], answer["code"]) == (False, "BAD_INPUT")


# --- patches ------------------------------------------------------------------------------------------------


@rule("CT-24", "CT-31", "CT-62")
async def test_patch_returns_the_number_of_hunks_and_the_new_revision(instance: Instance):
    claim, canvas_id, lease_id = await begin(instance)
    answer = await instance.edit(claim, lease_id, EDIT, base_revision_id=revision_of(PLAN))
    assert answer == {
        "ok": True,
        "applied_hunks": 1,
        "new_revision_id": revision_of(EDITED),
        "revision_id": revision_of(EDITED),
        "lease_id": lease_id,
    }
    assert await instance.text(canvas_id) == EDITED
    changed = (await instance.events(canvas_id, "canvas.document.changed"))[-1]
    assert changed["revision_id"] == revision_of(EDITED)
    assert changed["author"] == {"kind": "assistant", "id": "main", "run_id": claim.run_id}
    assert changed["provenance"]["kind"] == "agent"


@rule("CT-07", "CT-25", "CT-06", "CT-32", "RS-22")
async def test_patch_that_does_not_match_is_rejected_with_the_lines_there(instance: Instance):
    claim, canvas_id, lease_id = await begin(instance)
    answer = await instance.edit(claim, lease_id, "@@ -6 +6 @@\n-- two \n+- 2\n")
    assert (answer["ok"], answer["code"], answer["reason"]) == (False, "PATCH_REJECTED", "mismatch")
    assert (answer["hunk"], answer["line"], answer["actual"]) == (1, 6, "-·two")
    assert "     6\t- two" in answer["lines"]
    assert answer["revision_id"] == revision_of(PLAN)
    assert answer["lease_id"] == lease_id
    document = await instance.get(canvas_id)
    assert (document.text, document.revision_id) == (PLAN, revision_of(PLAN))


@rule("CT-27", "RS-21", "RS-48")
async def test_patch_for_another_revision_is_rejected_even_if_it_would_match(small: Instance):
    claim, canvas_id, lease_id = await begin(small)
    answer = await small.edit(claim, lease_id, EDIT, base_revision_id=revision_of("other"))
    assert (answer["code"], answer["reason"]) == ("PATCH_REJECTED", "base_revision")
    insertion = "@@ -11,0 +12 @@\n+More.\n"
    assert (await small.edit(claim, lease_id, insertion))["reason"] == "needs_base_revision"
    assert await small.text(canvas_id) == PLAN
    assert (await small.edit(claim, lease_id, insertion, base_revision_id=revision_of(PLAN)))["ok"]
    assert await small.text(canvas_id) == PLAN + "More.\n"


async def test_empty_document_is_filled_by_a_patch(small: Instance):
    claim, canvas_id, lease_id = await begin(small, None)
    answer = await small.call(
        claim,
        "apply_patch",
        lease_id=lease_id,
        patch="@@ -0,0 +1,2 @@\n+# Title\n+text\n",
        base_revision_id=revision_of(""),
    )
    assert answer["ok"], answer
    assert await small.text(canvas_id) == "# Title\ntext\n"


async def test_patch_that_makes_the_document_too_large_is_rejected(small: Instance):
    claim, canvas_id, lease_id = await begin(small)
    added = "".join(f"+{'x' * 1_000}\n" for _ in range(900))
    text = PLAN + "y" * 300_000 + "\n"
    claim, canvas_id, lease_id = await begin(small, text)
    answer = await small.call(
        claim,
        "apply_patch",
        lease_id=lease_id,
        patch=f"@@ -0,0 +1,900 @@\n{added}",
        base_revision_id=revision_of(text),
    )
    assert (answer["code"], answer["reason"]) == ("PATCH_REJECTED", "too_large")
    assert await small.text(canvas_id) == text


@rule("CT-63", "CT-55")
async def test_patch_changes_the_draft_only(instance: Instance):
    claim, canvas_id, lease_id = await begin(instance)
    assert (await instance.edit(claim, lease_id, EDIT))["ok"]
    document = await instance.get(canvas_id)
    assert document.version_revision_id is None
    assert (
        await instance.store.list_versions(claim.account_id, document.canvas_id, before=None, limit=9) == []
    )


@rule("CT-06")
@case("C5")
async def test_patch_with_one_bad_hunk_among_fifty_changes_nothing(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
):
    text = "".join(f"line {number}\n" for number in range(1, 501))
    claim, canvas_id, lease_id = await begin(instance, text)
    hunks = [f"@@ -{n * 10} +{n * 10} @@\n-line {n * 10}\n+LINE {n * 10}\n" for n in range(1, 51)]
    bad = [*hunks[:36], hunks[36].replace("-line", "-lime"), *hunks[37:]]
    answer = await instance.edit(claim, lease_id, "".join(bad))
    assert (answer["code"], answer["hunk"]) == ("PATCH_REJECTED", 37)
    assert await instance.text(canvas_id) == text

    # A crash after the patch was computed, before its transaction has ended.
    change = type(instance.store).change

    async def crash(self: Any, account_id: Any, name: Any, decide: Any, **more: Any) -> Any:
        def decide_and_crash(document: Any) -> Any:
            decide(document)
            raise RuntimeError("crashed")

        return await change(self, account_id, name, decide_and_crash, **more)

    with monkeypatch.context() as patched:
        patched.setattr(type(instance.store), "change", crash)
        await instance.fail(claim, "apply_patch", lease_id=lease_id, patch="".join(hunks))
    document = await instance.get(canvas_id)
    assert (document.text, document.revision_id) == (text, revision_of(text))
    applied = await instance.edit(claim, lease_id, "".join(hunks))
    assert (applied["ok"], applied["applied_hunks"]) == (True, 50)


@rule("RS-47", "CT-28")
async def test_lines_must_be_read_at_this_revision_under_this_lease_before_they_are_edited(
    instance: Instance,
):
    claim, canvas_id, lease_id = await begin(instance)
    blind = await instance.call(claim, "apply_patch", lease_id=lease_id, patch=EDIT)
    assert (blind["code"], blind["reason"]) == ("PATCH_REJECTED", "not_inspected")
    await instance.call(claim, "read_lines", lease_id=lease_id, start_line=1, end_line=5)
    beside = await instance.call(claim, "apply_patch", lease_id=lease_id, patch=EDIT)
    assert beside["reason"] == "not_inspected"
    await instance.call(claim, "grep", lease_id=lease_id, query="two")
    assert (await instance.call(claim, "apply_patch", lease_id=lease_id, patch=EDIT))["ok"]
    # The line numbers of the former revision are not valid any longer.
    second = "@@ -7 +7 @@\n-- three\n+- 3\n"
    assert (await instance.call(claim, "apply_patch", lease_id=lease_id, patch=second))[
        "code"
    ] == "PATCH_REJECTED"
    await instance.call(claim, "read_all", lease_id=lease_id)
    # Another lease has not read anything.
    await instance.call(claim, "check_in", lease_id=lease_id)
    lease_id = await instance.check_out(claim)
    again = await instance.call(claim, "apply_patch", lease_id=lease_id, patch=second)
    assert again["reason"] == "not_inspected"
    assert await instance.text(canvas_id) == EDITED


@case("C10")
async def test_line_numbers_agree_and_bytes_survive_an_edit(small: Instance):
    text = "\ufefffirst\u2028still first\r\nsecond\x0b\x0c\x85 e\u0301 é\r\nthird 👩‍👩‍👧 \r\nlast"
    claim, canvas_id, lease_id = await begin(small, text)
    shown = await small.call(claim, "read_all", lease_id=lease_id)
    assert shown["line_count"] == 4
    found = await small.call(claim, "grep", lease_id=lease_id, query="third")
    assert [match["line"] for match in found["matches"]] == [3]
    third = await small.call(claim, "read_lines", lease_id=lease_id, start_line=3, end_line=3)
    assert third["text"] == "     3\tthird 👩‍👩‍👧 \r"
    patch = "@@ -3 +3 @@\n-third 👩‍👩‍👧 \r\n+THIRD \r\n"
    answer = await small.call(claim, "apply_patch", lease_id=lease_id, patch=patch)
    assert answer["ok"], answer
    assert await small.text(canvas_id) == text.replace("third 👩‍👩‍👧", "THIRD")
