"""The four providers against strict servers of their APIs: every scenario that a run can meet."""

import asyncio
import re
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from easel.core.run.conversation import Conversation, Repeated, Step, Text, ToolCall, ToolResult, Turn, Usage
from easel.errors import ModelFailed
from easel.ids import CallId, RunId
from easel.llm.build import Models, RequestSettings
from easel.llm.request import CUT_OFF
from easel.llm.retries import NO_RETRIES
from easel.llm.schemas import to_wire_name
from tests.llm.talking import (
    CLOCK,
    IMAGE,
    NODE_TOOL,
    TOOLS,
    Talk,
    ask,
    calls,
    choice_of,
    collect,
    take_over,
    texts,
    thoughts,
    to_step,
)
from tests.llm.vendors import VENDORS
from tests.llm.vendors.answers import Answer, Call
from tests.llm.vendors.server import KEY, VendorServer, serve
from tests.requirements import rule
from tests.support.waiting import wait_for

ONE_CALL = Answer(calls=(Call("gsv__Clock", {"zone": "UTC", "n": 1.50}),))


@rule("CT-40", "CT-41", "CT-42", "CT-43", "CT-39")
async def test_tool_is_called_and_its_result_is_answered(provider: str, server: VendorServer, models: Models):
    server.answers += [Answer(text="I look. ", calls=ONE_CALL.calls), Answer(text="It is noon.")]
    talk = Talk(models.build_model(choice_of(provider, server.base_url)))

    assert await talk.say("What time is it?") == "It is noon."
    assert [(call.tool, call.args) for call in talk.steps[0].calls] == [
        ("gsv__Clock", {"zone": "UTC", "n": 1.5})
    ]
    assert not server.rejections
    assert "12:00" in str(server.requests[1])


async def test_parallel_calls_of_one_step_are_all_answered(
    provider: str, server: VendorServer, models: Models
):
    wire_name = to_wire_name(NODE_TOOL.name)
    both = (
        Call("gsv__Clock", {"zone": "a"}),
        Call("gsv__Clock", {"zone": "b"}),
        Call(wire_name, {"command": "x"}),
    )
    server.answers += [Answer(calls=both), Answer(text="Three.")]
    talk = Talk(models.build_model(choice_of(provider, server.base_url)))

    assert await talk.say("Do three things") == "Three."
    assert [call.tool for call in talk.steps[0].calls] == ["gsv__Clock", "gsv__Clock", NODE_TOOL.name]
    assert len({call.call_id for call in talk.steps[0].calls}) == 3
    assert not server.rejections


@rule("CT-43")
async def test_results_of_one_step_are_one_message_for_anthropic_and_one_each_for_chat(models: Models):
    both = (Call("gsv__Clock", {"zone": "a"}), Call("gsv__Clock", {"zone": "b"}))
    for provider, expected in {"anthropic": 1, "openai-chat": 2}.items():
        with serve(VENDORS[provider](), [Answer(calls=both)]) as server:
            await Talk(models.build_model(choice_of(provider, server.base_url))).say("Go")
            messages = server.requests[1]["messages"]
            answered = [message for message in messages if "call" in str(message.get("tool_call_id", ""))]
            answered += [
                message
                for message in messages
                if isinstance(message["content"], list)
                and any(block["type"] == "tool_result" for block in message["content"])
            ]
            assert len(answered) == expected


async def test_tool_error_is_returned_to_the_model(provider: str, server: VendorServer, models: Models):
    server.answers += [ONE_CALL, Answer(text="Sorry.")]
    talk = Talk(
        models.build_model(choice_of(provider, server.base_url)), lambda _: ValueError("no such zone")
    )

    assert await talk.say("What time is it?") == "Sorry."
    sent = str(server.requests[1])
    assert "no such zone" in sent
    assert ("'is_error': True" if provider == "anthropic" else "error") in sent


async def test_thinking_goes_back_unchanged_through_two_turns(
    provider: str, server: VendorServer, models: Models
):
    server.answers += [
        Answer(thinking="First I look at the clock.", text="I look.", calls=ONE_CALL.calls),
        Answer(thinking="Now I compare.", calls=(*ONE_CALL.calls, *ONE_CALL.calls)),
        Answer(thinking="Enough.", text="Noon."),
        Answer(thinking="Again.", calls=ONE_CALL.calls),
        Answer(text="Still noon."),
    ]
    talk = Talk(models.build_model(choice_of(provider, server.base_url, effort="high")))

    assert await talk.say("What time is it?") == "Noon."
    assert thoughts(talk.parts) == "First I look at the clock.Now I compare.Enough."
    assert await talk.say("And now?") == "Still noon."
    assert not server.rejections
    assert len(server.requests) == 5


