"""Every way Easel refuses: a closed set, one class per failure.

The class docstring is the message, filled with the keyword arguments of the raise. Each class has its word
(`code`), its number on the gateway's list, its JSON-RPC code and its HTTP status, so that a tool result, a gateway
`res`, a JSON-RPC error and an HTTP answer all come from the same place. Knows no wire and no other module.
"""

from typing import ClassVar, Self


class HostError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "HOST_ERROR"
    gateway: ClassVar[int] = 500
    rpc: ClassVar[int] = -32000
    http: ClassVar[int] = 500
    retry_after: int | None = None  # seconds a client should wait, where waiting helps

    def __init__(self, **details: object) -> None:
        template = (type(self).__doc__ or "").strip().split("\n\n", 1)[0]
        super().__init__(template.format(**details))
        self.details = details

    @classmethod
    def with_message(cls, message: str, **details: object) -> Self:
        """This failure in words that were found before: what was kept of it, or what of it may be shown."""
        problem = cls.__new__(cls)
        Exception.__init__(problem, message)
        problem.details = details
        return problem

    @property
    def message(self) -> str:
        return str(self)


class BadInput(HostError):
    """{problem}"""

    code, gateway, rpc, http = "BAD_INPUT", 400, -32602, 400


class NotSignedIn(HostError):
    """Sign in first: send `Authorization: Bearer TOKEN`, or open the link that `easel up` printed."""

    code, gateway, rpc, http = "NOT_SIGNED_IN", 401, -32001, 401


class Forbidden(HostError):
    """Refused: {problem}"""

    code, gateway, rpc, http = "FORBIDDEN", 403, -32003, 403


class NotFound(HostError):
    """There is no {what} {id} here."""

    code, gateway, rpc, http = "NOT_FOUND", 404, -32004, 404


class MethodNotAllowed(HostError):
    """{method} does not work on {path}; use {allowed}."""

    code, gateway, rpc, http = "METHOD_NOT_ALLOWED", 400, -32601, 405


class IdempotencyConflict(HostError):
    """The {what} {key} was already used for another request; use a new one for a new request."""

    code, gateway, rpc, http = "IDEMPOTENCY_CONFLICT", 409, -32009, 409


class RunFinished(HostError):
    """Run {run_id} has already ended as {status}; nothing can be added to it."""

    code, gateway, rpc, http = "RUN_FINISHED", 409, -32010, 409


class VersionConflict(HostError):
    """{what} is at version {current} and not at {expected}; read it again and decide anew."""

    code, gateway, rpc, http = "VERSION_CONFLICT", 409, -32011, 409


class RevisionConflict(HostError):
    """Canvas {canvas} is at revision {currentRevision} and not at {expected}; read it again and decide anew."""

    code, gateway, rpc, http = "REVISION_CONFLICT", 409, -32017, 409


class InputConflict(HostError):
    """{path} was changed by somebody else meanwhile; look at it and decide anew."""

    code, gateway, rpc, http = "INPUT_CONFLICT", 409, -32019, 409


class NotConnected(HostError):
    """Send `connect` first; {method} comes after it."""

    code, gateway, rpc, http = "NOT_CONNECTED", 101, -32040, 400


class WrongProtocol(HostError):
    """This gateway speaks protocol {protocol}; the client offers {least} to {most}."""

    code, gateway, rpc, http = "WRONG_PROTOCOL", 102, -32041, 400


class WrongMode(HostError):
    """Nobody can connect as {mode}: {problem}"""

    code, gateway, rpc, http = "WRONG_MODE", 103, -32042, 400


class NotInMode(HostError):
    """{method} is nothing that can be asked by a connection in mode {mode}."""

    code, gateway, rpc, http = "NOT_IN_MODE", 103, -32043, 400


class AlreadyExists(HostError):
    """There is a {what} {id} already."""

    code, gateway, rpc, http = "ALREADY_EXISTS", 409, -32012, 409


class CursorOutOfRange(HostError):
    """Cursor {cursor} is outside this log, which holds {oldest} to {newest}; resume with a cursor inside it."""

    code, gateway, rpc, http = "CURSOR_OUT_OF_RANGE", 404, -32005, 410


class TooLarge(HostError):
    """{what} is larger than the limit of {limit} bytes.

    With `setting`, where the limit is one that the reader may want to raise, and does not guess.
    """

    code, gateway, rpc, http = "TOO_LARGE", 413, -32013, 413

    def __init__(self, **details: object) -> None:
        super().__init__(**details)
        if "setting" in details:
            self.args = (f"{self.message} {details['setting']} sets it.",)


class BoardFull(HostError):
    """The boards of a run hold at most {limit} {what}; write over what is there, or keep less."""

    code, gateway, rpc, http = "BOARD_FULL", 413, -32015, 413


