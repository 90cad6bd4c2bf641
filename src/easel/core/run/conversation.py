"""The conversation between a user and a model. Does not know the formats of model providers.

Owns the internal form of what a model returns (`Part`) and of what it is given (`Conversation`): the turns of
the session so far, then the message that the run answers and the run's own steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from easel.core.stream.message_text import take_out_runs
from easel.ids import CallId, CanvasId, RunId


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    call_id: CallId
    tool: str
    args: Any


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a model call. `cached_tokens` are part of the input, `reasoning_tokens` of the output."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens

    def to_json(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> "Usage":
        return cls(**{name: int(members.get(name, 0)) for name in cls().to_json()})

    def __add__(self, other: "Usage") -> "Usage":
        mine, others = self.to_json(), other.to_json()
        return Usage(**{name: mine[name] + others[name] for name in mine})


@dataclass(frozen=True, slots=True)
class ProviderData:
    """The answer in the provider's own form, with signatures and encrypted reasoning.

    Opaque to all but the adapter of that provider, which sends it back unchanged in later calls. Other
    providers get the text and the tool calls of the step instead.
    """

    provider: str
    data: Any  # JSON


@dataclass(frozen=True, slots=True)
class Repeated:
    """The answer broke off and is asked for again, so the parts before do not count. From 2. RS-80"""

    number: int


Part = Text | Thought | ToolCall | Usage | ProviderData | Repeated


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: CallId
    tool: str
    value: Any
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model: its text, its tool calls, and the results of these calls."""

    text: str
    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...] = ()
    usage: Usage | None = None
    provider_data: ProviderData | None = field(default=None, repr=False)
    prefix: str = ""  # digest of what preceded the conversation, which `provider_data` depends on

    @property
    def is_finished(self) -> bool:
        return len(self.results) == len(self.calls)


@dataclass(frozen=True, slots=True)
class ContextStart:
    """The beginning of the conversation of a run. Stored with its steps, so that all attempts use the same.

    `first_run_id` is the run of the first turn; the run itself if it was given no earlier turn, None if it
    was given all. If it was given whole texts in place of updates, `documents` has the revision of each
    document of the session, None for one that it must read.
    """

    first_run_id: RunId | None = None
    documents: Mapping[CanvasId, str | None] = field(default_factory=dict[CanvasId, str | None])

    def to_json(self) -> dict[str, Any]:
        members = {"first_run_id": self.first_run_id, "documents": dict(self.documents)}
        return {name: value for name, value in members.items() if value}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> "ContextStart":
        return cls(members.get("first_run_id"), members.get("documents", {}))


@dataclass(frozen=True, slots=True)
class Image:
    """An image that a message refers to as `[[artifact:ID]]`."""

    artifact_id: str
    media_type: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of the user and the answer of an earlier run.

    `updates_before` and `updates_after` are hidden canvas updates, each a message of role user. CT-52
    """

    run_id: RunId
    user_message: str
    steps: tuple[Step, ...] = ()
    updates_before: tuple[str, ...] = ()
    updates_after: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """The input of a model. `note` names the turns that were left out, and precedes the first turn."""

    user_message: str
    steps: tuple[Step, ...] = field(default=())
    system: str = ""
    note: str | None = None
    turns: tuple[Turn, ...] = ()
    updates_before: tuple[str, ...] = ()  # hidden canvas updates before the user's message
    images: tuple[Image, ...] = ()

    @property
    def results(self) -> list[ToolResult]:
        """The results of the run's own steps."""
        return [result for step in self.steps for result in step.results]


def to_conversation(user_message: str, steps: Sequence[Step]) -> Conversation:
    """Return the conversation as a model gets it: texts with references in place of encoded runs. RS-62"""
    return Conversation(
        user_message, tuple(replace(step, text=take_out_runs(step.text).text) for step in steps)
    )


def total_usage(steps: Sequence[Step]) -> Usage | None:
    """Return the tokens of all steps, None if no step has a usage."""
    known = [step.usage for step in steps if step.usage is not None]
    return sum(known, Usage()) if known else None


STEP_BREAK = "\n\n"  # between the texts of two steps


def assistant_text(steps: tuple[Step, ...]) -> str:
    """Return the assistant's message: the texts of all steps. Equal to the text of all deltas."""
    return STEP_BREAK.join(step.text for step in steps if step.text)
