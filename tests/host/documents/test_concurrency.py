"""Many agents and a user at once, and work that must not block the process."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from easel.core.document.document import revision_of
from easel.host.documents import answers
from easel.host.documents.answers import ToolRules
from tests.host.documents.harness import PLAN, Instance, unique
from tests.requirements import case, rule
from tests.support.length import examples
from tests.support.principals import THE_OWNER
from tests.support.standstill import Stopwatch

if TYPE_CHECKING:
    from pathlib import Path

    from easel.core.run.run import Claim

AGENTS = 50
LONG = "".join(f"- item {number} of a long list\n" for number in range(34_000))  # 1 MB
EDIT = "@@ -6 +6 @@\n-- two\n+- 2\n"


@rule("CT-10", "CT-36")
@case("C1")
async def test_of_many_check_outs_on_two_instances_exactly_one_succeeds(instances: list[Instance]):
    canvas_id = await instances[0].create(PLAN)
    claims = [await instances[number % 2].start(unique("s")) for number in range(AGENTS)]
    for _ in range(examples(20)):
        results = await asyncio.gather(
            *(
                instances[number % 2].call(claim, "check_out", canvas_id=canvas_id)
                for number, claim in enumerate(claims)
            )
        )
        codes = Counter(answer.get("code", "ok") for answer in results)
        assert codes == {"ok": 1, "LOCK_NOT_AVAILABLE": AGENTS - 1}
        [winner] = [number for number, answer in enumerate(results) if answer["ok"]]
        assert await instances[1].holder(canvas_id) == claims[winner].run_id
        lease_id = results[winner]["lease_id"]
        released = await instances[0].call(claims[winner], "check_in", lease_id=lease_id)
        assert released["released"]


class Barrier:
    """Stops `apply_patch` in its thread until it is opened."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = threading.Event()
        self._loop = asyncio.get_running_loop()

    def wrap(self, work: Any) -> Any:
        def wait_and_work(*args: Any, **more: Any) -> Any:
            self._loop.call_soon_threadsafe(self.entered.set)
            assert self.opened.wait(60)
            return work(*args, **more)

        return wait_and_work


@rule("CT-18", "CT-19")
@case("C2")
@pytest.mark.parametrize("act", ["message", "cancel", "write"])
async def test_user_who_acts_while_a_patch_is_applied_wins(
    instances: list[Instance], monkeypatch: pytest.MonkeyPatch, act: str
):
    one, other = instances
    session = unique("s")
    canvas_id = await one.create(LONG, session=session)
    claim = await one.start(session)
    lease_id = await one.check_out(claim)
    await one.call(claim, "read_lines", lease_id=lease_id, start_line=1, end_line=9)
    epoch = (await one.get(canvas_id)).lease.epoch
    barrier = Barrier()
    monkeypatch.setattr(answers, "apply_patch", barrier.wrap(answers.apply_patch))
    patch = "@@ -6 +6 @@\n-- item 5 of a long list\n+- item five\n"
    patching = asyncio.create_task(one.call(claim, "apply_patch", lease_id=lease_id, patch=patch))
    try:
        async with asyncio.timeout(60):
            await barrier.entered.wait()
        text = LONG
        if act == "message":
            await other.queue.start(THE_OWNER, session, "stop")
        elif act == "cancel":
            await other.queue.cancel(THE_OWNER, claim.run_id)
        else:
            text = "mine\n"
            await other.documents.put(THE_OWNER, canvas_id, text, None)
        watch = Stopwatch()
        assert (await one.get(canvas_id)).lease.epoch == epoch + 1
        assert watch.seconds < 0.1
    finally:
        barrier.opened.set()
    answer = await patching
    assert (answer["ok"], answer["code"]) == (False, "STALE_EPOCH")
    assert answer["revision_id"] == revision_of(text)
    assert await other.text(canvas_id) == text


@case("C7")
async def test_of_two_patches_for_one_revision_the_second_is_rejected(instance: Instance):
    session = unique("s")
    canvas_id = await instance.create(PLAN, session=session)
    claim = await instance.start(session)
    lease_id = await instance.check_out(claim)
    base = revision_of(PLAN)
    assert (await instance.edit(claim, lease_id, EDIT, base_revision_id=base))["ok"]
    second = "@@ -7 +7 @@\n-- three\n+- 3\n"
    answer = await instance.edit(claim, lease_id, second, base_revision_id=base)
    assert (answer["code"], answer["reason"]) == ("PATCH_REJECTED", "base_revision")
    assert answer["revision_id"] == revision_of(PLAN.replace("- two", "- 2"))
    assert await instance.text(canvas_id) == PLAN.replace("- two", "- 2")


