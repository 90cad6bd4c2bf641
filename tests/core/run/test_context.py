"""Which turns of a session a model is given, and in what form."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.run.context import (
    BYTES_PER_TOKEN,
    IMAGE_TOKENS,
    Ending,
    OwnSteps,
    choose_start,
    estimate_tokens,
    keep_valid_data,
    omission_note,
    prefix_after,
    prefix_digest,
    shorten_result,
    to_turn_steps,
    turn_tokens,
)
from easel.core.run.conversation import (
    Image,
    ProviderData,
    Step,
    ToolCall,
    ToolResult,
    Turn,
    assistant_text,
)
from easel.core.run.status import Status
from easel.core.stream.json_text import to_json
from easel.core.stream.message_text import take_out_runs
from easel.ids import CallId, RunId
from tests.requirements import rule

RUN = RunId("run_00000000000000000000000001")


def call(name: str, tool: str = "t") -> ToolCall:
    return ToolCall(CallId(name), tool, {"a": 1})


def result(name: str, value: Any = "ok", tool: str = "t") -> ToolResult:
    return ToolResult(CallId(name), tool, value)


# --- the choice of turns ------------------------------------------------------------------------------------


def test_all_turns_are_kept_while_they_fit():
    assert choose_start([10, 20, 30], budget=100, reserved=40, previous=0) == 0


def test_turns_that_do_not_fit_are_left_out_down_to_half_of_the_budget():
    assert choose_start([40, 40, 30, 20], budget=100, reserved=0, previous=0) == 2


def test_turn_larger_than_the_budget_is_left_out_with_all_before_it():
    assert choose_start([10, 500, 10], budget=100, reserved=0, previous=0) == 2
    assert choose_start([10, 10, 500], budget=100, reserved=0, previous=0) == 3


def test_long_message_leaves_less_room_for_turns():
    assert choose_start([40, 40], budget=100, reserved=50, previous=0) == 1


@given(st.lists(st.integers(1, 120), max_size=60), st.integers(60, 300))
def test_first_turn_changes_only_when_the_turns_no_longer_fit(sizes: list[int], budget: int):
    """The next runs begin with the same turns, so that the caches of providers hit."""
    start = 0
    for count in range(len(sizes) + 1):
        chosen = choose_start(sizes[:count], budget, 0, start)
        kept = sizes[chosen:count]
        assert sum(kept) <= budget
        if chosen != start:
            assert sum(sizes[start:count]) > budget, "turns were left out though all of them fit"
            assert sum(kept) <= budget // 2
            is_coarse = chosen == 0 or sum(sizes[chosen - 1 : count]) > budget // 2
            assert is_coarse, "more turns were left out than needed"
        start = chosen


def test_note_lists_the_omitted_turns_once_and_in_short():
    note = omission_note(["first\nquestion", "x" * 500], has_more=False)
    assert note is not None
    assert "- first question\n" in note
    assert "- " + "x" * 79 + "…\n" in note
    assert omission_note([], has_more=False) is None
    assert "…\n- m10\n" in (omission_note([f"m{n}" for n in range(60)], has_more=False) or "")


def test_estimate_counts_bytes_and_images():
    assert estimate_tokens("x" * 400) - estimate_tokens("") == 400 // BYTES_PER_TOKEN
    assert estimate_tokens("ü" * 400) - estimate_tokens("") == 800 // BYTES_PER_TOKEN
    turn = Turn(RUN, "hello")
    with_image = Turn(RUN, "hello", images=(Image("art_1", "image/png", b"x" * 9_000_000),))
    assert turn_tokens(with_image) - turn_tokens(turn) == IMAGE_TOKENS


def test_provider_data_counts_if_it_is_larger_than_the_text():
    plain, signed = Step("hi", ()), Step("hi", (), provider_data=ProviderData("p", {"s": "x" * 4_000}))
    assert turn_tokens(Turn(RUN, "m", (signed,))) - turn_tokens(Turn(RUN, "m", (plain,))) > 900


# --- provider data ------------------------------------------------------------------------------------------


def test_provider_data_is_sent_back_only_after_the_same_prefix():
    tools = [["t", "A tool.", {"type": "object"}]]
    prefix = prefix_digest("system", None, "run_1", tools, "anthropic/m")
    signed = Step("a", (), provider_data=ProviderData("anthropic", [1]), prefix=prefix)
    assert keep_valid_data((signed,), prefix) == (signed,)
    others = [
        prefix_digest("another system", None, "run_1", tools, "anthropic/m"),
        prefix_digest("system", "note", "run_1", tools, "anthropic/m"),
        prefix_digest("system", None, "run_2", tools, "anthropic/m"),
        prefix_digest("system", None, "run_1", [], "anthropic/m"),
        prefix_digest("system", None, "run_1", tools, "gemini/m"),
    ]
    assert len({prefix, *others}) == 6
    for other in others:
        [kept] = keep_valid_data((signed,), other)
        assert (kept.text, kept.provider_data) == ("a", None)


# --- the form of a turn -------------------------------------------------------------------------------------


def test_text_after_the_last_logged_step_is_taken_from_the_answer():
    steps = (Step("Let me look.", (call("call_1"),), (result("call_1"),)),)
    turn = to_turn_steps(RUN, steps, Ending("Let me look.\n\nIt is done.", Status.COMPLETED), 1_000)
    assert [step.text for step in turn] == ["Let me look.", "It is done."]


@rule("RS-62")
@pytest.mark.parametrize("sizes", [(3_000, 3_000), (1_500, 1_500)], ids=["each encoded", "encoded together"])
def test_encoded_run_that_goes_on_in_the_next_step_is_not_repeated(sizes: tuple[int, int]):
    """In the answer, both parts are one run with one reference. Each step has its own."""
    encoded = base64.b64encode(bytes(range(256)) * 20).decode()
    call = ToolCall(CallId("call_1"), "t", {})
    done = ToolResult(call.call_id, call.tool, "ok")
    steps = (Step("See: " + encoded[: sizes[0]], (call,), (done,)), Step(encoded[: sizes[1]] + " end.", ()))
    answer = take_out_runs(assistant_text(steps)).text
    assert answer.count("[[artifact:") == 1
    turn = to_turn_steps(RUN, steps, Ending(answer, Status.COMPLETED), 1_000)
    assert len(turn) == 2
    assert [step.text for step in turn] == [take_out_runs(step.text).text for step in steps]


def test_shortened_log_leaves_the_answer_alone():
    turn = to_turn_steps(RUN, (), Ending("All of it.", Status.COMPLETED), 1_000)
    assert turn == (Step("All of it.", ()),)


def test_logged_last_step_is_not_repeated():
    last = Step("Done.", (), provider_data=ProviderData("p", {}))
    assert to_turn_steps(RUN, (last,), Ending("Done.", Status.COMPLETED), 1_000) == (last,)


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.FAILED], ids=str)
def test_call_without_a_result_is_left_out_with_the_data_of_its_step(status: Status):
    step = Step(
        "Two calls.",
        (call("call_1"), call("call_2")),
        (result("call_1"),),
        provider_data=ProviderData("p", {"both": True}),
    )
    turn = to_turn_steps(RUN, (step,), Ending("Two calls.", status, "why"), 1_000)
    assert [len(one.calls) for one in turn] == [1, 0]
    assert [one.is_finished for one in turn] == [True, True]
    assert turn[0].provider_data is None
    assert ("cancelled" if status is Status.CANCELLED else "why") in turn[-1].text


def test_every_turn_ends_with_a_text_of_the_assistant():
    for ending in (Ending("", Status.COMPLETED), Ending("", Status.CANCELLED), None):
        assert to_turn_steps(RUN, (), ending, 1_000)[-1].text


def test_ids_of_calls_differ_between_turns_unless_the_provider_made_them():
    steps = (Step("", (call("call_1"),), (result("call_1"),)),)
    other = RunId("run_00000000000000000000000002")
    ending = Ending("x", Status.COMPLETED)
    [[first, _], [second, _]] = [to_turn_steps(run, steps, ending, 1_000) for run in (RUN, other)]
    assert first.calls[0].call_id != second.calls[0].call_id
    assert first.calls[0].call_id == first.results[0].call_id
    assert len(first.calls[0].call_id) <= 40, "the limit of OpenAI"
    signed = (Step("", (call("toolu_1"),), (result("toolu_1"),), provider_data=ProviderData("p", {})),)
    assert to_turn_steps(RUN, signed, ending, 1_000)[0].calls[0].call_id == "toolu_1"


# --- tool results -------------------------------------------------------------------------------------------


def test_small_result_is_given_whole():
    small = result("call_1", {"text": "x" * 900})
    assert shorten_result(small, 1_000) is small


@pytest.mark.parametrize(
    "value",
    [
        "x" * 50_000,
        {"text": "x" * 50_000, "revision_id": "r"},
        [{"n": n} for n in range(9_000)],
        {"deep": ["y" * 9_999]},
    ],
    ids=["text", "member", "list", "nested"],
)
def test_large_result_is_shortened_with_a_note_how_to_read_the_rest(value: Any):
    short = shorten_result(result("call_1", value), 2_000)
    assert len(to_json(short.value)) < 2_600
    assert "To read the rest, call t with" in to_json(short.value)
    if isinstance(value, dict) and "revision_id" in value:
        assert short.value["revision_id"] == "r", "only the largest member is cut"


def test_shortened_read_of_a_document_names_the_tool_that_reads_lines():
    short = shorten_result(result("call_1", {"text": "x" * 9_000}, "canvas_read_all"), 2_000)
    assert "call canvas_read_lines with start_line and end_line" in short.value["text"]


def test_shortened_result_keeps_whole_characters():
    short = shorten_result(result("call_1", "€" * 2_000), 1_000)
    assert short.value.startswith("€" * 333)
    assert "the first 333 of 2000 characters" in short.value


# --- the run's own steps ------------------------------------------------------------------------------------


def large_step(number: int, size: int = 32_000) -> Step:
    names = [f"call_{number}_{nth}" for nth in range(4)]
    return Step("", tuple(map(call, names)), tuple(result(name, "x" * size) for name in names))


def own_tokens(own: OwnSteps) -> int:
    return turn_tokens(Turn(RUN, "", tuple(own.steps)))


def test_own_steps_that_fit_are_given_whole():
    own = OwnSteps(32_768, 100_000)
    for number in range(3):
        own.add(large_step(number))
    assert own.steps == [large_step(number) for number in range(3)]
    assert own.shortened == {}


def test_oldest_results_are_shortened_in_coarse_steps_and_none_is_dropped():
    own, changes, limit = OwnSteps(32_768, 200_000), 0, 200_000
    for number in range(60):
        before = list(own.steps)
        own.add(large_step(number))
        changes += own.steps[:number] != before
        assert own_tokens(own) <= limit
        assert own.steps[number] == large_step(number), "the newest results are whole"
    assert [step.calls for step in own.steps] == [large_step(number).calls for number in range(60)]
    assert all(step.is_finished for step in own.steps)
    assert (
        own.steps[0]
        .results[3]
        .value.endswith(
            "[Shortened: the first 400 of 32000 characters. "
            "To read the rest, call t with arguments that return less.]"
        )
    )
    assert 1 <= changes <= 60 // 3, "the beginning changes too often"


def test_own_steps_come_close_to_a_budget_that_is_smaller_than_one_result():
    own = OwnSteps(32_768, 4_000)
    for number in range(23):
        own.add(large_step(number))
    assert sum(len(step.results) for step in own.steps) == 92
    assert own_tokens(own) < 6_000


def test_calls_of_a_turn_are_shortened_like_its_results_and_stay_objects():
    """30 calls of 3.5 KB with a budget of 12,000 tokens, of a provider whose data repeats each call."""
    own, calls = OwnSteps(32_768, 12_000), []
    for number in range(30):
        calls.append(ToolCall(CallId(f"call_{number}"), "t", {"lease_id": "x", "patch": "+ a line\n" * 350}))
        data = ProviderData("anthropic", {"calls": [calls[-1].args]})
        own.add(Step("", (calls[-1],), (result(f"call_{number}"),), provider_data=data))
        assert own_tokens(own) <= 12_000
        assert own.steps[-1].calls == (calls[-1],), "the newest call is whole"
        assert own.steps[-1].provider_data == data
    oldest = own.steps[0]
    assert oldest.provider_data is None
    assert oldest.calls[0].args["shortened"].startswith('{"lease_id":"x","patch":"+ a line')
    assert oldest.calls[0].args["shortened"].endswith("The call was made with all of them.]")


def test_call_that_is_larger_than_the_budget_is_shortened_to_fit():
    own = OwnSteps(32_768, 4_000)
    own.add(Step("", (ToolCall(CallId("call_0"), "t", {"text": "x" * 60_000}),), (result("call_0"),)))
    assert own_tokens(own) <= 4_200
    assert len(own.steps[0].calls[0].args["shortened"]) > 10_000


def test_newest_results_share_the_rest_of_the_budget():
    own = OwnSteps(32_768, 4_000)
    own.add(large_step(0))
    assert own_tokens(own) <= 4_200
    assert all(len(shown.value) > 3_000 for shown in own.steps[0].results)


def test_small_result_is_not_replaced_by_a_longer_note():
    own = OwnSteps(32_768, 100)
    for number in range(9):
        own.add(large_step(number, 20))
    assert own.steps == [large_step(number, 20) for number in range(9)]


def test_prefix_changes_with_what_precedes_an_answer():
    assert prefix_after("p", None, {}) == "p"
    assert len({"p", prefix_after("p", "run_1", {}), prefix_after("p", None, {"0": 400})}) == 3
