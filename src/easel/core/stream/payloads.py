"""The payloads of events: the members of `data`, one struct per event type.

Owns the members that `seal()` adds, and those that a store adds when it reads a log. Does not build events:
`seal()` takes plain members, because building a struct first costs more than sealing. A value over 2 KB is
replaced by a marker, so a member that may be that long is a `Marker` too; a JSON value may contain markers.
"""
# ruff: noqa: N815 - the words of the specification

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field


class PayloadPart(Struct, forbid_unknown_fields=True):
    """A part of a payload."""


class Marker(PayloadPart):
    """The marker in place of a value that is stored as an artifact."""

    redacted: Annotated[bool, Meta(description="Always true.")]
    original_size: Annotated[int, Meta(description="Bytes.")]
    sha256: str
    uri: Annotated[str, Meta(description="Returns the exact bytes; ends in `#json` unless it was a text.")]


class ProvenanceOfEvent(PayloadPart):
    """The actor that caused an event."""

    kind: Annotated[str, Meta(description="person, agent, service or node")]
    agent_id: Annotated[
        str, Meta(description="A person's user id, otherwise the name of the agent, service or node.")
    ]
    node_id: Annotated[str, Meta(description="The node of the run, or the action.")]
    run_id: Annotated[str, Meta(description="The run that caused the event or, on a canvas, the operation.")]
    edge_id: str | UnsetType = UNSET


class Payload(Struct, kw_only=True, forbid_unknown_fields=True):
    """The members of every event."""

    visibility: Annotated[
        Literal["public", "internal", "system"],
        Meta(description="By the event type; a message that is hidden is internal."),
    ]


class StatePayload(Payload, kw_only=True):
    provenance: ProvenanceOfEvent


Attachments = Annotated[
    list[Marker] | Marker | UnsetType,
    Meta(
        description="The markers of the references in `text`; with `truncated`, first that of all the text."
    ),
]
RunOutcome = Annotated[str, Meta(description="completed, failed or cancelled")]

Milliseconds = Annotated[int, Meta(description="Milliseconds since 1970.")]

# --- narrative ----------------------------------------------------------------------------------------------


class MessageDelta(Payload, kw_only=True):
    message_id: Annotated[str, Meta(description="The same for all deltas of a message, over all attempts.")]
    text: str
    attempt: Annotated[
        int | UnsetType,
        Meta(description="Of the worker. A higher one begins the unfinished step again."),
    ] = UNSET
    try_: Annotated[
        int | UnsetType, Meta(description="Absent: 1. A higher one begins the unfinished step again.")
    ] = field(name="try", default=UNSET)
    role: Annotated[
        Literal["user"] | UnsetType, Meta(description="Of the user's message, in the thread only.")
    ] = UNSET
    run_id: Annotated[str | UnsetType, Meta(description="Of the user's message.")] = UNSET
    attachments: Attachments = UNSET


class MessageCompleted(Payload, kw_only=True):
    role: Literal["user", "assistant"]
    message_id: str
    run_id: str
    text: str
    status: Annotated[RunOutcome | UnsetType, Meta(description="Of the assistant's message.")] = UNSET
    error: Annotated[str | Marker | UnsetType, Meta(description="If the run failed.")] = UNSET
    truncated: Annotated[bool | UnsetType, Meta(description="`text` is only the beginning.")] = UNSET
    attachments: Attachments = UNSET
    hidden: Annotated[
        bool | UnsetType, Meta(description="An update of a document, which only the model gets.")
    ] = UNSET
    author: Annotated[str | UnsetType, Meta(description="Who changed the document; of an update.")] = UNSET


class ToolCallPayload(Payload, kw_only=True):
    call_id: str
    run_id: str
    tool: str
    args: Any


class ToolResultPayload(Payload, kw_only=True):
    call_id: str
    run_id: str
    tool: str
    result: Any = UNSET
    error: Annotated[Any, Meta(description="Instead of `result`, if the call failed.")] = UNSET


class ReasoningDelta(Payload, kw_only=True):
    message_id: str
    text: str
    attempt: int | UnsetType = UNSET
    try_: int | UnsetType = field(name="try", default=UNSET)
    attachments: Attachments = UNSET


class StepCall(PayloadPart):
    call_id: str
    tool: str
    args: Any


class TokenUsage(PayloadPart):
    input_tokens: int
    output_tokens: int
    cached_tokens: Annotated[int, Meta(description="Part of the input.")]
    reasoning_tokens: Annotated[int, Meta(description="Part of the output.")]


class ProviderAnswer(PayloadPart):
    """The answer in the provider's own form."""

    name: str
    data: Any


class ContextOfRun(PayloadPart):
    """Where the conversation of a run begins. Absent members: with the whole session."""

    first_run_id: str | UnsetType = UNSET
    documents: Annotated[
        Mapping[str, Any] | UnsetType, Meta(description="The revisions of documents that were given whole.")
    ] = UNSET


class StepCompleted(Payload, kw_only=True):
    """An answer of the model, with what a later worker needs to send it back."""

    step: Annotated[int, Meta(description="From 1.")]
    text: str | Marker
    calls: list[StepCall] | Marker
    usage: TokenUsage | UnsetType = UNSET
    provider: ProviderAnswer | UnsetType = UNSET
    prefix: Annotated[str | UnsetType, Meta(description="Digest of what `provider` depends on.")] = UNSET
    context: Annotated[ContextOfRun | UnsetType, Meta(description="Of the first step.")] = UNSET
    instructions: Annotated[
        str | Marker | UnsetType,
        Meta(description="The system prompt and the tools as JSON text; of the first step."),
    ] = UNSET