class RangeNotSatisfiable(HostError):
    """The range {asked} is outside of what is there: {size} bytes."""

    code, gateway, rpc, http = "RANGE_NOT_SATISFIABLE", 400, -32016, 416


class WrongHost(HostError):
    """This server does not answer for host {host}; add it to EASEL_ALLOWED_HOSTS if it should."""

    code, gateway, rpc, http = "WRONG_HOST", 400, -32014, 421


class TooMany(HostError):
    """Too many {what} at once (limit {limit}); try again in a moment."""

    code, gateway, rpc, http, retry_after = "TOO_MANY", 429, -32029, 429, 1


class ModelFailed(HostError):
    """The model failed: {reason}"""

    code, gateway, rpc, http = "MODEL_FAILED", 500, -32021, 502


class ToolFailed(HostError):
    """{tool}: {reason}"""

    code, gateway, rpc, http = "TOOL_FAILED", 500, -32022, 502


class ConfirmationClosed(HostError):
    """Confirmation {id} is over: {problem} Press the button again."""

    code, gateway, rpc, http = "CONFIRMATION_CLOSED", 409, -32018, 409


class ActionFailed(HostError):
    """{problem}"""

    code, gateway, rpc, http = "ACTION_FAILED", 500, -32027, 500


class Cancelled(HostError):
    """{name} stopped it before it ended; what the tool had done by then stays done, and nothing of it is saved."""

    code, gateway, rpc, http = "CANCELLED", 409, -32044, 409


class NotRunning(HostError):
    """{id} does not run: it is {status}, and there is nothing to stop."""

    code, gateway, rpc, http = "NOT_RUNNING", 409, -32045, 409


class TimedOut(HostError):
    """{what} took longer than {seconds} s, and is not waited for any more."""

    code, gateway, rpc, http = "TIMED_OUT", 504, -32028, 504


class NotInRun(HostError):
    """This tool works on the boards of a run, and is called by none; an agent can use it."""

    code, gateway, rpc, http = "NOT_IN_RUN", 400, -32039, 400


class StepLimit(HostError):
    """The run used all of its {limit} steps without coming to an end; raise EASEL_MAX_STEPS or ask for less at once."""

    code, gateway, rpc, http = "STEP_LIMIT", 500, -32023, 500


class RunTimedOut(HostError):
    """The run took longer than {seconds} s and was stopped; EASEL_RUN_TIMEOUT_SECONDS sets the limit."""

    code, gateway, rpc, http = "RUN_TIMED_OUT", 504, -32024, 504


class AttemptsExhausted(HostError):
    """Gave up after {attempts} attempts: each time the worker that held the run was lost."""

    code, gateway, rpc, http = "ATTEMPTS_EXHAUSTED", 500, -32025, 500


class CorruptData(HostError):
    """What was stored as {what} {id} is not there any more as it was stored; if you have it, store it again."""

    code, gateway, rpc, http = "CORRUPT_DATA", 500, -32026, 500


class BadSettings(HostError):
    """{problem}"""

    code, gateway, rpc, http = "BAD_SETTINGS", 500, -32030, 500


class InternalError(HostError):
    """Something broke inside Easel; the server's log has the details under {reference}."""

    code, gateway, rpc, http = "INTERNAL_ERROR", 500, -32603, 500


class Unavailable(HostError):
    """{what} cannot be reached right now; nothing was changed, try again in a moment."""

    code, gateway, rpc, http, retry_after = "UNAVAILABLE", 503, -32050, 503, 1

    @classmethod
    def after_sending(cls, what: object, *, is_repeatable: bool) -> Self:
        """A change was on its way, and no answer came. What does no harm when it is sent twice may be tried again; the rest has to be looked at."""
        again = (
            "it is safe to send it again in a moment" if is_repeatable else "look before you send it again"
        )
        told = f"{what} cannot be reached right now; what you sent may be stored all the same: {again}."
        problem = cls.with_message(told, what=what, mayBeStored=True)
        problem.retry_after = cls.retry_after if is_repeatable else None
        return problem


# Names of version 0.1 that stored records may still hold. Decision 0031
FORMER_CODES = {
    "ALREADY_THERE": "ALREADY_EXISTS",
    "CONFIRMATION_OVER": "CONFIRMATION_CLOSED",
    "CURSOR_GONE": "CURSOR_OUT_OF_RANGE",
    "DAMAGED": "CORRUPT_DATA",
    "GAVE_UP": "ATTEMPTS_EXHAUSTED",
    "OUT_OF_RANGE": "RANGE_NOT_SATISFIABLE",
    "TOOK_TOO_LONG": "RUN_TIMED_OUT",
}


def current_code(stored: str) -> str:
    """Return today's name of an error that was stored under this name."""
    return FORMER_CODES.get(stored, stored)