async def test_many_steps_of_one_turn_are_accepted(provider: str, server: VendorServer, models: Models):
    server.answers += [Answer(thinking="Again.", calls=ONE_CALL.calls)] * 30 + [Answer(text="Noon.")]
    talk = Talk(models.build_model(choice_of(provider, server.base_url)))
    assert await talk.say("What time is it?", max_steps=31) == "Noon."
    assert not server.rejections


async def test_hidden_thinking_of_anthropic_goes_back(models: Models):
    answers = [Answer(is_redacted=True, thinking="And more.", calls=ONE_CALL.calls), Answer(text="Noon.")]
    with serve(VENDORS["anthropic"](), answers) as server:
        talk = Talk(models.build_model(choice_of("anthropic", server.base_url)))
        assert await talk.say("What time is it?") == "Noon."
        blocks = server.requests[1]["messages"][1]["content"]
        assert [block["type"] for block in blocks] == ["redacted_thinking", "thinking", "tool_use"]


async def test_calls_of_gemini_without_ids_are_paired_by_order(models: Models):
    answers = [Answer(calls=(*ONE_CALL.calls, *ONE_CALL.calls), has_ids=False), Answer(text="Noon.")]
    with serve(VENDORS["gemini"](), answers) as server:
        talk = Talk(models.build_model(choice_of("gemini", server.base_url)))
        assert await talk.say("What time is it?") == "Noon."
        assert len({call.call_id for call in talk.steps[0].calls}) == 2


async def test_image_of_the_message_is_sent_as_an_image(provider: str, server: VendorServer, models: Models):
    talk = Talk(models.build_model(choice_of(provider, server.base_url)))
    await talk.say("What is on [[artifact:art_1]]?", [IMAGE])
    await talk.say("And its colour?")

    for request in server.requests:
        assert "iVBORw0KGgo" in str(request)
        assert "What is on" in str(request)
    assert not server.rejections


async def test_image_of_a_result_is_sent_with_it(provider: str, server: VendorServer, models: Models):
    server.answers += [ONE_CALL, Answer(text="A dot.")]
    model = models.build_model(choice_of(provider, server.base_url))
    talk = Talk(model, lambda _: {"screenshot": "[[artifact:art_1]]"})

    assert await talk.say("Look", [IMAGE]) == "A dot."
    assert "iVBORw0KGgo" in str(server.requests[1])
    assert not server.rejections


@rule("CT-45", "RS-70")
async def test_text_arrives_while_the_answer_is_streamed_and_an_interruption_ends_the_request(
    provider: str, server: VendorServer, models: Models
):
    text = "The clock shows that it is noon. " * 3
    server.answers.append(Answer(text=text, calls=ONE_CALL.calls, hangs_after=5))
    model = models.build_model(choice_of(provider, server.base_url))
    reply: Any = model.reply(Conversation("What time is it?"), TOOLS)
    async with aclosing(reply) as parts:
        first = await anext(parts)
        assert isinstance(first, Text)
        assert text.startswith(first.text)
        assert await asyncio.to_thread(server.hanging.wait, 30)
    assert await asyncio.to_thread(server.disconnected.wait, 30)


