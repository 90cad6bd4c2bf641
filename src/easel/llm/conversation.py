"""A conversation as messages of the provider library, and an answer as stored provider data.

Imported only with a provider's library. Owns the pairing of tool calls and results, the ids of calls that
another provider made, and the order of roles: a request always begins with a message of the user, and no call
is without its result.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from easel.core.run.conversation import Conversation, Image, ProviderData, Step, ToolResult
from easel.llm.schemas import to_wire_name

NO_RESULT = "The call has no result: the run ended before it was finished."
NO_TEXT = "(an empty message)"
NO_OUTPUT = "(no output)"
BROKEN_ARGS = "INVALID_JSON"  # the member of arguments that were not a JSON object
FOREIGN_ID = "call_easel_{number}"
LIBRARY_ID = "pyd_ai_"  # begins an id that the library made because the provider sent none

_RESPONSE = TypeAdapter(ModelResponse)
_STORED = ("parts", "model_name", "provider_name", "canonical_system", "provider_details", "finish_reason")


@dataclass(frozen=True, slots=True)
class MessageForm:
    """The differences between the providers in the form of messages."""

    provider: str
    endpoint: str  # names the address; data of another address is another provider's
    base_url: str | None = None  # as the library records it
    media_types: frozenset[str] = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
    joins_user_texts: bool = False  # one message for what the user said in a row
    results_as_objects: bool = False
    has_own_ids: bool = True  # whether an id that the library made is sent
    needs_signature: bool = False  # whether a thought without a signature is left out


class VerbatimCall(ToolCallPart):
    """A tool call whose arguments are sent back as the provider wrote them, with their white space."""

    def args_as_json_str(self) -> str:
        if isinstance(self.args, str) and is_json_object(self.args):
            return self.args
        return super().args_as_json_str()


def is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def to_provider_data(response: ModelResponse, form: MessageForm) -> ProviderData:
    """Return the answer in a JSON form that keeps signatures, encrypted reasoning, ids and order."""
    dumped: dict[str, Any] = _RESPONSE.dump_python(response, mode="json")
    stored = {name: dumped[name] for name in _STORED if dumped.get(name) is not None}
    return ProviderData(form.provider, {"endpoint": form.endpoint, "response": stored})


def to_messages(conversation: Conversation, form: MessageForm) -> list[ModelMessage]:
    builder = _Builder(form)
    if conversation.note:
        builder.add_user(conversation.note)
    for turn in conversation.turns:
        builder.add_turn(turn.updates_before, turn.user_message, turn.images, turn.steps)
        for update in turn.updates_after:
            builder.add_user(update)
    builder.add_turn(
        conversation.updates_before, conversation.user_message, conversation.images, conversation.steps
    )
    return builder.finish()


def lacks_first_thought(messages: Sequence[ModelMessage]) -> bool:
    """Return whether the open turn, after the user's last message, does not begin with a thought."""
    first: ModelResponse | None = None
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            first = message
        elif any(isinstance(part, UserPromptPart) for part in message.parts):
            break
    return first is not None and not isinstance(next(iter(first.parts), None), ThinkingPart)


