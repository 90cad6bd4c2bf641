"""Runs that edit a document with the real tools: the lease is kept by activity, and ends with the loop."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.document.document import AuthorKind
from easel.core.document.hidden_update import format_diff_update
from easel.core.document.lease import TTL, Held
from easel.core.run.conversation import Text
from easel.core.run.status import Status
from easel.host.documents.answers import ToolRules
from easel.host.documents.leases import LeaseKeeper
from easel.host.documents.tools import document_tools
from easel.host.documents.transactions import DocumentTransactions
from easel.ids import OWNER
from tests.host.conftest import TestTool
from tests.host.runs.models import CHOICE, Pause, RemoteModel, calls
from tests.host.runs.workers import script, wait_until_ended, working
from tests.requirements import case, rule
from tests.stores.documents import ANN, NAME, change, create_document, get_document, write
from tests.support.principals import THE_OWNER
from tests.support.waiting import TIMEOUT_SECONDS, within_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from easel.core.run.conversation import Conversation, Part
    from easel.core.tool.definition import ToolDefinition
    from easel.host.runs.worker import RunWorker
    from tests.host.conftest import RunHarness

TEXT = "# Plan\n\none\ntwo\nthree\n"
PATCH = "@@ -4,1 +4,1 @@\n-two\n+TWO\n"
LONG = 3_600.0  # seconds of a claim: only the lease is tested


class Desktop:
    """The document of the session, the tools that edit it, and the keeper of its lease."""

    def __init__(self, harness: RunHarness) -> None:
        self.harness = harness
        self.store = harness.database.documents
        notifier = harness.database.notifier
        transactions = DocumentTransactions(self.store, harness.artifacts, notifier)
        self.keeper = LeaseKeeper(
            transactions, harness.database.canvases, notifier, clock=lambda: harness.clock() / 1_000_000
        )
        self.tools = document_tools(transactions, self.keeper, ToolRules())

    def worker(self, *tools: Any, **options: Any) -> RunWorker:
        given = {"documents": self.store, "leases": self.keeper, "claim_seconds": LONG, **options}
        return self.harness.worker(*self.tools, *tools, **given)

    async def lease(self) -> Held | None:
        """Return the lease if it is live now, by the clock of the store."""
        document = await get_document(self.store)
        lease = document.lease
        return lease if isinstance(lease, Held) and lease.is_live(document.now) else None


@pytest.fixture
async def desktop(harness: RunHarness) -> Desktop:
    harness.clock.stop()
    await create_document(harness.database.canvases, owner_session_key="agent:main:s")
    await change(harness.database.documents, write(TEXT, ANN))
    return Desktop(harness)


@rule("CT-12", "CT-14", "CT-15")
@case("C4")
async def test_loop_of_60_seconds_keeps_its_lease_and_a_dead_one_loses_it_in_15(
    desktop: Desktop, harness: RunHarness
):
    """Each call takes 5 s of the store's clock; nothing is streamed, and no document tool is called."""
    held: list[Held | None] = []
    dead = asyncio.Event()

    async def work_for_5_seconds(_: Mapping[str, Any]) -> Any:
        harness.clock.ahead += 5
        held.append(await desktop.lease())

    async def die(_: Mapping[str, Any]) -> Any:
        dead.set()
        await asyncio.Event().wait()

    steps = [{"call": "work"}] * 12
    await harness.start(script({"call": "canvas_check_out", "args": {}}, *steps, {"call": "die"}))
    worker = desktop.worker(TestTool("work", work_for_5_seconds), TestTool("die", die))
    assert await worker.once() == 1  # without `work`, so that nothing renews in the background
    await within_timeout(dead.wait())
    assert len(held) == 12
    assert all(lease is not None for lease in held)
    assert len({lease.lease_id for lease in held if lease}) == 1
    last = await desktop.lease()
    assert last is not None
    now = (await get_document(desktop.store)).now
    assert last.expires_at - now <= TTL == timedelta(seconds=15)
    harness.clock.ahead += 15
    assert await desktop.lease() is None, "the lease outlives its worker by at most 15 s"
    assert await desktop.store.list_expired_leases(10) == [(OWNER, NAME)]
    [stuck] = worker._running.values()
    stuck.task.cancel()
    await asyncio.wait([stuck.task])


@rule("CT-14")
async def test_silence_of_over_15_seconds_loses_the_lease(desktop: Desktop, harness: RunHarness):
    async def sleep(_: Mapping[str, Any]) -> Any:
        harness.clock.ahead += 16

    run_id = await harness.start(
        script(
            {"call": "canvas_check_out", "args": {}},
            {"call": "sleep"},
            {"call": "canvas_read_all", "args": {"lease_id": "$1.lease_id"}},
            {"say": "$last.code"},
        )
    )
    async with working(desktop.worker(TestTool("sleep", sleep))):
        await wait_until_ended(harness, run_id)
    results = [event for event in await harness.log(run_id) if event.type == "tool.result"]
    assert '"code":"LEASE_EXPIRED"' in results[-1].data