# --- hostile arguments --------------------------------------------------------------------------------------


@pytest.fixture
async def editing(small: Instance) -> tuple[Instance, Claim, str]:
    session = unique("s")
    await small.create(LONG, session=session)
    claim = await small.start(session)
    lease_id = await small.check_out(claim)
    await small.call(claim, "read_lines", lease_id=lease_id, start_line=1, end_line=9)
    return small, claim, lease_id


BOMBS = {
    "5 MB": "@@ -1 +1 @@\n-" + "x" * 5_000_000 + "\n+y\n",
    "5 MB of lines": "@@ -1 +1,1000000 @@\n" + "+abc\n" * 1_000_000,
    "200,000 hunks": "".join(f"@@ -{n} +{n} @@\n-a\n+b\n" for n in range(1, 200_001)),
    "long range": "@@ -1,99999999 +1,99999999 @@\n-a\n+b\n",
    "huge number": f"@@ -{'9' * 100_000} +1 @@\n-a\n+b\n",
}


@case("C8")
@pytest.mark.parametrize("bomb", BOMBS)
async def test_patch_bomb_is_rejected_quickly_and_in_little_memory(
    editing: tuple[Instance, Claim, str], bomb: str
):
    instance, claim, lease_id = editing
    process = psutil.Process()
    before = process.memory_info().rss
    watch = Stopwatch()
    answer = await instance.call(claim, "apply_patch", lease_id=lease_id, patch=BOMBS[bomb])
    seconds = watch.seconds
    assert answer["code"] == "PATCH_REJECTED"
    assert seconds < 0.2
    assert process.memory_info().rss - before < 50_000_000
    assert len(str(answer)) < 10_000


HOSTILE = [
    "(a+)+$",
    "(a|a)*b",
    "(a|aa)+$",
    "(.*)*x",
    "((((((((.*)*)*)*)*)*)*)*)*z",
    "(x+x+)+y",
    "([a-z]+)*\\d",
    "(.{1,100}){10}q",
    "(a?){100}a{100}",
    "(\\w+\\s*)+@",
    "(a)\\1",
    "(?:(?:(?:a{1,100}){1,100}){1,100})",
]


@case("C9")
@pytest.mark.parametrize("query", HOSTILE)
async def test_hostile_pattern_ends_quickly_and_blocks_no_other_task(
    editing: tuple[Instance, Claim, str], query: str
):
    """A slow machine is given three attempts: a pattern that blocks the process does so in each of them."""
    instance, claim, lease_id = editing
    measured: list[tuple[float, float]] = []
    for _ in range(3):
        gaps, ticking = [0.0], True

        async def tick(gaps: list[float]) -> None:
            while ticking:  # noqa: B023
                watch = Stopwatch()
                await asyncio.sleep(0.001)
                gaps[0] = max(gaps[0], watch.seconds)

        ticker = asyncio.create_task(tick(gaps))
        watch = Stopwatch()
        answer = await instance.call(claim, "grep", lease_id=lease_id, query=query, regex=True)
        seconds = watch.seconds
        ticking = False
        await ticker
        assert answer["ok"] or answer["code"] == "BAD_INPUT"
        measured.append((seconds, gaps[0]))
        if seconds < 0.25 and gaps[0] < 0.05:
            return
    raise AssertionError(f"seconds and gaps: {measured}")


@rule("CT-60", "CT-29")
async def test_patch_without_a_lease_is_computed_again_if_the_text_changed(
    instances: list[Instance], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Otherwise the text that a person saved while the patch was computed would be lost."""
    loose = Instance(instances[0].database, tmp_path, ToolRules(needs_lease=False))
    session = unique("s")
    canvas_id = await loose.create(LONG, session=session)
    claim = await loose.start(session)
    barrier = Barrier()
    monkeypatch.setattr(answers, "apply_patch", barrier.wrap(answers.apply_patch))
    patch = "@@ -6 +6 @@\n-- item 5 of a long list\n+- item five\n"
    patching = asyncio.create_task(loose.call(claim, "apply_patch", patch=patch))
    try:
        async with asyncio.timeout(60):
            await barrier.entered.wait()
        await instances[1].documents.put(THE_OWNER, canvas_id, LONG + "mine\n", None)
    finally:
        barrier.opened.set()
    assert (await patching)["ok"]
    assert (
        await loose.text(canvas_id) == LONG.replace("- item 5 of a long list\n", "- item five\n") + "mine\n"
    )