# --- state --------------------------------------------------------------------------------------------------


class RunStart(StatePayload, kw_only=True):
    attempt: int


class RunStatusPayload(StatePayload, kw_only=True):
    status: RunOutcome
    error: Annotated[str | Marker | UnsetType, Meta(description="If the run failed.")] = UNSET


class RunDone(RunStatusPayload, kw_only=True):
    usage: Annotated[TokenUsage | UnsetType, Meta(description="Of all steps.")] = UNSET


class WhiteboardWrite(StatePayload, kw_only=True):
    key: str
    value: Any
    version: int
    source_node_id: str


class BlackboardWrite(WhiteboardWrite, kw_only=True):
    edge_id: str


# --- visuals ------------------------------------------------------------------------------------------------


class CanvasPayload(StatePayload, kw_only=True):
    agentId: Annotated[
        str | UnsetType, Meta(description="The agent that has the canvas; absent if the canvas is deleted.")
    ] = UNSET
    canvasId: str
    revision: int


class CanvasCreated(CanvasPayload, kw_only=True):
    title: str


class CanvasUpdated(CanvasPayload, kw_only=True):
    changedPaths: Annotated[
        list[str],
        Meta(
            description="JSON pointers into the state (empty: all of it), and `$spec`, `$title`, `$assets/…`."
        ),
    ]


class CanvasViewUpdated(CanvasPayload, kw_only=True):
    viewId: str
    clientId: str
    userId: Annotated[
        str | UnsetType, Meta(description="The person whose view it is, or who answers for the program.")
    ] = UNSET
    status: Literal["opened", "closed"]
    views: Annotated[int, Meta(description="How many are open now.")]


class Sidecar(PayloadPart):
    uri: str
    artifact_id: str
    mime_type: str
    size_bytes: int
    checksum: str


class MediaPayload(PayloadPart):
    sidecars: list[Sidecar]


class CanvasSnapshotTaken(CanvasPayload, kw_only=True):
    artifact_id: str
    media_payload: MediaPayload


class Actor(PayloadPart, rename="camel"):
    """The starter of an execution: the client of a person, an agent in a session, or the host."""

    account_id: str
    kind: Annotated[str, Meta(description="user, agent, service or node")]
    name: str
    client_id: str
    trigger: Annotated[str, Meta(description="client or refresh")]
    user_id: str | UnsetType = UNSET
    on_behalf_of: Annotated[str | UnsetType, Meta(description="The person who answers for a program.")] = (
        UNSET
    )


class ErrorOfAction(PayloadPart):
    code: Annotated[int, Meta(description="Number of the error in the gateway protocol.")]
    name: Annotated[str, Meta(description="Name of the error; see the list of errors.")]
    message: str | Marker


class ActionPayload(CanvasPayload, kw_only=True):
    actionId: str
    eventId: Annotated[str, Meta(description="Of the execution, the same in all its events.")]


class ActorPayload(ActionPayload, kw_only=True):
    actor: Actor
    tool: str | UnsetType = UNSET


class ActionAskedPayload(ActorPayload, kw_only=True):
    confirmationId: str
    askedAt: Milliseconds
    digest: Annotated[str, Meta(description="Of what exactly waits for a person's confirmation.")]
    approval: Annotated[
        str | UnsetType, Meta(description="`another`: only another person than who asked may approve.")
    ] = UNSET


class ActionStarted(ActorPayload, kw_only=True):
    startedAt: Milliseconds


class ActionOutput(ActionPayload, kw_only=True):
    text: str
    cut: Annotated[bool | UnsetType, Meta(description="The rest of the output is not shown.")] = UNSET


class EndedPayload(ActorPayload, kw_only=True):
    endedAt: Milliseconds


class ActionFinished(EndedPayload, kw_only=True):
    startedAt: Annotated[Milliseconds | UnsetType, Meta(description="Of a patch of the state.")] = UNSET
    saveAs: Annotated[str | Marker | UnsetType, Meta(description="Where in the state its result is.")] = UNSET


class ActionFailedPayload(EndedPayload, kw_only=True):
    startedAt: Annotated[Milliseconds | UnsetType, Meta(description="If it failed at its start.")] = UNSET
    error: ErrorOfAction


class ActionRefusedPayload(EndedPayload, kw_only=True):
    refusedBy: Annotated[str | UnsetType, Meta(description="The name of the person.")] = UNSET
    reason: Annotated[str | UnsetType, Meta(description="If no person answered.")] = UNSET


class RefreshRecovered(CanvasPayload, kw_only=True):
    refreshId: str
    actionId: str


class RefreshFailed(RefreshRecovered, kw_only=True):
    error: ErrorOfAction
    failures: Annotated[int, Meta(description="In a row.")]
    retryInMs: int


class DocumentAuthor(PayloadPart):
    kind: str
    id: str
    run_id: str | UnsetType = UNSET


class DocumentChanged(CanvasPayload, kw_only=True):
    revision_id: str
    canvas_epoch: int
    author: DocumentAuthor


class LeaseHolder(PayloadPart):
    run_id: str
    expires_at: str


class LeaseChanged(CanvasPayload, kw_only=True):
    canvas_epoch: int
    lease: Annotated[LeaseHolder | None, Meta(description="Null: the document is free.")]
    reason: str


class SessionChange(StatePayload, kw_only=True):
    session_id: str
    key: Annotated[str, Meta(description="The key of the session, `agent:{agentId}:{name}`.")]
    title: str | None


class SessionCreated(SessionChange):
    """A session was created."""


class SessionRenamed(SessionChange):
    """The title of a session was changed."""


class SessionRemoved(SessionChange):
    """A session was deleted."""
