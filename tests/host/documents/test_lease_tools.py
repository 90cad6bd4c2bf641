"""The tools that check out, renew and check in a document, and the codes of a lease that ended."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from easel.core.document.lease import TTL, Held
from easel.core.run.run import ClaimLost
from easel.core.session.session import to_session_key
from easel.core.tool.context import ToolContext
from easel.errors import NotInRun
from easel.host.documents.answers import ToolRules
from easel.host.documents.definitions import definitions
from easel.ids import OWNER, AccountId, SessionId
from tests.host.documents.harness import PLAN, Instance, unique
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER

EDIT = "@@ -6 +6 @@\n-- two\n+- 2\n"
READS: dict[str, dict[str, Any]] = {
    "renew_lease": {},
    "grep": {"query": "two"},
    "read_lines": {"start_line": 1, "end_line": 3},
    "read_all": {},
    "apply_patch": {"patch": EDIT},
}


@rule("CT-20", "CT-03", "CT-38", "CT-05", "CT-61")
def test_tools_are_exactly_the_seven_with_these_arguments():
    arguments = {name: list(tool.schema["properties"]) for name, tool in definitions().items()}
    assert arguments == {
        "canvas_check_out": ["canvas_id"],
        "canvas_renew_lease": ["lease_id"],
        "canvas_check_in": ["lease_id"],
        "canvas_grep": ["lease_id", "query", "regex", "section"],
        "canvas_read_lines": ["lease_id", "start_line", "end_line", "section", "item"],
        "canvas_read_all": ["lease_id"],
        "canvas_apply_patch": ["lease_id", "patch", "base_revision_id"],
    }
    required = {name: tool.schema.get("required", []) for name, tool in definitions().items()}
    assert required == {
        "canvas_check_out": [],
        "canvas_renew_lease": ["lease_id"],
        "canvas_check_in": ["lease_id"],
        "canvas_grep": ["lease_id", "query"],
        "canvas_read_lines": ["lease_id"],
        "canvas_read_all": ["lease_id"],
        "canvas_apply_patch": ["lease_id", "patch"],
    }
    text = str(definitions()).lower()
    assert not any(word in text for word in ("sqlite", "postgres", "database", "git"))


@rule("CT-23")
def test_reading_everything_is_described_as_the_fallback_with_its_limit():
    described = definitions(ToolRules(max_result_bytes=20_000))["canvas_read_all"].description
    assert described.startswith("Fallback")
    assert "at most 15904 bytes" in described


@rule("CT-09", "CT-12", "CT-29")
async def test_check_out_returns_the_lease_the_revision_and_the_epoch(instance: Instance):
    session = unique("s")
    canvas_id = await instance.create(PLAN, session=session)
    claim = await instance.start(session)
    answer = await instance.call(claim, "check_out")
    document = await instance.get(canvas_id)
    assert isinstance(document.lease, Held)
    assert answer == {
        "ok": True,
        "canvas_id": canvas_id,
        "lease_id": document.lease.lease_id,
        "revision_id": document.revision_id,
        "revision_id_at_checkout": document.revision_id,
        "canvas_epoch": document.lease.epoch,
        "expires_at": document.lease.expires_at.isoformat(timespec="milliseconds"),
    }
    left = document.lease.expires_at - document.now
    assert timedelta(0) < left <= TTL == timedelta(seconds=15)
    [event] = await instance.events(canvas_id, "canvas.lease.changed")
    assert event["lease"] == {"run_id": claim.run_id, "expires_at": answer["expires_at"]}
    assert answer["lease_id"] not in str(event)


async def test_newest_document_of_the_session_is_checked_out_unless_another_is_named(instance: Instance):
    session = unique("s")
    older = await instance.create(PLAN, session=session)
    newer = await instance.create("newer\n", session=session)
    await instance.create("of another session\n", session=unique("other"))
    claim = await instance.start(session)
    assert (await instance.call(claim, "check_out"))["canvas_id"] == newer
    lease_id = await instance.check_out(claim, older)
    assert "one" in (await instance.call(claim, "read_all", lease_id=lease_id))["text"]


async def test_session_without_a_document_is_explained_how_to_create_one(small: Instance):
    claim = await small.start()
    answer = await small.call(claim, "check_out")
    assert (answer["ok"], answer["code"], answer["revision_id"]) == (False, "NOT_FOUND", None)
    assert "gsv__Canvas" in answer["message"]
    assert '"mode":"markdown"' in answer["message"]


async def test_canvas_that_is_no_document_of_the_user_is_a_clear_failure(small: Instance):
    page = await small.create(None, spec={"version": 1, "mode": "html"})
    await small.sql("insert into accounts (account_id) values ('ada')")
    foreign = await small.create(None, user=AccountId("ada"))
    claim = await small.start()
    for name in (page, foreign, "missing", "not a name"):
        answer = await small.call(claim, "check_out", canvas_id=name)
        assert (answer["ok"], answer["code"]) == (False, "NOT_FOUND")
        assert f"There is no document {name}" in answer["message"]


@rule("CT-08", "CT-10")
async def test_document_with_a_live_lease_cannot_be_checked_out(instances: list[Instance]):
    one, other = instances
    canvas_id = await one.create(PLAN)
    holder, second = await one.start(unique("s")), await other.start(unique("s"))
    lease_id = await one.check_out(holder, canvas_id)
    refused = await other.call(second, "check_out", canvas_id=canvas_id)
    assert (refused["ok"], refused["code"], refused["lease_id"]) == (False, "LOCK_NOT_AVAILABLE", None)
    again = await one.call(holder, "check_out", canvas_id=canvas_id)
    assert (again["code"], again["lease_id"]) == ("LOCK_NOT_AVAILABLE", lease_id)
    assert lease_id not in str(refused)


@rule("CT-07", "CT-11", "CT-08", "RS-48", "CT-29", "CT-26")
@pytest.mark.parametrize("tool", READS)
async def test_unknown_and_foreign_leases_are_not_owned(small: Instance, tool: str):
    canvas_id = await small.create(PLAN)
    own, other = await small.start(unique("s")), await small.start(unique("s"))
    foreign = await small.check_out(other, canvas_id)
    document = await small.get(canvas_id)
    for lease_id in ("", "lease", "lease_0_abc_def_nowhere", foreign, foreign.replace("lease_", "lease_9")):
        answer = await small.call(own, tool, lease_id=lease_id, **READS[tool])
        assert (answer["ok"], answer["code"], answer["lease_id"]) == (
            False,
            "LOCK_NOT_OWNED",
            lease_id or None,
        )
        assert "text" not in answer
    assert answer["revision_id"] == document.revision_id
    assert await small.text(canvas_id) == PLAN


@rule("RS-48", "CT-13", "CT-32", "CT-29")
@pytest.mark.parametrize("tool", READS)
async def test_reads_and_writes_check_the_epoch_before_the_time(instance: Instance, tool: str):
    session = unique("s")
    canvas_id = await instance.create(PLAN, session=session)
    claim = await instance.start(session)
    lease_id = await instance.check_out(claim)
    await instance.call(claim, "read_all", lease_id=lease_id)
    await instance.expire(canvas_id)
    expired = await instance.call(claim, tool, lease_id=lease_id, **READS[tool])
    assert (expired["ok"], expired["code"]) == (False, "LEASE_EXPIRED")
    await instance.documents.put(THE_OWNER, canvas_id, "mine\n", None)
    stale = await instance.call(claim, tool, lease_id=lease_id, **READS[tool])
    assert (stale["ok"], stale["code"]) == (False, "STALE_EPOCH")
    document = await instance.get(canvas_id)
    assert document.text == "mine\n"
    assert stale["revision_id"] == document.revision_id
    assert stale["lease_id"] == lease_id


@rule("CT-12", "CT-32")
@case("C3")
async def test_lease_that_expired_between_read_and_write_is_not_usable_even_if_it_is_free(
    instance: Instance,
):
    session = unique("s")
    canvas_id = await instance.create(PLAN, session=session)
    claim = await instance.start(session)
    lease_id = await instance.check_out(claim)
    assert (await instance.call(claim, "read_all", lease_id=lease_id))["ok"]
    await instance.expire(canvas_id, 0.1)  # a pause of 15.1 s
    answer = await instance.call(claim, "apply_patch", lease_id=lease_id, patch=EDIT)
    assert (answer["ok"], answer["code"]) == (False, "LEASE_EXPIRED")
    assert await instance.text(canvas_id) == PLAN
    assert await instance.check_out(claim) != lease_id  # without anyone's help


@rule("CT-13", "CT-14")
@pytest.mark.parametrize("tool", READS)
async def test_each_call_with_a_live_lease_moves_its_end_to_15_seconds_from_now(
    instance: Instance, tool: str
):
    session = unique("s")
    canvas_id = await instance.create(PLAN, session=session)
    claim = await instance.start(session)
    lease_id = await instance.check_out(claim)
    await instance.expire(canvas_id, -5)  # 5 s are left
    answer = await instance.call(claim, tool, lease_id=lease_id, **READS[tool])
    assert answer["ok"] is (tool != "apply_patch"), answer  # nothing was read: the patch is rejected
    document = await instance.get(canvas_id)
    assert isinstance(document.lease, Held)
    assert document.lease.expires_at - document.now > timedelta(seconds=6)
    if tool == "renew_lease":
        assert document.lease.expires_at - datetime.fromisoformat(answer["expires_at"]) < timedelta(seconds=1)


@rule("CT-16", "CT-17")
async def test_check_in_releases_and_does_not_fail_for_a_lease_that_is_gone(instance: Instance):
    session = unique("s")
    canvas_id = await instance.create(PLAN, session=session)
    claim = await instance.start(session)
    lease_id = await instance.check_out(claim)
    epoch = (await instance.get(canvas_id)).lease.epoch
    answer = await instance.call(claim, "check_in", lease_id=lease_id)
    assert (answer["ok"], answer["released"], answer["lease_id"]) == (True, True, lease_id)
    assert await instance.holder(canvas_id) is None
    assert (await instance.get(canvas_id)).lease.epoch == epoch
    again = await instance.call(claim, "check_in", lease_id=lease_id)
    assert (again["ok"], again["released"]) == (True, False)
    await instance.documents.put(THE_OWNER, canvas_id, "mine\n", None)
    stale = await instance.call(claim, "check_in", lease_id=lease_id)
    assert (stale["ok"], stale["released"]) == (True, False)
    foreign = await instance.call(claim, "check_in", lease_id=f"lease_0_0_0_{canvas_id}")
    assert (foreign["ok"], foreign["code"]) == (False, "LOCK_NOT_OWNED")
    assert (await instance.call(claim, "read_all", lease_id=lease_id))["ok"] is False


@rule("CT-14", "CT-16", "RS-48")
@pytest.mark.parametrize("tool", [*READS, "check_in"])
async def test_live_lease_is_still_kept_after_a_call_with_another_one(instance: Instance, tool: str):
    session = unique("s")
    canvas_id = await instance.create(PLAN, session=session)
    claim = await instance.start(session)
    old = await instance.check_out(claim)
    await instance.expire(canvas_id)
    await instance.check_out(claim)
    for lease_id in (old, f"lease_0_0_0_{canvas_id}"):
        answer = await instance.call(claim, tool, lease_id=lease_id, **READS.get(tool, {}))
        assert not answer["ok"] or answer["released"] is False
        assert instance.leases.may_hold(claim.run_id)
    await instance.leases.release(claim)
    assert await instance.holder(canvas_id) is None


@rule("RS-48")
async def test_lease_that_has_ended_is_forgotten(small: Instance):
    session = unique("s")
    canvas_id = await small.create(PLAN, session=session)
    claim = await small.start(session)
    lease_id = await small.check_out(claim)
    await small.expire(canvas_id)
    assert (await small.call(claim, "read_all", lease_id=lease_id))["code"] == "LEASE_EXPIRED"
    assert not small.leases.may_hold(claim.run_id)


@rule("CT-18", "CT-19", "CT-16", "RS-79")
@pytest.mark.parametrize("act", ["message", "cancel", "message to a run of another session"])
async def test_message_and_cancel_end_the_lease_on_any_instance(instances: list[Instance], act: str):
    one, other = instances
    session = unique("s")
    canvas_id = await one.create(PLAN, session=session)
    claim = await one.start(unique("s") if "another" in act else session)
    lease_id = await one.check_out(claim, canvas_id)
    await one.call(claim, "read_all", lease_id=lease_id)
    epoch = (await one.get(canvas_id)).lease.epoch
    if act == "cancel":
        await other.queue.cancel(THE_OWNER, claim.run_id)
    else:
        await other.queue.start(THE_OWNER, session, "stop that")
    assert await other.holder(canvas_id) is None
    assert (await one.get(canvas_id)).lease.epoch == epoch + 1
    for tool, args in READS.items():
        assert (await one.call(claim, tool, lease_id=lease_id, **args))["code"] == "STALE_EPOCH"
    assert (await one.call(claim, "check_out", canvas_id=canvas_id))["code"] == "STALE_EPOCH"
    assert await one.text(canvas_id) == PLAN


@rule("CT-19")
@pytest.mark.parametrize("act", ["message", "cancel"])
async def test_run_that_was_interrupted_without_a_lease_gets_none(instance: Instance, act: str):
    session = unique("s")
    await instance.create(PLAN, session=session)
    claim = await instance.start(session)
    if act == "message":
        await instance.queue.start(THE_OWNER, session, "stop that")
    else:
        await instance.queue.cancel(THE_OWNER, claim.run_id)
    answer = await instance.call(claim, "check_out")
    assert (answer["ok"], answer["code"]) == (False, "STALE_EPOCH")


async def test_worker_that_lost_its_claim_changes_nothing(instance: Instance):
    session = unique("s")
    canvas_id = await instance.create(PLAN, session=session)
    claim = await instance.start(session)
    lease_id = await instance.check_out(claim)
    await instance.call(claim, "read_all", lease_id=lease_id)
    await instance.sql(f"update runs set attempt = attempt + 1 where run_id = '{claim.run_id}'")
    for tool in ("apply_patch", "check_in", "check_out", "grep"):
        args = {} if tool == "check_out" else {"lease_id": lease_id, **READS.get(tool, {})}
        with pytest.raises(ClaimLost):
            await instance.call(claim, tool, **args)
    assert await instance.text(canvas_id) == PLAN
    assert await instance.holder(canvas_id) == claim.run_id


async def test_tools_work_only_inside_a_run(small: Instance):
    outside = ToolContext(THE_OWNER, to_session_key(SessionId("s")))
    with pytest.raises(NotInRun):
        await small.tools.call("canvas_check_out", {}, outside)


@rule("CT-07", "CT-11", "CT-26", "CT-29")
async def test_arguments_that_do_not_fit_the_schema_are_answered_with_code_and_revision(small: Instance):
    claim = await small.start()
    assert (await small.call(claim, "check_out", canvas_id=3))["revision_id"] is None, "there is no document"
    canvas_id = await small.create(PLAN, session=claim.session_id)
    document = await small.get(canvas_id)
    cases: list[tuple[str, dict[str, Any], str, str]] = [
        # tool, arguments beside a valid lease, code, part of the message
        ("check_out", {"canvas_id": 3}, "BAD_INPUT", "canvas_id"),
        ("grep", {}, "BAD_INPUT", "query"),
        ("read_lines", {"start_line": 0, "end_line": 1}, "BAD_INPUT", "start_line"),
        ("apply_patch", {"patch": 5}, "PATCH_REJECTED", "patch"),
        ("apply_patch", {"patch": "", "replace": "text"}, "PATCH_REJECTED", "replace"),
    ]
    for tool, args, *_ in cases[1:]:
        answer = await small.call(claim, tool, **args)
        assert (answer["code"], answer["revision_id"]) == ("LOCK_NOT_OWNED", document.revision_id), tool
        answer = await small.call(claim, tool, lease_id=5, **args)
        assert (answer["code"], answer["revision_id"]) == ("LOCK_NOT_OWNED", document.revision_id), tool
    lease_id = await small.check_out(claim)
    for tool, args, code, word in cases:
        lease = {} if tool == "check_out" else {"lease_id": lease_id}
        answer = await small.call(claim, tool, **lease, **args)
        assert (answer["ok"], answer["code"], answer["revision_id"]) == (False, code, document.revision_id)
        assert answer["lease_id"] == lease_id
        assert word in answer["message"]
    await small.queue.start(THE_OWNER, claim.session_id, "stop that")
    for tool, args, *_ in cases[1:]:
        assert (await small.call(claim, tool, lease_id=lease_id, **args))["code"] == "STALE_EPOCH"


async def test_user_id_decides_which_documents_a_run_reaches(small: Instance):
    await small.sql("insert into accounts (account_id) values ('ada')")
    canvas_id = await small.create(PLAN, canvas_id="same")
    await small.create(None, canvas_id="same", user=AccountId("ada"))
    claim = await small.start()
    await small.check_out(claim, "same")
    foreign = await small.store.get(AccountId("ada"), canvas_id)
    assert foreign is not None
    assert foreign.live_lease is None
    assert await small.holder(canvas_id) == claim.run_id
    assert claim.account_id == OWNER