@rule("CT-16", "RX-49", "RS-47")
@pytest.mark.parametrize("drain_seconds", [TIMEOUT_SECONDS, 0.1])
async def test_run_keeps_its_lease_and_read_lines_when_its_worker_stops(
    desktop: Desktop, harness: RunHarness, drain_seconds: float
):
    inside, may_continue = asyncio.Event(), asyncio.Event()

    async def wait_to_continue(_: Mapping[str, Any]) -> Any:
        inside.set()
        await may_continue.wait()

    tool = TestTool("wait", wait_to_continue)
    run_id = await harness.start(
        script(
            {"call": "canvas_check_out", "args": {}},
            {"call": "canvas_read_all", "args": {"lease_id": "$1.lease_id"}},
            {"call": "wait"},
            {"call": "canvas_apply_patch", "args": {"lease_id": "$1.lease_id", "patch": PATCH}},
        )
    )
    async with working(desktop.worker(tool, drain_seconds=drain_seconds)) as stop:
        await within_timeout(inside.wait())
        stop.set()
        await asyncio.sleep(0)
        if drain_seconds == TIMEOUT_SECONDS:
            may_continue.set()
    assert (await harness.run(run_id)).status is Status.QUEUED
    assert await desktop.lease() is not None
    may_continue.set()
    async with working(Desktop(harness).worker(tool)):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.COMPLETED
    assert (await get_document(desktop.store)).text == TEXT.replace("two", "TWO")
    assert await desktop.lease() is None


@rule("CT-16", "CT-46", "CT-54", "CT-63")
async def test_model_edits_a_document_and_leaves_it_free(desktop: Desktop, harness: RunHarness):
    leases: list[Held | None] = []

    class Editor(RemoteModel):
        async def reply(
            self, conversation: Conversation, tools: Sequence[ToolDefinition]
        ) -> AsyncIterator[Part]:
            leases.append(await desktop.lease())
            results = [result.value for result in conversation.results]
            lease = {"lease_id": results[0]["lease_id"]} if results else {}
            base = {"base_revision_id": results[-1]["revision_id"]} if results else {}
            parts: list[Part] = [
                calls("canvas_check_out", call_id="call_1"),
                calls("canvas_grep", call_id="call_2", query="two", **lease),
                calls("canvas_apply_patch", call_id="call_3", patch=PATCH, **lease, **base),
                Text("Done."),
            ]
            self.conversations.append(conversation)
            yield parts[len(results)]

    model = Editor([])
    run_id = await harness.start("write two in capitals")
    async with working(desktop.worker(model=model, choice=CHOICE)):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.COMPLETED
    document = await get_document(desktop.store)
    assert document.text == TEXT.replace("two", "TWO")
    assert [lease is not None for lease in leases] == [False, True, True, True]
    assert await desktop.lease() is None
    [version, _] = await desktop.store.list_versions(OWNER, NAME, before=None, limit=9)
    assert (version.author.kind, version.author.run_id) == (AuthorKind.ASSISTANT, run_id)
    model = RemoteModel([Text("ok")])
    following = await harness.start("thanks")
    async with working(desktop.worker(model=model, choice=CHOICE)):
        await wait_until_ended(harness, following)
    [turn] = model.conversations[0].turns
    assert turn.updates_before == (format_diff_update("", TEXT),)
    assert turn.updates_after == (format_diff_update(TEXT, document.text),)
    assert "Do not retype target text" in model.conversations[0].system


@rule("CT-44", "RS-52")
async def test_rejected_patches_end_the_run_and_earlier_edits_stay(desktop: Desktop, harness: RunHarness):
    wrong = "@@ -1,1 +1,1 @@\n-not there\n+x\n"
    edit = {"lease_id": "$1.lease_id"}
    run_id = await harness.start(
        script(
            {"call": "canvas_check_out", "args": {}},
            {"call": "canvas_read_all", "args": edit},
            {"call": "canvas_apply_patch", "args": {**edit, "patch": PATCH}},
            *[{"call": "canvas_apply_patch", "args": {**edit, "patch": wrong}}] * 4,
        )
    )
    async with working(desktop.worker()):
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.FAILED
    assert (run.error_message or "").startswith("3 patches in a row were rejected")
    assert (await get_document(desktop.store)).text == TEXT.replace("two", "TWO")
    [version, _] = await desktop.store.list_versions(OWNER, NAME, before=None, limit=9)
    assert version.author.run_id == run_id, "the work is kept, as the assistant's"
    assert await desktop.lease() is None


@rule("CT-18", "CT-19", "CT-44")
async def test_message_of_the_user_interrupts_the_edit_of_a_run(desktop: Desktop, harness: RunHarness):
    pause = Pause()
    model = RemoteModel(
        [calls("canvas_check_out")], [pause, calls("canvas_read_all", lease_id="x")], [Text("ok")]
    )
    run_id = await harness.start("edit it")
    async with working(desktop.worker(model=model, choice=CHOICE)):
        await within_timeout(pause.reached.wait())
        assert await desktop.lease() is not None
        await harness.queue.start(THE_OWNER, "s", "stop that")
        assert await desktop.lease() is None, "the message ends the lease at once"
        pause.may_go_on.set()
        run = await wait_until_ended(harness, run_id)
    assert run.status is Status.COMPLETED
