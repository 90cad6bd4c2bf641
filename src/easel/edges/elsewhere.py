"""Methods that Easel does not have: what replaces those of GSV, and the nearest name of any other. RS-67"""

from collections.abc import Collection, Mapping

from easel.core.validation import find_nearest
from easel.errors import NotFound

# By the name of a method, or by its part before the dot.
INSTEAD: Mapping[str, str] = {
    "chat": "send messages with POST /api/chat/{session_id}, or on /ws/chat/{thread_id}",
    "sessions": "list sessions with GET /api/sessions",
    "session": "read a session with GET /api/sessions/{session_id}; PATCH and DELETE change it",
    "config": "set the model with GET and PUT /api/settings; the host has its settings from EASEL_ variables",
    "cron": "repeat an action with a refresh job, `refresh` in the spec of a canvas",
    "logs": "read logs with canvas.records, the tool gsv__LogsGet or GET /api/audit",
    "tool.request": "call a tool with tool.invoke",
}


def unknown_method(name: str, known: Collection[str]) -> NotFound:
    """Return the error for a method that does not exist: with what replaces it, or with the nearest name."""
    short = name[:200]
    message = f"There is no method {short}."
    if instead := INSTEAD.get(short) or INSTEAD.get(short.partition(".")[0]):
        message = f"There is no method {short} here: {instead}."
    elif nearest := find_nearest(name, known):
        message = f"There is no method {short}; did you mean {nearest}?"
    return NotFound.with_message(message, what="method", id=short)