@pytest.mark.parametrize("event_count", [0, 1])
async def test_cancelled_task_ends_the_request(
    provider: str, server: VendorServer, models: Models, event_count: int
):
    server.answers.append(Answer(thinking="Hm.", calls=ONE_CALL.calls, hangs_after=event_count))
    model = models.build_model(choice_of(provider, server.base_url))
    task = asyncio.create_task(ask(model, Conversation("What time is it?")))
    assert await asyncio.to_thread(server.hanging.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(server.disconnected.wait, 30)


async def test_rate_limit_is_waited_for_as_the_provider_asks(
    provider: str, server: VendorServer, models: Models
):
    server.answers += [Answer(status=429, retry_after="1"), Answer(text="Hello.")]
    model = models.build_model(choice_of(provider, server.base_url))

    assert texts(await ask(model, Conversation("Hi"))) == "Hello."
    assert server.times[1] - server.times[0] >= 1


async def test_longer_wait_than_allowed_fails_with_the_time(
    provider: str, server: VendorServer, models: Models
):
    server.answers.append(Answer(status=429, retry_after="600"))
    with pytest.raises(ModelFailed, match="600 s"):
        await ask(models.build_model(choice_of(provider, server.base_url)), Conversation("Hi"))
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [500, 503])
async def test_server_error_is_retried_and_then_reported(
    provider: str, server: VendorServer, models: Models, status: int
):
    server.answers += [Answer(status=status)] * 2 + [Answer(text="Hello.")] + [Answer(status=status)] * 3
    model = models.build_model(choice_of(provider, server.base_url))

    assert texts(await ask(model, Conversation("Hi"))) == "Hello."
    with pytest.raises(ModelFailed, match=rf"unavailable \(HTTP {status}\).*tired.*3 attempts"):
        await ask(model, Conversation("Hi"))
    assert len(server.requests) == 6


async def test_cut_before_the_first_part_is_retried(provider: str, server: VendorServer, models: Models):
    server.answers += [Answer(text="Hello.", cut_after=0), Answer(text="Hello.")]
    model = models.build_model(choice_of(provider, server.base_url))
    assert texts(await ask(model, Conversation("Hi"))) == "Hello."


WHOLE = Answer(text="I look at the clock. " * 4, calls=ONE_CALL.calls)
BROKEN = {
    "cut": (replace(WHOLE, cut_after=12), "was cut before the answer's end"),
    "without its end": (replace(WHOLE, has_end=False), "was cut before the answer's end"),
    "overloaded": (replace(WHOLE, fails_after=12), r"is unavailable \(HTTP 5\d\d\).*verloaded"),
}


@rule("RS-80", "CT-45")
@pytest.mark.parametrize("kind", BROKEN)
async def test_answer_that_breaks_off_is_asked_for_again(
    provider: str, server: VendorServer, models: Models, kind: str
):
    server.answers += [BROKEN[kind][0], WHOLE]
    parts = await ask(models.build_model(choice_of(provider, server.base_url)), Conversation("What time?"))
    again = parts.index(Repeated(2))
    assert {type(part) for part in parts[:again]} == {Text}
    assert WHOLE.text.startswith(texts(parts[:again]))
    assert texts(parts[again:]) == WHOLE.text
    assert [call.tool for call in calls(parts)] == ["gsv__Clock"]
    assert server.requests[0] == server.requests[1]
    assert not server.rejections


@rule("RS-80", "CT-45")
@pytest.mark.parametrize("kind", BROKEN)
async def test_answer_that_always_breaks_off_fails_after_the_last_attempt(
    provider: str, server: VendorServer, models: Models, kind: str
):
    broken, message = BROKEN[kind]
    server.answers += [broken] * 3
    model = models.build_model(choice_of(provider, server.base_url))
    seen: list[Any] = []
    with pytest.raises(ModelFailed, match=rf"{message}.* \(after 3 attempts\)"):
        await collect(model.reply(Conversation("What time is it?"), TOOLS), seen)
    assert [part for part in seen if not isinstance(part, Text)] == [Repeated(2), Repeated(3)]
    assert len(server.requests) == 3


async def test_worker_that_takes_over_continues_the_turn(provider: str, server: VendorServer, models: Models):
    first = Answer(thinking="Two zones.", text="I look.", calls=(*ONE_CALL.calls, *ONE_CALL.calls))
    server.answers += [first, Answer(thinking="Good.", text="Noon.")]
    choice = choice_of(provider, server.base_url)
    step = to_step(
        await ask(models.build_model(choice), Conversation("What time is it?", system="Be brief."))
    )
    results = tuple(ToolResult(call.call_id, call.tool, {"time": 12}) for call in step.calls)
    stored = take_over(Step(step.text, step.calls, results, provider_data=step.provider_data))

    other = Models()  # of another process
    try:
        conversation = Conversation("What time is it?", (stored,), system="Be brief.")
        parts = await ask(other.build_model(choice), conversation)
    finally:
        await other.close()
    assert texts(parts) == "Noon."
    assert not server.rejections


