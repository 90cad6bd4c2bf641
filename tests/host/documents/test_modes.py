"""The settings of the tools: without leases, with advice instead of enforcement, and turned off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from easel.core.document.document import revision_of
from easel.host.documents.answers import ToolRules
from easel.host.documents.definitions import definitions
from tests.host.documents.harness import PLAN, Instance, unique
from tests.requirements import rule
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from pathlib import Path

EDIT = "@@ -6 +6 @@\n-- two\n+- 2\n"
EDITED = PLAN.replace("- two", "- 2")


def with_rules(instance: Instance, folder: Path, **rules: Any) -> Instance:
    return Instance(instance.database, folder, ToolRules(**rules))


# --- EASEL_CANVAS_LEASES=off --------------------------------------------------------------------------------


@rule("CT-60")
async def test_without_leases_read_and_patch_need_none(instance: Instance, tmp_path: Path):
    loose = with_rules(instance, tmp_path, needs_lease=False)
    session = unique("s")
    canvas_id = await loose.create(PLAN, session=session)
    older = await instance.create("another\n", session=unique("s"))
    claim = await loose.start(session)
    shown = await loose.call(claim, "read_lines", start_line=6, end_line=6)
    assert (shown["ok"], shown["lease_id"]) == (True, None)
    assert (await loose.call(claim, "grep", query="two"))["matches"][0]["line"] == 6
    assert "another" in (await loose.call(claim, "read_all", canvas_id=older))["text"]
    answer = await loose.call(claim, "apply_patch", patch=EDIT)
    assert answer["ok"], answer
    assert await loose.text(canvas_id) == EDITED
    assert await loose.holder(canvas_id) is None


@rule("CT-60")
@pytest.mark.parametrize("act", ["message", "cancel"])
async def test_without_leases_an_interrupted_run_cannot_write(instance: Instance, tmp_path: Path, act: str):
    loose = with_rules(instance, tmp_path, needs_lease=False)
    session = unique("s")
    canvas_id = await loose.create(PLAN, session=session)
    claim = await loose.start(session)
    if act == "message":
        await loose.queue.start(THE_OWNER, session, "stop")
    else:
        await loose.queue.cancel(THE_OWNER, claim.run_id)
    answer = await loose.call(claim, "apply_patch", patch=EDIT)
    assert (answer["ok"], answer["code"]) == (False, "STALE_EPOCH")
    assert await loose.text(canvas_id) == PLAN


@rule("CT-60", "CT-27")
async def test_without_leases_the_base_revision_is_still_compared(small: Instance, tmp_path: Path):
    loose = with_rules(small, tmp_path, needs_lease=False)
    session = unique("s")
    canvas_id = await loose.create(PLAN, session=session)
    claim = await loose.start(session)
    await loose.documents.put(THE_OWNER, canvas_id, PLAN + "mine\n", None)
    answer = await loose.call(claim, "apply_patch", patch=EDIT, base_revision_id=revision_of(PLAN))
    assert (answer["code"], answer["reason"]) == ("PATCH_REJECTED", "base_revision")
    assert await loose.text(canvas_id) == PLAN + "mine\n"


@rule("CT-60")
async def test_without_leases_a_lease_that_is_given_must_be_valid(small: Instance, tmp_path: Path):
    loose = with_rules(small, tmp_path, needs_lease=False)
    session = unique("s")
    canvas_id = await loose.create(PLAN, session=session)
    claim = await loose.start(session)
    lease_id = await loose.check_out(claim)
    await loose.expire(canvas_id)
    assert (await loose.call(claim, "apply_patch", patch=EDIT, lease_id=lease_id))["code"] == "LEASE_EXPIRED"


@rule("CT-60")
def test_leases_are_required_unless_they_are_turned_off():
    assert "lease_id" in definitions()["canvas_read_all"].schema["required"]
    loose = definitions(ToolRules(needs_lease=False))
    assert list(loose) == list(definitions())
    assert loose["canvas_read_all"].schema["required"] == []
    assert list(loose["canvas_apply_patch"].schema["properties"]) == [
        "lease_id",
        "canvas_id",
        "patch",
        "base_revision_id",
    ]


# --- EASEL_CANVAS_INSPECTION=advise -------------------------------------------------------------------------


@rule("RS-47")
async def test_advice_replaces_the_rejection_of_lines_that_were_not_read(small: Instance, tmp_path: Path):
    advising = with_rules(small, tmp_path, enforces_inspection=False)
    session = unique("s")
    canvas_id = await advising.create(PLAN, session=session)
    claim = await advising.start(session)
    lease_id = await advising.check_out(claim)
    answer = await advising.call(claim, "apply_patch", lease_id=lease_id, patch=EDIT)
    assert answer["ok"]
    assert "read" in answer["advice"]
    assert await advising.text(canvas_id) == EDITED
    read = await advising.edit(claim, lease_id, "@@ -6 +6 @@\n-- 2\n+- two\n")
    assert "advice" not in read


# --- EASEL_DOCUMENT_STORE=git -------------------------------------------------------------------------------


@rule("CT-37", "CT-38", "RS-31")
async def test_turned_off_tools_answer_one_clear_error(small: Instance, tmp_path: Path):
    off = with_rules(small, tmp_path, is_turned_off=True)
    session = unique("s")
    canvas_id = await off.create(PLAN, session=session)
    claim = await off.start(session)
    arguments: dict[str, dict[str, Any]] = {
        "check_out": {},
        "renew_lease": {"lease_id": "x"},
        "check_in": {"lease_id": "x"},
        "grep": {"lease_id": "x", "query": "two"},
        "read_lines": {"lease_id": "x", "start_line": 1, "end_line": 2},
        "read_all": {"lease_id": "x"},
        "apply_patch": {"lease_id": "x", "patch": EDIT},
    }
    assert {f"canvas_{name}" for name in arguments} == set(definitions())
    messages = {(await off.fail(claim, tool, **args)).partition(": ")[2] for tool, args in arguments.items()}
    assert len(messages) == 1
    assert "git" not in messages.pop().lower()
    assert await off.holder(canvas_id) is None
    await off.documents.put(THE_OWNER, canvas_id, "people still write\n", None)
