"""A run is given its session: earlier turns within a budget, from few queries, with a stable beginning."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.document.hidden_update import format_diff_update, format_read_again, format_text_update
from easel.core.run.context import turn_tokens
from easel.core.run.conversation import ProviderData, Step, Text, Turn
from easel.core.run.status import Status
from easel.errors import NotFound
from easel.host.runs import context
from easel.host.runs import images as images_module
from easel.host.runs import turns as turns_module
from easel.host.runs.turns import TurnLoader
from easel.ids import OWNER, CanvasId, RunId, SessionId
from tests.host.conftest import TestTool
from tests.host.runs.models import CHOICE, Pause, RemoteModel, calls
from tests.host.runs.talk import Talk
from tests.host.runs.workers import AFTER_CLAIM, CRASHED_WORKER, script, wait_until_ended, working
from tests.requirements import rule
from tests.stores.documents import ANN, NAME, change, create_document, write
from tests.support.principals import THE_OWNER
from tests.support.waiting import within_timeout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from easel.core.run.conversation import Conversation
    from easel.ids import AccountId, ArtifactId
    from tests.host.conftest import RunHarness


@pytest.fixture
def talk(harness: RunHarness) -> Talk:
    return Talk(harness)


async def test_run_sees_earlier_messages_calls_and_results(talk: Talk):
    await talk.say("first", [Text("Looking."), calls("gsv__Echo", value="v" * 1_500)], [Text("Found it.")])
    await talk.say("second")
    assert talk.conversation.user_message == "second"
    [turn] = talk.conversation.turns
    assert turn.user_message == "first"
    looked, found = turn.steps
    assert (looked.text, found.text) == ("Looking.", "Found it.")
    assert [(call.tool, call.args) for call in looked.calls] == [("gsv__Echo", {"value": "v" * 1_500})]
    assert [result.value for result in looked.results] == ["v" * 1_500]
    assert (talk.conversation.note, talk.conversation.steps, talk.conversation.system[:7]) == (
        None,
        (),
        "You are",
    )


async def test_result_in_an_artifact_is_restored_and_shortened(talk: Talk):
    await talk.say("first", [calls("gsv__Echo", value="word " * 1_500)], [Text("ok")])
    await talk.say("second")
    [turn] = talk.conversation.turns
    value = turn.steps[0].results[0].value
    assert value.startswith("word " * 300)
    assert "[Shortened: the first 2000 of 7500 characters. To read the rest, call gsv__Echo with" in value


async def test_turn_whose_artifact_is_gone_is_rebuilt_from_its_messages(
    talk: Talk, harness: RunHarness, monkeypatch: pytest.MonkeyPatch
):
    await talk.say("first", [calls("gsv__Echo", value="word " * 1_500)], [Text("Found it.")])

    async def read_nothing(account_id: AccountId, artifact_id: ArtifactId) -> bytes:
        raise NotFound(what="artifact", id=artifact_id)

    monkeypatch.setattr(harness.artifacts, "read", read_nothing)
    await talk.say("second")
    assert talk.conversation.turns[0].steps == (Step("Found it.", ()),)


async def test_conversation_begins_like_the_one_before(talk: Talk):
    former: Conversation | None = None
    for number in range(6):
        await talk.say(f"message {number}")
        given = talk.conversation
        assert [turn.user_message for turn in given.turns] == [f"message {n}" for n in range(number)]
        if former is not None:
            assert given.system == former.system
            assert given.turns[: len(former.turns)] == former.turns
        former = given


async def test_turns_that_do_not_fit_are_left_out_in_coarse_steps(talk: Talk):
    talk.options["choice"] = replace(CHOICE, token_budget=3_000)
    starts: list[str] = []
    for number in range(16):
        await talk.say(f"message {number} " + "x" * 1_000)
        shown = [turn.user_message.split()[1] for turn in talk.conversation.turns]
        assert shown == [str(n) for n in range(number - len(shown), number)], "turns are whole and newest"
        first = shown[0] if shown else str(number)
        omitted = range(int(first))
        note = talk.conversation.note or ""
        assert [f"- message {n} x" in note for n in range(number)] == [n in omitted for n in range(number)]
        starts.append(first)
    changes = sum(before != after for before, after in itertools.pairwise(starts))
    assert starts[-1] > "0"
    assert 1 <= changes <= 3, f"the beginning changed too often: {starts}"


async def test_beginning_is_the_same_without_what_is_in_memory(talk: Talk):
    """Every call of `say` uses a worker of its own, as if the process had been restarted."""
    talk.options["choice"] = replace(CHOICE, token_budget=3_000)
    for number in range(13):
        await talk.say(f"message {number} " + "x" * 1_000)
    assert talk.conversation.note is not None
    one_worker = Talk(talk.harness, choice=talk.options["choice"])
    model = RemoteModel([Text("ok")])
    async with working(talk.harness.worker(model=model, choice=talk.options["choice"])):
        for number in range(13, 15):
            run_id = await talk.harness.start(f"message {number} " + "x" * 1_000)
            await wait_until_ended(talk.harness, run_id)
    await one_worker.say("last")
    assert (
        one_worker.conversation.turns[: len(model.conversations[-1].turns)] == model.conversations[-1].turns
    )
    assert one_worker.conversation.note == model.conversations[-1].note


async def test_taken_over_run_is_given_the_same_turns(talk: Talk, harness: RunHarness):
    for number in range(4):
        await talk.say(f"message {number} " + "x" * 1_000)
    pause = Pause()
    lost_model = RemoteModel([calls("gsv__Clock")], [pause])
    run_id = await harness.start("go on")
    lost = harness.worker(model=lost_model, choice=CHOICE)
    assert await lost.once() == 1
    await within_timeout(pause.reached.wait())
    harness.clock.ahead += AFTER_CLAIM
    model = RemoteModel([Text("ok")])
    # The budget is smaller now, but the signatures of the first step need the same beginning.
    async with working(harness.worker(model=model, choice=replace(CHOICE, token_budget=1_000))):
        await wait_until_ended(harness, run_id)
        pause.may_go_on.set()
    assert model.conversations[0].turns == lost_model.conversations[0].turns
    assert len(model.conversations[0].turns) == 4


async def test_shortened_log_is_rebuilt_from_its_messages(talk: Talk, harness: RunHarness):
    await talk.say("first", [Text("Looking."), calls("gsv__Clock")], [Text("Found it.")])
    harness.clock.ahead += 1_000
    assert await harness.runs.prune(500)
    await talk.say("second")
    [turn] = talk.conversation.turns
    assert turn.user_message == "first"
    assert turn.steps == (Step("Looking.\n\nFound it.", ()),)


async def test_call_that_was_cancelled_is_not_given_without_its_result(talk: Talk, harness: RunHarness):
    inside = asyncio.Event()

    async def endless(_: Mapping[str, Any]) -> Any:
        inside.set()
        await asyncio.Event().wait()

    model = RemoteModel([Text("Calling."), calls("gsv__Clock"), calls("t", call_id="call_2")])
    run_id = await harness.start("first")
    async with working(harness.worker(TestTool("t", endless), model=model, choice=CHOICE)):
        await within_timeout(inside.wait())
        await harness.queue.cancel(THE_OWNER, run_id)
        await wait_until_ended(harness, run_id)
    await talk.say("second")
    [turn] = talk.conversation.turns
    assert [[call.tool for call in step.calls] for step in turn.steps] == [["gsv__Clock"], []]
    assert turn.steps[-1].text == "[The user cancelled this answer.]"


async def test_later_messages_of_the_session_are_not_given(harness: RunHarness):
    runs = [await harness.start(text) for text in ("first", "second", "third")]
    model = RemoteModel([Text("ok")])
    async with working(harness.worker(model=model, choice=CHOICE)):
        for run_id in runs:
            await wait_until_ended(harness, run_id)
    assert [[turn.user_message for turn in given.turns] for given in model.conversations] == [
        [],
        ["first"],
        ["first", "second"],
    ]


async def test_new_session_of_the_same_id_sees_nothing_of_the_deleted_one(harness: RunHarness):
    model = RemoteModel([Text("ok")])
    async with working(harness.worker(model=model, choice=CHOICE)):
        await wait_until_ended(harness, await harness.start("secret"))
        await wait_until_ended(harness, await harness.start("more"))
        assert await harness.database.sessions.delete(OWNER, SessionId("s")) is not None
        await wait_until_ended(harness, await harness.start("hello"))
    assert [len(given.turns) for given in model.conversations] == [0, 1, 0]


class CountingTurns:
    def __init__(self, harness: RunHarness) -> None:
        self._store = harness.database.runs
        self.queries: list[tuple[str, int]] = []

    async def list_turns(self, claim: Any, *, before: RunId, limit: int) -> Any:
        turns = await self._store.list_turns(claim, before=before, limit=limit)
        self.queries.append(("turns", len(turns)))
        return turns

    async def read_logs(self, run_ids: Sequence[RunId], types: Any) -> Any:
        self.queries.append(("logs", len(run_ids)))
        return await self._store.read_logs(run_ids, types)


async def test_history_is_loaded_by_few_queries_and_once_per_run(harness: RunHarness):
    runs = [
        await harness.start(script({"call": "gsv__Clock"}, {"say": f"answer {number}"}))
        for number in range(45)
    ]
    async with working(harness.worker()):
        await wait_until_ended(harness, runs[-1])
    turns = CountingTurns(harness)
    model = RemoteModel([calls("gsv__Clock")], [Text("ok")], [Text("ok")])
    async with working(harness.worker(model=model, choice=CHOICE, turns=turns)):
        await wait_until_ended(harness, await harness.start("first"))
        assert turns.queries == [("turns", 20), ("logs", 20), ("turns", 25), ("logs", 25)]
        turns.queries.clear()
        await wait_until_ended(harness, await harness.start("second"))
    assert turns.queries == [("turns", 20), ("logs", 1)], "only the newest turn is read"
    assert [len(given.turns) for given in model.conversations] == [45, 45, 46]


async def test_turns_in_memory_are_bounded(harness: RunHarness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turns_module, "MAX_MEMORY_BYTES", 5_000)
    turns = CountingTurns(harness)
    model = RemoteModel([Text("ok")])
    async with working(harness.worker(model=model, choice=CHOICE, turns=turns)):
        for number in range(4):
            await wait_until_ended(harness, await harness.start(f"message {number} " + "x" * 2_000))
    logs = [count for kind, count in turns.queries if kind == "logs"]
    assert logs == [1, 1, 3], "the third run had one turn in memory, the fourth none"
    assert len(model.conversations[-1].turns) == 3


async def test_sessions_without_turns_are_forgotten_too(harness: RunHarness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turns_module, "MAX_MEMORY_BYTES", 10 * turns_module.ENTRY_BYTES)
    loader = TurnLoader(
        harness.database.runs,
        harness.artifacts,
        images_module.ImageReader(harness.artifacts, max_bytes=1_000),
        max_result_bytes=2_000,
    )
    run_id = await harness.start("hello")
    [claim] = await harness.runs.claim_queued(CRASHED_WORKER, 1, 15, 0)
    assert claim.run_id == run_id
    for number in range(30):
        await loader.load(replace(claim, session_id=SessionId(f"session-{number}")), 1_000, None)
    assert len(loader._memory) == 10


async def test_scripted_model_loads_no_history(harness: RunHarness):
    turns = CountingTurns(harness)
    async with working(harness.worker(turns=turns)):
        for _ in range(2):
            await wait_until_ended(harness, await harness.start("noop"))
    assert turns.queries == []


async def test_tools_of_a_run_do_not_change_and_are_sorted(talk: Talk, harness: RunHarness):
    await talk.say("hello", [calls("gsv__Clock")], [Text("ok")])
    names = [[tool.name for tool in tools] for tools in talk.model.tools]
    assert names == [sorted(names[0])] * 2


# --- provider data ------------------------------------------------------------------------------------------


async def test_provider_data_of_earlier_turns_is_kept_while_the_beginning_is_the_same(talk: Talk):
    data = ProviderData("anthropic", {"signature": "s"})
    await talk.say("first", [Text("one"), data])
    await talk.say("second")
    assert talk.conversation.turns[0].steps[0].provider_data == data
    await talk.say("third", choice=replace(CHOICE, model="another"))
    assert talk.conversation.turns[0].steps[0].provider_data is None
    await talk.say("fourth", tools=[TestTool("t", _nothing)])
    assert talk.conversation.turns[0].steps[0].provider_data is None
    await talk.say("fifth")
    assert talk.conversation.turns[0].steps[0].provider_data == data


async def test_provider_data_is_not_sent_after_results_that_were_shortened(talk: Talk):
    answers = [
        [calls("t", call_id=f"call_{nth}"), ProviderData("anthropic", {"n": nth})] for nth in range(12)
    ]
    tool = TestTool("t", _long)
    small = replace(CHOICE, token_budget=6_000)
    await talk.say("first", *answers, [Text("ok")], tools=[tool], choice=small)
    given = talk.model.conversations
    kept = 0
    for conversation in given:
        assert turn_tokens(Turn(RunId("r"), "", conversation.steps)) <= 6_000
        for nth, step in enumerate(conversation.steps):
            if step.provider_data is not None:
                kept += 1
                assert _values(given[nth].steps) == _values(conversation.steps[:nth])
    assert given[-1].steps[0].results[0].value != given[1].steps[0].results[0].value
    assert kept >= 12
    await talk.say("second", tools=[tool])
    steps = talk.conversation.turns[0].steps
    signed = [nth for nth, step in enumerate(steps) if step.provider_data is not None]
    assert signed
    assert all(_values(given[nth].steps) == _values(steps[:nth]) for nth in signed)


async def _long(_: Mapping[str, Any]) -> Any:
    return "v" * 1_900


def _values(steps: Sequence[Step]) -> list[Any]:
    return [result.value for step in steps for result in step.results]


@rule("CT-52")
async def test_provider_data_is_not_sent_after_another_text_of_the_document(
    document_talk: Talk, harness: RunHarness
):
    """The text precedes the message of one run only, so the next run has other messages before the answer."""
    talk, data = document_talk, ProviderData("anthropic", {"signature": "s"})
    talk.options["choice"] = replace(CHOICE, token_budget=4_000)
    await edit(harness, "a line\n" * 10_000)
    await talk.say("first", [Text("one"), data])
    assert talk.conversation.updates_before == (format_read_again([NAME]),)
    await talk.say("second")
    assert [step.provider_data for step in talk.conversation.turns[0].steps] == [None]


async def _nothing(_: Mapping[str, Any]) -> Any:
    return None


# --- documents ----------------------------------------------------------------------------------------------


@pytest.fixture
async def document_talk(harness: RunHarness) -> Talk:
    await create_document(harness.database.canvases, owner_session_key="agent:main:s")
    return Talk(harness, documents=harness.database.documents)


async def edit(harness: RunHarness, text: str, name: str = NAME) -> None:
    await change(harness.database.documents, write(text, ANN), name)


@rule("CT-52")
async def test_whole_text_replaces_updates_when_turns_were_left_out(document_talk: Talk, harness: RunHarness):
    talk, text = document_talk, ""
    talk.options["choice"] = replace(CHOICE, token_budget=4_000)
    for number in range(10):
        text += f"line {number}\n"
        await edit(harness, text)
        await talk.say(f"message {number} " + "x" * 1_500)
        given = talk.conversation
        updates = [update for turn in given.turns for update in (*turn.updates_before, *turn.updates_after)]
        if given.note is None:
            assert len([*updates, *given.updates_before]) == number + 1, "the chain of updates has a hole"
        else:
            assert updates == []
            assert given.updates_before == (format_text_update(text, NAME),), (
                "the current text is sent whole once"
            )
    assert talk.conversation.note is not None


@rule("CT-52", "CT-53")
async def test_every_document_of_a_long_session_is_given_whole_or_named(
    document_talk: Talk, harness: RunHarness
):
    """An edit of the older document reaches the run that answers the next message, with its name."""
    talk = document_talk
    talk.options["choice"] = replace(CHOICE, token_budget=6_000)
    await create_document(harness.database.canvases, "newer", owner_session_key="agent:main:s")
    await edit(harness, "the plan\n")
    await edit(harness, "newer text\n", "newer")
    for number in range(5):
        await talk.say(f"message {number} " + "x" * 6_000)
    assert talk.conversation.note is not None
    await edit(harness, "the plan was changed\n")
    await talk.say("I changed the plan, go on")
    plan, newer = (format_text_update("the plan was changed\n", NAME), text_of_newer("newer text\n"))
    assert talk.conversation.updates_before == (plan, newer), "what changed is first"
    await talk.say("go on")
    assert talk.conversation.updates_before == (newer, plan)
    await edit(harness, "n" * 4_000, "newer")
    await edit(harness, "p" * 4_000)
    await talk.say("go on")
    assert talk.conversation.updates_before == (
        format_text_update("p" * 4_000, NAME),
        format_read_again([CanvasId("newer")]),
    ), "the texts have one budget together"
    await edit(harness, "n" * 8_000, "newer")
    await edit(harness, "p" * 8_000)
    await talk.say("go on")
    assert talk.conversation.updates_before == (format_read_again([NAME, CanvasId("newer")]),)


def text_of_newer(text: str) -> str:
    return format_text_update(text, CanvasId("newer"))


@rule("CT-52")
async def test_of_many_documents_few_are_read_and_the_newest_are_named(
    document_talk: Talk, harness: RunHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(context, "MAX_WHOLE_DOCUMENTS", 1)
    monkeypatch.setattr(context, "MAX_NAMED_DOCUMENTS", 2)
    for name in ("b", "c"):
        await create_document(harness.database.canvases, name, owner_session_key="agent:main:s")
    await edit(harness, "a line\n" * 10_000)
    await edit(harness, "c\n", "c")
    await document_talk.say("first", choice=replace(CHOICE, token_budget=4_000))
    assert document_talk.conversation.updates_before == (
        format_text_update("c\n", CanvasId("c")),
        format_read_again([CanvasId("b")], has_more=True),
    )


@rule("CT-52")
async def test_large_text_is_replaced_by_the_advice_to_read_it(document_talk: Talk, harness: RunHarness):
    talk = document_talk
    talk.options["choice"] = replace(CHOICE, token_budget=4_000)
    await edit(harness, "x" * 6_000)
    await talk.say("first " + "x" * 8_000)
    await talk.say("second " + "x" * 8_000)
    assert talk.conversation.note is not None
    assert talk.conversation.updates_before == (format_read_again([NAME]),)


@rule("CT-52")
async def test_large_update_does_not_exceed_the_budget(document_talk: Talk, harness: RunHarness):
    talk = document_talk
    talk.options["choice"] = replace(CHOICE, token_budget=4_000)
    await edit(harness, "a line\n" * 10_000)
    await talk.say("first")
    assert talk.conversation.updates_before == (format_read_again([NAME]),)
    await edit(harness, "short\n")
    await talk.say("second")
    assert talk.conversation.updates_before == (format_text_update("short\n", NAME),), "smaller than the diff"
    await talk.say("third")
    given = talk.conversation
    assert given.updates_before == (format_text_update("short\n", NAME),)
    assert given.note is None
    assert [turn.user_message for turn in given.turns] == ["first", "second"], (
        "turns are left out for nothing"
    )
    assert all(turn.updates_before == () for turn in given.turns)


@rule("CT-52")
async def test_taken_over_run_is_given_the_text_again_that_replaced_a_large_update(
    document_talk: Talk, harness: RunHarness
):
    small = replace(CHOICE, token_budget=4_000)
    await edit(harness, "a line\n" * 10_000)
    await document_talk.say("first", choice=small)
    await edit(harness, "short\n")
    pause = Pause()
    lost_model = RemoteModel([calls("gsv__Clock")], [pause])
    run_id = await harness.start("second")
    lost = harness.worker(model=lost_model, choice=small, documents=harness.database.documents)
    assert await lost.once() == 1
    await within_timeout(pause.reached.wait())
    await edit(harness, "changed\n")
    harness.clock.ahead += AFTER_CLAIM
    model = RemoteModel([Text("ok")])
    # Now the update would fit.
    async with working(harness.worker(model=model, choice=CHOICE, documents=harness.database.documents)):
        await wait_until_ended(harness, run_id)
        pause.may_go_on.set()
    assert lost_model.conversations[0].updates_before == (format_text_update("short\n", NAME),)
    assert model.conversations[0].updates_before == (format_text_update("short\n", NAME),)


@rule("CT-52")
async def test_whole_text_stays_that_of_the_start_of_the_run(document_talk: Talk, harness: RunHarness):
    talk = document_talk
    small = replace(CHOICE, token_budget=4_000)
    await create_document(harness.database.canvases, "newer", owner_session_key="agent:main:s")
    await edit(harness, "start\n")
    await edit(harness, "n" * 5_000, "newer")
    for number in range(3):
        await talk.say(f"message {number} " + "x" * 6_000, choice=small)
    pause = Pause()
    lost_model = RemoteModel([calls("gsv__Clock")], [pause])
    run_id = await harness.start("go on")
    lost = harness.worker(model=lost_model, choice=small, documents=harness.database.documents)
    assert await lost.once() == 1
    await within_timeout(pause.reached.wait())
    await edit(harness, "changed\n")
    await edit(harness, "short\n", "newer")
    harness.clock.ahead += AFTER_CLAIM
    model = RemoteModel([Text("ok")])
    worker = harness.worker(model=model, choice=small, documents=harness.database.documents)
    async with working(worker):
        run = await wait_until_ended(harness, run_id)
        pause.may_go_on.set()
    assert run.status is Status.COMPLETED
    given = (format_text_update("start\n", NAME), format_read_again([CanvasId("newer")]))
    assert lost_model.conversations[0].updates_before == given
    assert model.conversations[0].updates_before == given


@rule("CT-02")
async def test_updates_are_not_given_if_the_tools_for_documents_are_off(
    document_talk: Talk, harness: RunHarness
):
    await edit(harness, "a\n")
    await document_talk.say("first")
    assert document_talk.conversation.updates_before == (format_diff_update("", "a\n"),)
    await Talk(harness).say("second")
    off = Talk(harness)
    await off.say("third")
    assert [turn.updates_before for turn in off.conversation.turns] == [(), ()]