@dataclass(slots=True)
class _Builder:
    form: MessageForm
    messages: list[ModelMessage] = field(default_factory=list[ModelMessage])
    waiting: list[ModelRequestPart] = field(default_factory=list[ModelRequestPart])
    foreign_calls: int = 0

    def add_turn(
        self, updates: Sequence[str], message: str, images: Sequence[Image], steps: Sequence[Step]
    ) -> None:
        for update in updates:
            self.add_user(update)
        of_results = _images_of_results(images, message, steps)
        self.add_user(message, [image for image in images if image not in of_results])
        for step in steps:
            self._add_step(step, of_results)

    def add_user(self, text: str, images: Sequence[Image] = ()) -> None:
        files = [self._to_content(image) for image in images]
        texts: list[UserContent] = [text] if text.strip() else []
        content: list[UserContent] = [*texts, *files] or [NO_TEXT]
        last = self.waiting[-1] if self.waiting else None
        if self.form.joins_user_texts and isinstance(last, UserPromptPart):
            before: list[UserContent] = [last.content] if isinstance(last.content, str) else [*last.content]
            content = _join_texts([*before, *content])
            self.waiting.pop()
        only = content[0] if len(content) == 1 else None
        self.waiting.append(UserPromptPart(only if isinstance(only, str) else content))

    def finish(self) -> list[ModelMessage]:
        self._flush()
        return self.messages

    def _flush(self) -> None:
        if self.waiting:
            self.messages.append(ModelRequest(self.waiting))
            self.waiting = []

    def _add_step(self, step: Step, images: list[Image]) -> None:
        if not step.text.strip() and not step.calls:
            return  # a step of thoughts alone has nothing to answer
        own = self._from_provider_data(step)
        response = own if own is not None else self._from_parts(step)
        calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
        self._flush()
        self.messages.append(response)
        for number, part in enumerate(calls):
            result = step.results[number] if number < len(step.results) else None
            self.waiting.append(self._to_return(part, result, images))

    def _from_provider_data(self, step: Step) -> ModelResponse | None:
        """Return the step as this provider sent it, or None if it is another provider's."""
        data = step.provider_data
        if data is None or data.provider != self.form.provider or not isinstance(data.data, dict):
            return None
        stored = cast("dict[str, Any]", data.data)
        if stored.get("endpoint") != self.form.endpoint or not isinstance(stored.get("response"), dict):
            return None
        try:
            response = _RESPONSE.validate_python(stored["response"])
        except ValueError:
            return None  # of an older version of the library: the text and the calls are enough
        parts = [restored for part in response.parts if (restored := self._restore(part)) is not None]
        if sum(isinstance(part, ToolCallPart) for part in parts) != len(step.calls):
            return None
        return replace(response, parts=parts, provider_url=self.form.base_url)

    def _restore(self, part: ModelResponsePart) -> ModelResponsePart | None:
        if isinstance(part, ToolCallPart):
            call = VerbatimCall(
                part.tool_name,
                cast("str | dict[str, Any] | None", part.args),
                tool_call_id=part.tool_call_id,
                id=part.id,
                provider_name=part.provider_name,
                provider_details=part.provider_details,
            )
            if not self.form.has_own_ids and part.tool_call_id.startswith(LIBRARY_ID):
                call.tool_call_id = cast("str", None)  # the provider pairs by order, as it sent no id
            return call
        if isinstance(part, TextPart):
            # Anthropic refuses white space alone, even where it wrote that itself.
            return part if part.content.strip() or part.provider_details else None
        if isinstance(part, ThinkingPart):
            return part if part.signature or not self.form.needs_signature else None
        return None  # no other part is asked for

    def _from_parts(self, step: Step) -> ModelResponse:
        """Return the step of another provider: its text and calls, with ids that are valid here."""
        parts: list[ModelResponsePart] = [TextPart(step.text)] if step.text.strip() else []
        for call in step.calls:
            self.foreign_calls += 1
            is_object = isinstance(call.args, dict)
            args = cast("dict[str, Any]", call.args) if is_object else {BROKEN_ARGS: _to_text(call.args)}
            call_id = FOREIGN_ID.format(number=self.foreign_calls)
            parts.append(ToolCallPart(to_wire_name(call.tool), args, tool_call_id=call_id))
        return ModelResponse(parts)

    def _to_return(
        self, part: ToolCallPart, result: ToolResult | None, images: list[Image]
    ) -> ToolReturnPart:
        """Return the result of a call. Takes the images that it shows from `images`."""
        value, is_error = (NO_RESULT, True) if result is None else (result.value, result.is_error)
        text = _to_text(value)
        shown = [image for image in images if image.artifact_id in text]
        images[:] = [image for image in images if image not in shown]
        files = [self._to_content(image) for image in shown]
        content: Any = text if text.strip() else NO_OUTPUT
        if self.form.results_as_objects and isinstance(value, dict) and not is_error:
            content = cast("dict[str, Any]", value)
        return ToolReturnPart(
            part.tool_name,
            [content, *files] if files else content,
            part.tool_call_id,
            outcome="failed" if is_error else "success",
        )

    def _to_content(self, image: Image) -> UserContent:
        if image.media_type not in self.form.media_types:
            return f"(The image {image.artifact_id} of type {image.media_type} cannot be shown here.)"
        return BinaryContent(image.content, media_type=image.media_type, identifier=image.artifact_id)


def _images_of_results(images: Sequence[Image], message: str, steps: Sequence[Step]) -> list[Image]:
    """Return the images that tool results refer to and the user's message does not."""
    others = [image for image in images if image.artifact_id not in message]
    if not others:
        return []
    texts = [_to_text(result.value) for step in steps for result in step.results]
    return [image for image in others if any(image.artifact_id in text for text in texts)]


def _join_texts(content: Sequence[UserContent]) -> list[UserContent]:
    joined: list[UserContent] = []
    for item in content:
        last = joined[-1] if joined else None
        if isinstance(item, str) and isinstance(last, str):
            joined[-1] = f"{last}\n\n{item}"
        else:
            joined.append(item)
    return joined


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
