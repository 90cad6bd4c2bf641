"""The frames of the chat: what a client sends, and what the server sends beside the events of the thread."""

from msgspec import Struct

from easel.edges.decoding import Params
from easel.edges.errors import ErrorDetail


class NewChatMessage(Params, tag="message"):
    text: str
    idempotency_key: str | None = None


class Cancel(Params, tag="cancel"):
    """Cancels the runs of the thread."""


class Ping(Params, tag="ping"):
    """Asks for a `pong`: whether the connection still carries an answer."""


class ChatError(Struct, tag="error"):
    """The answer to a refused frame; the connection stays open."""

    error: ErrorDetail


class ChatWarnings(Struct, tag="warnings"):
    """The answer to a frame with unknown members, which were ignored."""

    warnings: list[str]


class ChatPong(Struct, tag="pong"):
    """The answer to a `ping`."""


ChatRequest = NewChatMessage | Cancel | Ping
ChatNotice = ChatError | ChatWarnings | ChatPong  # every other frame is an event
