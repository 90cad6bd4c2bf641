"""Documents for people: saving, conflicts, versions, and control over an agent that edits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.document.document import revision_of
from easel.core.principal import PrincipalKind, Role, as_program
from easel.core.stream.notifications import CanvasAppended
from easel.errors import BadInput, NotFound, TextConflict, TooLarge
from easel.host.documents.service import Documents
from easel.ids import OWNER, SessionId
from tests.host.documents.harness import PLAN, Instance, unique
from tests.requirements import case, rule
from tests.stores.documents import list_authors, write
from tests.support.principals import THE_OWNER, person
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from easel.core.stream.notifications import Notification

EDIT = "@@ -6 +6 @@\n-- two\n+- 2\n"
EDITED = PLAN.replace("- two", "- 2")


# --- saving -------------------------------------------------------------------------------------------------


@rule("CT-30", "CT-05")
@pytest.mark.parametrize(
    "text", ["", "\n", "a", "a\r\nb\r\n", "tab\t, trailing  \n", "\ufeffe\u0301 é \u2028 👩‍👩‍👧\x0b\n\r"]
)
async def test_text_is_stored_byte_for_byte_under_the_hash_of_its_content(instance: Instance, text: str):
    canvas_id = await instance.create("something else\n")
    saved = await instance.documents.put(THE_OWNER, canvas_id, text, None)
    read = await instance.get(canvas_id)
    assert (read.text, read.revision_id) == (text, revision_of(text))
    assert saved.revision_id == read.revision_id


@rule("CT-55")
async def test_autosaves_write_one_draft_and_no_version_or_message(instance: Instance):
    session = unique("s")
    canvas_id = await instance.create(None, session=session)
    for number in range(5):
        await instance.documents.put(THE_OWNER, canvas_id, f"text {number}\n", None)
    assert await instance.documents.list_versions(THE_OWNER, canvas_id, None, 10) == []
    assert (await instance.get(canvas_id)).version_revision_id is None
    drafts = await instance.store.list_unreported(OWNER, SessionId(session))
    assert [(draft.before, draft.text) for draft in drafts] == [("", "text 4\n")]
    assert await instance.sql(f"select * from messages where thread_seq > 0 and run_id = '{session}'") == []


@case("C7")
async def test_second_of_two_editors_gets_the_current_text_and_nothing_is_merged(instances: list[Instance]):
    first, second = instances
    canvas_id = await first.create(PLAN)
    base = revision_of(PLAN)
    await first.documents.put(THE_OWNER, canvas_id, "mine\n", base)
    with pytest.raises(TextConflict) as conflict:
        await second.documents.put(THE_OWNER, canvas_id, "theirs\n", base)
    assert conflict.value.details == {"revision_id": revision_of("mine\n"), "text": "mine\n"}
    assert await second.text(canvas_id) == "mine\n"


async def test_repeated_save_of_the_current_text_is_not_a_conflict(instance: Instance):
    canvas_id = await instance.create(PLAN)
    base = revision_of(PLAN)
    await instance.documents.put(THE_OWNER, canvas_id, "mine\n", base)
    again = await instance.documents.put(THE_OWNER, canvas_id, "mine\n", base)
    assert again.revision_id == revision_of("mine\n")
    assert len(await instance.events(canvas_id, "canvas.document.changed")) == 2


async def test_text_that_cannot_be_stored_is_refused(small: Instance):
    canvas_id = await small.create(PLAN)
    documents = Documents(small.transactions, small.audit, max_bytes=2_000)
    await documents.put(THE_OWNER, canvas_id, "é" * 1_000, None)
    for text, problem in (("é" * 1_000 + "a", TooLarge), ("a\x00b", BadInput), ("\ud800", BadInput)):
        with pytest.raises(problem):
            await documents.put(THE_OWNER, canvas_id, text, None)
    assert await small.text(canvas_id) == "é" * 1_000


async def test_only_the_owner_of_a_markdown_canvas_has_a_document(small: Instance):
    page = await small.create(None, spec={"version": 1, "mode": "html"})
    canvas_id = await small.create(PLAN)
    stranger = person("ada", "Ada")
    for principal, name in (
        (THE_OWNER, page),
        (stranger, canvas_id),
        (THE_OWNER, "no such"),
        (THE_OWNER, "x"),
    ):
        for call in (
            small.documents.get(principal, name),
            small.documents.put(principal, name, "mine\n", None),
            small.documents.list_versions(principal, name, None, 10),
            small.documents.restore(principal, name, revision_of(PLAN)),
            small.documents.promote(principal, name),
            small.documents.compare(principal, name, None, None),
            small.documents.take_control(principal, name),
        ):
            with pytest.raises(NotFound):
                await call
    assert await small.text(canvas_id) == PLAN


async def test_change_is_announced_with_its_author_and_its_position(instance: Instance):
    notifications: list[Notification] = []
    instance.notifier.listen(notifications.append)
    canvas_id = await instance.create(None)
    robot = as_program(THE_OWNER, PrincipalKind.SERVICE, "robot")
    document = await instance.documents.put(robot, canvas_id, "a\n", None)
    [event] = await instance.events(canvas_id, "canvas.document.changed")
    assert event["revision_id"] == revision_of("a\n")
    assert event["author"] == {"kind": "person", "id": "robot"}
    assert event["canvas_epoch"] == document.lease.epoch
    assert event["provenance"]["kind"] == "service"

    async def is_notified() -> bool:
        return CanvasAppended(f"owner/{canvas_id}", 2) in notifications

    await wait_for(is_notified)


# --- versions -----------------------------------------------------------------------------------------------


@rule("CT-35")
async def test_promotion_makes_a_version_only_if_the_text_differs(instance: Instance):
    canvas_id = await instance.create("one\n")
    assert (await instance.documents.promote(THE_OWNER, canvas_id)).is_new
    assert not (await instance.documents.promote(THE_OWNER, canvas_id)).is_new
    await instance.documents.put(THE_OWNER, canvas_id, "two\n", None)
    promoted = await instance.documents.promote(THE_OWNER, canvas_id)
    assert promoted.is_new
    assert promoted.document.version_revision_id == revision_of("two\n")
    versions = await instance.documents.list_versions(THE_OWNER, canvas_id, None, 10)
    assert [(one.version_no, one.revision_id, one.size) for one in versions] == [
        (2, revision_of("two\n"), 4),
        (1, revision_of("one\n"), 4),
    ]
    assert versions[0].author.id == "owner"
    assert await instance.documents.list_versions(THE_OWNER, canvas_id, 2, 10) == versions[1:]


async def test_restored_version_is_the_draft_and_the_replaced_text_can_be_restored_too(instance: Instance):
    canvas_id = await instance.create("one\n")
    await instance.documents.promote(THE_OWNER, canvas_id)
    await instance.documents.put(THE_OWNER, canvas_id, "unsaved work\n", None)
    restored = await instance.documents.restore(THE_OWNER, canvas_id, revision_of("one\n"))
    assert restored.text == "one\n"
    again = await instance.documents.restore(THE_OWNER, canvas_id, revision_of("unsaved work\n"))
    assert again.text == await instance.text(canvas_id) == "unsaved work\n"
    with pytest.raises(NotFound):
        await instance.documents.restore(THE_OWNER, canvas_id, revision_of("never written"))


async def test_empty_first_revision_is_compared_and_restored(instance: Instance):
    canvas_id, empty = await instance.create("one\n"), revision_of("")
    assert "+one\n" in (await instance.documents.compare(THE_OWNER, canvas_id, empty, None)).diff
    assert (await instance.documents.restore(THE_OWNER, canvas_id, empty)).text == ""
    assert (await instance.documents.restore(THE_OWNER, canvas_id, revision_of("one\n"))).text == "one\n"
    with pytest.raises(NotFound):
        await instance.documents.restore(THE_OWNER, unique("none"), empty)


async def test_restore_makes_the_text_a_version_that_was_saved_at_the_last_moment(
    instances: list[Instance], monkeypatch: pytest.MonkeyPatch
):
    """Another tab saves after the restore has read its revision, and before it locks the document."""
    one, other = instances
    canvas_id = await one.create("one\n")
    await one.documents.promote(THE_OWNER, canvas_id)
    await one.documents.put(THE_OWNER, canvas_id, "two\n", None)
    apply = one.transactions.apply
    calls = 0

    async def apply_after_a_save(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        await other.store.change(OWNER, canvas_id, write(f"saved {calls}\n"))
        return await apply(*args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(one.transactions, "apply", apply_after_a_save)
        await one.documents.restore(THE_OWNER, canvas_id, revision_of("one\n"))
    assert await one.text(canvas_id) == "one\n"
    kept = [revision for revision, _ in await list_authors(one.store, canvas_id)]
    assert kept == [revision_of(text) for text in ("one\n", "two\n", f"saved {calls}\n")]


async def test_differences_of_two_revisions_and_of_the_current_text(instance: Instance):
    canvas_id = await instance.create("one\ntwo\n")
    first = await instance.documents.compare(THE_OWNER, canvas_id, None, None)
    assert "+one\n+two\n" in first.diff
    await instance.documents.promote(THE_OWNER, canvas_id)
    await instance.documents.put(THE_OWNER, canvas_id, "one\n2\n", None)
    current = await instance.documents.compare(THE_OWNER, canvas_id, None, None)
    assert (current.from_revision, current.to_revision) == (
        revision_of("one\ntwo\n"),
        revision_of("one\n2\n"),
    )
    assert "-two\n+2\n" in current.diff
    backwards = await instance.documents.compare(
        THE_OWNER, canvas_id, current.to_revision, current.from_revision
    )
    assert "-2\n+two\n" in backwards.diff
    same = await instance.documents.compare(THE_OWNER, canvas_id, current.to_revision, None)
    assert same.diff == ""


async def test_restore_promote_and_take_control_are_recorded(small: Instance):
    session = unique("s")
    canvas_id = await small.create("one\n", session=session)
    await small.documents.promote(THE_OWNER, canvas_id)
    await small.documents.promote(THE_OWNER, canvas_id)
    await small.documents.put(THE_OWNER, canvas_id, "two\n", None)
    await small.documents.restore(THE_OWNER, canvas_id, revision_of("one\n"))
    claim = await small.start(session)
    await small.check_out(claim)
    await small.documents.take_control(THE_OWNER, canvas_id)
    await small.documents.take_control(THE_OWNER, canvas_id)
    records = await small.audit.list_records(THE_OWNER, limit=10)
    assert [record.action for record in records if record.action.startswith("document.")] == [
        "document.control_taken",
        "document.restored",
        "document.promoted",
    ]


# --- people and agents --------------------------------------------------------------------------------------


@rule("RS-49", "CT-19")
async def test_write_of_a_person_wins_over_the_lease_of_an_agent(instances: list[Instance]):
    one, other = instances
    session = unique("s")
    canvas_id = await one.create(PLAN, session=session)
    claim = await one.start(session)
    lease_id = await one.check_out(claim)
    await one.call(claim, "read_all", lease_id=lease_id)
    epoch = (await one.get(canvas_id)).lease.epoch
    saved = await other.documents.put(THE_OWNER, canvas_id, "mine\n", revision_of(PLAN))
    assert saved.lease.epoch == epoch + 1
    assert await one.holder(canvas_id) is None
    answer = await one.call(claim, "apply_patch", lease_id=lease_id, patch=EDIT)
    assert (answer["ok"], answer["code"]) == (False, "STALE_EPOCH")
    assert answer["revision_id"] == revision_of("mine\n")
    assert (await one.call(claim, "check_out"))["code"] == "STALE_EPOCH"
    assert await other.text(canvas_id) == "mine\n"
    ended = (await one.events(canvas_id, "canvas.lease.changed"))[-1]
    assert (ended["lease"], ended["canvas_epoch"]) == (None, epoch + 1)


@rule("RS-49", "CT-18", "CT-19")
async def test_save_with_an_old_base_interrupts_the_agent_all_the_same(instances: list[Instance]):
    one, other = instances
    session = unique("s")
    canvas_id = await one.create(PLAN, session=session)
    claim = await one.start(session)
    lease_id = await one.check_out(claim)
    assert (await one.edit(claim, lease_id, EDIT))["ok"]
    epoch = (await one.get(canvas_id)).lease.epoch
    with pytest.raises(TextConflict) as conflict:
        await other.documents.put(THE_OWNER, canvas_id, "mine\n", revision_of(PLAN))
    assert conflict.value.details == {"revision_id": revision_of(EDITED), "text": EDITED}
    assert await one.holder(canvas_id) is None
    ended = (await one.events(canvas_id, "canvas.lease.changed"))[-1]
    assert (ended["lease"], ended["canvas_epoch"], ended["reason"]) == (None, epoch + 1, "conflict")
    answer = await one.edit(claim, lease_id, "@@ -5 +5 @@\n-- one\n+- 1\n")
    assert (answer["ok"], answer["code"]) == (False, "STALE_EPOCH")
    saved = await other.documents.put(THE_OWNER, canvas_id, "mine\n", revision_of(EDITED))
    assert saved.text == "mine\n"


@rule("CT-18", "CT-19")
async def test_take_control_ends_the_lease_at_once(instances: list[Instance]):
    one, other = instances
    session = unique("s")
    canvas_id = await one.create(PLAN, session=session)
    claim = await one.start(session)
    lease_id = await one.check_out(claim)
    taken = await other.documents.take_control(THE_OWNER, canvas_id)
    assert await one.holder(canvas_id) is None
    assert (await one.edit(claim, lease_id, EDIT))["code"] == "STALE_EPOCH"
    assert await one.text(canvas_id) == PLAN
    again = await other.documents.take_control(THE_OWNER, canvas_id)  # there is nothing to end
    assert again.lease.epoch == taken.lease.epoch


@rule("RS-49")
async def test_drafts_record_their_author_so_that_work_of_an_agent_is_not_reported_as_the_users(
    instance: Instance,
):
    session = unique("s")
    canvas_id = await instance.create(PLAN, session=session)
    claim = await instance.start(session)
    lease_id = await instance.check_out(claim)
    assert (await instance.edit(claim, lease_id, EDIT))["ok"]
    await instance.documents.put(THE_OWNER, canvas_id, "mine\n", None)
    drafts = await instance.store.list_unreported(OWNER, claim.session_id)
    assert [(draft.author.kind.value, draft.author.run_id, draft.text) for draft in drafts] == [
        ("person", None, PLAN),
        ("assistant", claim.run_id, EDITED),
        ("person", None, "mine\n"),
    ]


async def test_run_whose_lease_expired_before_a_person_wrote_may_check_out_again(instance: Instance):
    session = unique("s")
    canvas_id = await instance.create(PLAN, session=session)
    claim = await instance.start(session)
    await instance.check_out(claim)
    await instance.expire(canvas_id)
    await instance.documents.put(THE_OWNER, canvas_id, EDITED, None)
    lease_id = await instance.check_out(claim)
    assert (await instance.edit(claim, lease_id, "@@ -6 +6 @@\n-- 2\n+- zwei\n"))["ok"]


# --- in a team ----------------------------------------------------------------------------------------------

# A member of the account whose documents these are, who is not the person of this account.
BOB = replace(person("bob", "Bob"), account_id=OWNER, role=Role.MEMBER)
CAL = replace(person("cal", "Cal"), account_id=OWNER, role=Role.MEMBER)


@rule("CT-18", "RS-49", "RS-76")
async def test_write_of_another_member_ends_the_lease_of_an_agent_as_ones_own_does(instances: list[Instance]):
    one, other = instances
    for writer in (THE_OWNER, BOB):
        session = unique("s")
        canvas_id = await one.create(session=session)
        claim = await one.start(session)
        assert claim.started_by == OWNER
        lease_id = await one.check_out(claim)
        saved = await other.documents.put(writer, canvas_id, "theirs\n", revision_of(PLAN))
        assert (saved.text, await one.holder(canvas_id)) == ("theirs\n", None)
        assert (await one.edit(claim, lease_id, EDIT))["code"] == "STALE_EPOCH"


@rule("RS-76")
async def test_save_in_a_team_needs_the_revision_that_was_edited(instance: Instance):
    canvas_id = await instance.create(PLAN)
    service = as_program(BOB, PrincipalKind.SERVICE, "ci")
    for writer in (BOB, service):
        for name in (canvas_id, unique("none")):
            with pytest.raises(BadInput, match="base_revision_id: is required in a team"):
                await instance.documents.put(writer, name, "theirs\n", None)
    assert await instance.text(canvas_id) == PLAN
    await instance.documents.put(as_program(THE_OWNER, PrincipalKind.SERVICE), canvas_id, "own\n", None)


@rule("RS-76")
@case("C7")
async def test_second_of_two_members_gets_the_newer_text(instances: list[Instance]):
    first, second = instances
    canvas_id, base = await first.create(PLAN), revision_of(PLAN)
    await first.documents.put(BOB, canvas_id, "of bob\n", base)
    with pytest.raises(TextConflict) as conflict:
        await second.documents.put(CAL, canvas_id, "of cal\n", base)
    assert conflict.value.details == {"revision_id": revision_of("of bob\n"), "text": "of bob\n"}
    await second.documents.put(CAL, canvas_id, "both\n", revision_of("of bob\n"))
    await second.documents.promote(CAL, canvas_id)
    [newest, *_] = await second.documents.list_versions(BOB, canvas_id, None, 10)
    assert newest.author.id == "cal"