@pytest.mark.parametrize("second", sorted(VENDORS))
async def test_provider_is_switched_in_the_middle_of_a_conversation(
    provider: str, second: str, server: VendorServer, models: Models
):
    thinking = Answer(thinking="Let me see.", text="I look.", calls=(*ONE_CALL.calls, *ONE_CALL.calls))
    server.answers += [thinking, Answer(text="Noon."), thinking]
    with serve(VENDORS[second](), [Answer(calls=ONE_CALL.calls), Answer(text="Still noon.")]) as other:
        first = models.build_model(choice_of(provider, server.base_url))
        talk = Talk(first)
        assert await talk.say("What time is it?") == "Noon."
        talk.model = models.build_model(choice_of(second, other.base_url))
        assert await talk.say("And now?") == "Still noon."
        talk.model = first
        server.answers += [Answer(text="Late.")]
        assert await talk.say("And later?") == "Late."
        assert not server.rejections
        assert not other.rejections
        assert "Let me see." not in str(other.requests)  # thoughts stay with their provider


@pytest.mark.parametrize("second", sorted(VENDORS))
async def test_provider_is_switched_in_the_middle_of_a_turn(
    provider: str, second: str, server: VendorServer, models: Models
):
    """The settings change while the tools of a step run: the next step asks another model.

    Both are asked to think, but Anthropic must not be while the turn begins with an answer of the other.
    """
    first = Answer(thinking="Let me see.", text="I look.", calls=(*ONE_CALL.calls, *ONE_CALL.calls))
    server.answers += [first, Answer(text="Still noon.")]
    with serve(VENDORS[second](), [Answer(thinking="Mine.", calls=ONE_CALL.calls)]) as other:
        order = [models.build_model(choice_of(second, other.base_url, effort="high"))]
        order.append(models.build_model(choice_of(provider, server.base_url, effort="high")))
        talk = Talk(order[1])

        def switch(call: Any) -> Any:
            talk.model = order[0] if len(talk.steps) % 2 == 0 else order[1]
            return {"time": "12:00"}

        talk.results = switch
        assert await talk.say("What time is it?") == "Still noon."
        assert not server.rejections
        assert not other.rejections
        assert len(server.requests) == 2
        assert len(other.requests) == 1
        assert not (second == "anthropic" and "thinking" in other.requests[0])
        assert provider != "anthropic" or all("thinking" in request for request in server.requests)


@rule("CT-43")
async def test_anthropic_thinks_again_in_the_turn_after_one_without_signatures(models: Models):
    """A model that decides itself when to think takes such a turn, so it is still asked to think."""
    call = ToolCall(CallId("call_1"), CLOCK.name, {})
    foreign = Step("I look.", (call,), (ToolResult(call.call_id, call.tool, {"time": 12}),))
    turn = Turn(RunId("run_1"), "What time is it?", (foreign, Step("Done.", ())))
    with serve(VENDORS["anthropic"]()) as server:
        budgeted = choice_of("anthropic", server.base_url, effort="high")
        adaptive = choice_of("anthropic", server.base_url, model="claude-opus-4-6", effort="high")
        await ask(models.build_model(budgeted), Conversation("What time is it?", (foreign,)))
        await ask(models.build_model(budgeted), Conversation("And now?", turns=(turn,)))
        await ask(models.build_model(adaptive), Conversation("What time is it?", (foreign,)))
        kinds = [request.get("thinking", {}).get("type") for request in server.requests]
        assert kinds == [None, "enabled", "adaptive"]
        assert not server.rejections


@rule("CT-01")
async def test_all_providers_are_offered_the_same_tools_and_get_the_same_results(models: Models):
    seen: dict[str, tuple[set[str], list[Any]]] = {}
    for provider, vendor in VENDORS.items():
        with serve(vendor(), [ONE_CALL, Answer(text="Noon.")]) as server:
            talk = Talk(models.build_model(choice_of(provider, server.base_url)))
            await talk.say("What time is it?")
            names = set(re.findall(r"'name': '([^']+)'", str(server.requests[0]["tools"])))
            seen[provider] = names, [(call.tool, call.args) for call in talk.steps[0].calls]
            assert "12:00" in str(server.requests[1])
    names = {to_wire_name(tool.name) for tool in TOOLS}
    assert all(one == (names, [("gsv__Clock", {"zone": "UTC", "n": 1.5})]) for one in seen.values())


