"""Methods of GSV that Easel does not have, and what it has instead. RS-67"""

from collections.abc import Mapping

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


def unknown_method(name: str) -> NotFound:
    """Return the error for a method that does not exist; it names what replaces a method of GSV."""
    short = name[:200]
    instead = INSTEAD.get(short) or INSTEAD.get(short.partition(".")[0])
    if instead is None:
        return NotFound(what="method", id=short)
    return NotFound.with_message(f"There is no method {short} here: {instead}.", what="method", id=short)
