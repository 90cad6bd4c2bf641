"""The context of a model call: the choice of earlier turns of the session, and their form.

Owns the estimate of tokens, the choice of turns, the shortening of calls and results, and the note on omitted
turns. A conversation begins like the one before it, so that the caches of providers hit: turns are left out
in coarse steps, each result is shortened independently of the others, and the first turn that a run was given
is stored in its log for the runs after it. The oldest calls and results of a long run are shortened further,
again in coarse steps. Does not know stores or the formats of providers.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, cast

from easel.core.run.conversation import STEP_BREAK, Step, ToolCall, ToolResult, Turn, assistant_text
from easel.core.run.status import Status
from easel.core.stream.json_text import to_json
from easel.core.stream.message_text import take_out_runs
from easel.ids import CallId, RunId

BYTES_PER_TOKEN = 4
IMAGE_TOKENS = 1_500
MESSAGE_TOKENS = 8  # for the role and the separators of a message, a call or a result
MAX_LISTED_TURNS = 50  # in the note on omitted turns
MAX_TITLE_LENGTH = 80
MIN_SHORTENED_BYTES = 500  # that are left of a value inside a large result
KEPT_SHARE = 2  # turns that no longer fit are left out until the rest is 1/2 of the budget
DOCUMENT_SHARE = 4  # a document's text or update of over 1/4 of the budget is not sent: the model reads it
OLD_RESULT_BYTES = 400  # of each of the oldest calls and results of a run whose steps no longer fit


# --- tokens -------------------------------------------------------------------------------------------------


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has: the same for every provider, and stable."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return -(-size // BYTES_PER_TOKEN) + MESSAGE_TOKENS


def step_tokens(step: Step) -> int:
    data = step.provider_data
    said = estimate_tokens(step.text) if step.text else 0
    called = sum(estimate_tokens(_as_text(call.args)) for call in step.calls)
    tokens = said + called + sum(MESSAGE_TOKENS + _value_tokens(result.value) for result in step.results)
    # An adapter sends its own form of the answer instead of the text, which may be larger.
    return max(tokens, _value_tokens(data.data)) if data else tokens


def turn_tokens(turn: Turn) -> int:
    return (
        estimate_tokens(turn.user_message)
        + update_tokens(turn)
        + sum(map(step_tokens, turn.steps))
        + IMAGE_TOKENS * len(turn.images)
    )


def update_tokens(turn: Turn) -> int:
    """Return the tokens of the hidden canvas updates alone."""
    return sum(map(estimate_tokens, (*turn.updates_before, *turn.updates_after)))


def _value_tokens(value: Any) -> int:
    return 0 if value is None else estimate_tokens(_as_text(value))


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)


# --- the choice of turns ------------------------------------------------------------------------------------


def choose_start(sizes: Sequence[int], budget: int, reserved: int, previous: int) -> int:
    """Return the index of the first turn that a run is given. `sizes` are tokens, the oldest turn first.

    `previous` is the first turn that the run before was given. It stays the first as long as everything
    fits, together with the `reserved` tokens of the run's own message. Otherwise turns are left out until the
    rest takes half of the budget, so that the next runs begin with the same turns again.
    """
    available = max(0, budget - reserved)
    if sum(sizes[previous:]) <= available:
        return previous
    limit = min(available, budget // KEPT_SHARE)
    kept = sum(1 for total in accumulate(reversed(sizes[previous:])) if total <= limit)
    return len(sizes) - kept


def omission_note(messages: Sequence[str], *, has_more: bool) -> str | None:
    """Return the note on omitted turns, with the beginnings of their messages. `has_more`: there are older.

    Depends only on the omitted turns, so it changes only when turns are left out.
    """
    if not messages:
        return None
    listed = messages[-MAX_LISTED_TURNS:]
    lead = "…\n" if has_more or len(listed) < len(messages) else ""
    lines = "\n".join(f"- {_title(message)}" for message in listed)
    return (
        "Note by the host: earlier turns of this conversation were left out, because they do not fit. "
        f"The user's messages in them began:\n{lead}{lines}\n"
        "If you need something of them, ask the user or read it again with your tools."
    )


def _title(message: str) -> str:
    line = " ".join(message[: 4 * MAX_TITLE_LENGTH].split())
    return line if len(line) <= MAX_TITLE_LENGTH else line[: MAX_TITLE_LENGTH - 1].rstrip() + "…"


def prefix_digest(
    system: str, note: str | None, first: str, tools: Sequence[Sequence[Any]], model: str
) -> str:
    """Return a digest of everything before the first turn. `tools` are names, descriptions and schemas.

    Providers reject signatures after another beginning, so `ProviderData` is sent back only while the digest
    is the same as when the model returned it.
    """
    content = to_json([system, note, first, model, tools])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def prefix_after(prefix: str, *changes: Any) -> str:
    """Return the digest of a beginning that differs by these JSON values, the same one if all are empty."""
    if not any(changes):
        return prefix
    return hashlib.sha256(to_json([prefix, *changes]).encode()).hexdigest()[:16]


def keep_valid_data(steps: tuple[Step, ...], prefix: str) -> tuple[Step, ...]:
    """Return the steps without provider data that was made after another prefix."""
    if all(step.provider_data is None or step.prefix == prefix for step in steps):
        return steps
    return tuple(
        step if step.provider_data is None or step.prefix == prefix else replace(step, provider_data=None)
        for step in steps
    )


# --- the form of a turn -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ending:
    """How an earlier run ended, and the text of the whole answer."""

    text: str
    status: Status
    error: str | None = None


def to_turn_steps(
    run_id: RunId, steps: Sequence[Step], ending: Ending | None, max_result_bytes: int
) -> tuple[Step, ...]:
    """Return the steps of an earlier run as a model gets them.

    A call without a result is left out with the provider's data of its step, since no provider accepts it.
    The text after the last logged step is taken from the answer. Each turn ends with a text of the assistant.
    """
    kept: list[Step] = []
    for step in steps:
        complete = _without_open_calls(to_model_step(step, max_result_bytes))
        if complete.text or complete.calls:
            kept.append(_with_unique_ids(run_id, len(kept), complete))
    last = _closing_text(tuple(kept), ending, assistant_text(tuple(steps)))
    return (*kept, Step(last, ())) if last else tuple(kept)


def to_model_step(step: Step, max_result_bytes: int) -> Step:
    """Return a step with references in place of encoded runs, and with large results shortened. RS-62"""
    return replace(
        step,
        text=take_out_runs(step.text).text,
        results=tuple(shorten_result(result, max_result_bytes) for result in step.results),
    )


def _without_open_calls(step: Step) -> Step:
    if step.is_finished:
        return step
    answered = {result.call_id for result in step.results}
    calls = tuple(call for call in step.calls if call.call_id in answered)
    return replace(step, calls=calls, provider_data=None)


def _with_unique_ids(run_id: RunId, position: int, step: Step) -> Step:
    """Return the step with call ids that no other turn has. Provider data has ids of the provider."""
    if step.provider_data is not None or not step.calls:
        return step
    name = run_id.removeprefix("run_")
    ids = {call.call_id: CallId(f"call_{name}_{position}_{nth}") for nth, call in enumerate(step.calls)}
    return replace(
        step,
        calls=tuple(replace(call, call_id=ids[call.call_id]) for call in step.calls),
        results=tuple(replace(result, call_id=ids[result.call_id]) for result in step.results),
    )


def _closing_text(steps: tuple[Step, ...], ending: Ending | None, original: str) -> str:
    """Return the text after the last step. `original` is the text of all steps with its encoded runs."""
    if ending is None:
        return "" if steps and not steps[-1].calls else "[The run did not end.]"
    said = assistant_text(steps)
    if not ending.text.startswith(said):  # an encoded run that goes on in the next step is one in the answer
        said = take_out_runs(original).text
    text = ending.text.removeprefix(said).removeprefix(STEP_BREAK)
    match ending.status:
        case Status.CANCELLED:
            outcome = "[The user cancelled this answer.]"
        case Status.FAILED:
            outcome = f"[This answer failed: {(ending.error or 'no reason is known')[:300]}]"
        case _:
            outcome = "" if text or (steps and not steps[-1].calls) else "[No text.]"
    return STEP_BREAK.join(part for part in (text, outcome) if part)


# --- the run's own steps ------------------------------------------------------------------------------------


class OwnSteps:
    """The steps of a run as its model gets them: every call and result, the oldest shortened.

    If the steps take more than `max_tokens`, the arguments of calls and the results are shortened from the
    oldest on until half of that is free, so that most steps repeat the beginning of the one before. Depends
    only on the steps, so a worker that takes over the run sends the same. The newest step is shortened only
    if all others are. A shortened step has no provider data: it would be that of the whole step.
    """

    def __init__(self, max_result_bytes: int, max_tokens: int) -> None:
        self._max_result_bytes = max_result_bytes
        self._max_tokens = max_tokens
        self._whole: list[Step] = []
        self._sizes: list[int] = []  # tokens
        self.steps: list[Step] = []
        self.shortened: dict[str, int] = {}  # the bytes per result of each shortened step, by its position

    def add(self, step: Step) -> None:
        given = to_model_step(step, self._max_result_bytes)
        self._whole.append(given)
        self.steps.append(given)
        self._sizes.append(step_tokens(given))
        if sum(self._sizes) > self._max_tokens:
            self._shorten_oldest()

    def _shorten_oldest(self) -> None:
        newest = len(self.steps) - 1
        for max_bytes, target in ((OLD_RESULT_BYTES, self._max_tokens // KEPT_SHARE), (0, self._max_tokens)):
            for position in range(newest):
                if sum(self._sizes) <= target:
                    return
                self._shorten(position, max_bytes)
        step = self._whole[newest]
        values = [call.args for call in step.calls] + [result.value for result in step.results]
        large = [size for size in map(_size, values) if size > OLD_RESULT_BYTES]
        excess = sum(self._sizes) - self._max_tokens
        if excess > 0 and large:
            room = sum(large) - excess * BYTES_PER_TOKEN
            self._shorten(newest, max(OLD_RESULT_BYTES, room // len(large)))

    def _shorten(self, position: int, max_bytes: int) -> None:
        name, whole = str(position), self._whole[position]
        if self.shortened.get(name, self._max_result_bytes) <= max_bytes:
            return
        shorter = replace(
            whole,
            calls=tuple(_shorten_call(call, max_bytes) for call in whole.calls),
            results=tuple(_smaller(result, shorten_result(result, max_bytes)) for result in whole.results),
            provider_data=None,
        )
        if shorter == replace(self.steps[position], provider_data=None):
            return
        self.steps[position] = shorter
        self._sizes[position] = step_tokens(self.steps[position])
        self.shortened[name] = max_bytes


def _smaller(result: ToolResult, shortened: ToolResult) -> ToolResult:
    """Return the shortened result, unless its note is longer than what it replaces."""
    return shortened if _size(shortened.value) < _size(result.value) else result


def _shorten_call(call: ToolCall, max_bytes: int) -> ToolCall:
    """Return the call with a beginning of its arguments, if that is shorter. Providers need an object."""
    shortened = {"shortened": _cut(to_json(call.args), max_bytes, "The call was made with all of them.")}
    return replace(call, args=shortened) if _size(shortened) < _size(call.args) else call


# --- tool results -------------------------------------------------------------------------------------------

_DOCUMENT_READS = frozenset({"canvas_read_all", "canvas_read_lines", "canvas_grep"})


def shorten_result(result: ToolResult, max_bytes: int) -> ToolResult:
    """Return the result with its largest member cut if it is too large, and a note how to read the rest."""
    if _size(result.value) <= max_bytes:
        return result
    way = (
        "call canvas_read_lines with start_line and end_line"
        if result.tool in _DOCUMENT_READS
        else f"call {result.tool} with arguments that return less"
    )
    return replace(result, value=_shorten(result.value, max_bytes, f"To read the rest, {way}."))


def _shorten(value: Any, max_bytes: int, way: str) -> Any:
    if _size(value) <= max_bytes:
        return value
    if isinstance(value, str):
        return _cut(value, max_bytes, way)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        totals = accumulate(_size(item) + 1 for item in items)
        count = sum(1 for total in totals if total <= max_bytes)
        note = f"[Shortened: {count} of {len(items)} items. {way}]"
        return [*items[:count], note] if count else [_shorten(items[0], max_bytes, way), note]
    members: Mapping[str, Any] = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    sizes = {name: _size(item) for name, item in members.items()}
    if not sizes:
        return _cut(to_json(value), max_bytes, way)
    largest = max(sizes, key=lambda name: sizes[name])
    others = _size(members) - sizes[largest]
    if others > max_bytes - MIN_SHORTENED_BYTES:
        return _cut(to_json(value), max_bytes, way)
    return {**members, largest: _shorten(members[largest], max_bytes - others, way)}


def _cut(text: str, max_bytes: int, way: str) -> str:
    shown = text.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")
    return f"{shown}\n[Shortened: the first {len(shown)} of {len(text)} characters. {way}]"


def _size(value: Any) -> int:
    text = _as_text(value)
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