@pytest.mark.parametrize("provider", sorted(set(VENDORS) - {"gemini"}))  # Gemini sends objects
async def test_broken_arguments_are_an_error_for_the_model_and_not_an_empty_object(
    provider: str, server: VendorServer, models: Models
):
    server.answers += [Answer(calls=(Call("gsv__Clock", '{"zone": "UT'),)), Answer(text="Again.")]
    talk = Talk(models.build_model(choice_of(provider, server.base_url)))

    assert await talk.say("What time is it?") == "Again."
    assert [call.args for call in talk.steps[0].calls] == ['{"zone": "UT']
    assert not server.rejections


async def test_answer_at_the_limit_of_tokens_says_so(provider: str, server: VendorServer, models: Models):
    server.answers += [Answer(text="Once upon", is_cut_off=True)]
    talk = Talk(models.build_model(choice_of(provider, server.base_url)))
    assert await talk.say("Tell a story") == "Once upon" + CUT_OFF
    assert await talk.say("Go on") == "Done."
    assert not server.rejections


async def test_usage_counts_cached_and_reasoning_tokens(provider: str, server: VendorServer, models: Models):
    model = models.build_model(choice_of(provider, server.base_url))
    usage = next(part for part in await ask(model, Conversation("Hi")) if isinstance(part, Usage))
    reasoning = 0 if provider == "anthropic" else 5  # Anthropic counts thinking as output
    assert usage == Usage(100, 20, 40, reasoning)


async def test_odd_histories_are_accepted(provider: str, server: VendorServer, models: Models):
    """Failed runs, unfinished calls, empty texts and hidden updates in any order."""
    server.answers += [Answer(calls=(*ONE_CALL.calls, *ONE_CALL.calls))]
    model = models.build_model(choice_of(provider, server.base_url))
    unfinished = to_step(await ask(model, Conversation("Start")))
    half = Step("", unfinished.calls, (ToolResult(unfinished.calls[0].call_id, "gsv__Clock", ""),))
    turns = (
        Turn(RunId("r1"), "No answer", updates_before=("update 1",)),
        Turn(RunId("r2"), "", (Step("  \n", ()),), updates_after=("update 2", "update 3")),
        Turn(RunId("r3"), "Unfinished", (half,)),
        Turn(RunId("r4"), "Text", (Step("An answer.", ()),), updates_after=("update 4",)),
        Turn(RunId("r5"), "None", (Step("", unfinished.calls, ()),)),
    )
    conversation = Conversation(
        "Now", note="3 turns were left out.", turns=turns, updates_before=("update 5",), images=(IMAGE,)
    )
    assert texts(await ask(model, conversation)) == "Done."
    assert not server.rejections
    sent = str(server.requests[-1])
    places = [sent.index(f"update {number}") for number in range(1, 6)]
    assert places == sorted(places)
    assert sent.index("3 turns were left out.") < places[0]


@pytest.mark.parametrize(
    "wrong",
    [
        ("sk-wrong-0123456789", "some-model", "refused the API key"),
        (KEY, "unknown-model", "does not know the model unknown-model"),
    ],
)
async def test_wrong_key_and_unknown_model_are_explained_without_the_key(
    provider: str, server: VendorServer, models: Models, wrong: tuple[str, str, str]
):
    key, model_name, message = wrong
    model = models.build_model(choice_of(provider, server.base_url, model=model_name, key=key))
    with pytest.raises(ModelFailed, match=message) as failed:
        await ask(model, Conversation("Hi"))
    assert key not in str(failed.value)
    assert "sk-" not in str(failed.value)


async def test_missing_route_is_explained(provider: str):
    models = Models(RequestSettings(NO_RETRIES))
    try:
        with pytest.raises(ModelFailed, match="no route"):
            await ask(models.build_model(choice_of(provider, "http://127.0.0.1:9")), Conversation("Hi"))
    finally:
        await models.close()


async def test_closing_ends_requests_in_flight(provider: str, server: VendorServer):
    models = Models()
    server.answers.append(Answer(text="Hello there", hangs_after=1))
    task = asyncio.create_task(
        ask(models.build_model(choice_of(provider, server.base_url)), Conversation("Hi"))
    )
    assert await asyncio.to_thread(server.hanging.wait, 30)
    await models.close()
    with pytest.raises(ModelFailed):
        await task
    await wait_for(server.disconnected.is_set)
