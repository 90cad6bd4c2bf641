"""The errors of Easel: a closed set, one class per failure.

The class docstring is the message, formatted with the keyword arguments of the raise. Each class has a name
(`code`), a number of the gateway, a JSON-RPC code and an HTTP status, so that a tool result, a gateway `res`,
a JSON-RPC error and an HTTP response come from the same class. Does not know a wire or another module.
"""

from typing import ClassVar, Self


class HostError(Exception):
    """An error occurred."""

    code: ClassVar[str] = "HOST_ERROR"
    gateway: ClassVar[int] = 500
    rpc: ClassVar[int] = -32000
    http: ClassVar[int] = 500
    retry_after: int | None = None  # seconds after which a retry may succeed

    def __init__(self, **details: object) -> None:
        template = (type(self).__doc__ or "").strip().split("\n\n", 1)[0]
        super().__init__(template.format(**details))
        self.details = details

    @classmethod
    def with_message(cls, message: str, **details: object) -> Self:
        """Return the error with this message instead of the one in the docstring."""
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
    """Not signed in: send `Authorization: Bearer TOKEN`, or open the link that `easel up` printed."""

    code, gateway, rpc, http = "NOT_SIGNED_IN", 401, -32001, 401


class Forbidden(HostError):
    """Forbidden: {problem}"""

    code, gateway, rpc, http = "FORBIDDEN", 403, -32003, 403


class NotFound(HostError):
    """There is no {what} {id}."""

    code, gateway, rpc, http = "NOT_FOUND", 404, -32004, 404


class MethodNotAllowed(HostError):
    """{method} is not allowed on {path}; use {allowed}."""

    code, gateway, rpc, http = "METHOD_NOT_ALLOWED", 400, -32601, 405


class IdempotencyConflict(HostError):
    """The {what} {key} was already used for another request; use a new one for a new request."""

    code, gateway, rpc, http = "IDEMPOTENCY_CONFLICT", 409, -32009, 409


class RunFinished(HostError):
    """Run {run_id} has already ended as {status} and cannot be changed."""

    code, gateway, rpc, http = "RUN_FINISHED", 409, -32010, 409


class VersionConflict(HostError):
    """Expected version {expected} of {what}, found {current}; read it again before writing."""

    code, gateway, rpc, http = "VERSION_CONFLICT", 409, -32011, 409


class RevisionConflict(HostError):
    """Expected revision {expected} of {canvas}, found {currentRevision}; read the canvas again."""

    code, gateway, rpc, http = "REVISION_CONFLICT", 409, -32017, 409


class InputConflict(HostError):
    """{path} was changed by another client; reload and try again."""

    code, gateway, rpc, http = "INPUT_CONFLICT", 409, -32019, 409


class TextConflict(HostError):
    """The document is at revision {revision_id}, not at the expected one; merge your text and save again."""

    code, gateway, rpc, http = "TEXT_CONFLICT", 409, -32051, 409


class LockNotAvailable(HostError):
    """Another lease of this document is live until {expires_at}; try again after it has ended."""

    code, gateway, rpc, http = "LOCK_NOT_AVAILABLE", 409, -32052, 409


class LockNotOwned(HostError):
    """{lease_id} is not a lease of this run; call canvas_check_out first."""

    code, gateway, rpc, http = "LOCK_NOT_OWNED", 409, -32053, 409


class StaleEpoch(HostError):
    """The user acted on the document (epoch {epoch}); this run must not edit it any more."""

    code, gateway, rpc, http = "STALE_EPOCH", 409, -32054, 409


class LeaseExpired(HostError):
    """The lease {lease_id} has ended; call canvas_check_out again and read before you edit."""

    code, gateway, rpc, http = "LEASE_EXPIRED", 409, -32055, 409


class PatchRejected(HostError):
    """{problem}"""

    code, gateway, rpc, http = "PATCH_REJECTED", 409, -32056, 409


class NotConnected(HostError):
    """Not connected: `connect` must be sent before {method}."""

    code, gateway, rpc, http = "NOT_CONNECTED", 101, -32040, 400


class WrongProtocol(HostError):
    """This gateway supports protocol {protocol}; the client supports {least} to {most}."""

    code, gateway, rpc, http = "WRONG_PROTOCOL", 102, -32041, 400


class WrongMode(HostError):
    """Cannot connect in mode {mode}: {problem}"""

    code, gateway, rpc, http = "WRONG_MODE", 103, -32042, 400


class NotInMode(HostError):
    """{method} is not available in {mode} mode."""

    code, gateway, rpc, http = "NOT_IN_MODE", 103, -32043, 400


class AlreadyExists(HostError):
    """The {what} {id} already exists."""

    code, gateway, rpc, http = "ALREADY_EXISTS", 409, -32012, 409


class LastAdmin(HostError):
    """The team {team} must keep an admin who is not disabled: {advice}."""

    code, gateway, rpc, http = "LAST_ADMIN", 409, -32070, 409


class CursorOutOfRange(HostError):
    """Cursor {cursor} is out of range; this log has {oldest} to {newest}. Resume inside that range."""

    code, gateway, rpc, http = "CURSOR_OUT_OF_RANGE", 404, -32005, 410


class TooLarge(HostError):
    """{what} is larger than the limit of {limit} bytes.

    With `setting`, the message also names the setting of the limit.
    """

    code, gateway, rpc, http = "TOO_LARGE", 413, -32013, 413

    def __init__(self, **details: object) -> None:
        super().__init__(**details)
        if "setting" in details:
            self.args = (f"{self.message} {details['setting']} sets the limit.",)

    @classmethod
    def of_account(cls, limit: str, maximum: int) -> Self:
        """Return the error for a limit of EASEL_ACCOUNT_LIMITS."""
        message = f"This account has reached its limit {limit}={maximum}; delete something first."
        return cls.with_message(message, limit=limit, maximum=maximum)


class BoardFull(HostError):
    """The boards of a run can hold at most {limit} {what}; replace or remove existing values."""

    code, gateway, rpc, http = "BOARD_FULL", 413, -32015, 413


class RangeNotSatisfiable(HostError):
    """The range {asked} is out of bounds: the content has {size} bytes."""

    code, gateway, rpc, http = "RANGE_NOT_SATISFIABLE", 400, -32016, 416


class WrongHost(HostError):
    """This server does not accept requests for host {host}; add it to EASEL_ALLOWED_HOSTS."""

    code, gateway, rpc, http = "WRONG_HOST", 400, -32014, 421


class TooMany(HostError):
    """Too many {what} (limit {limit}); try again later."""

    code, gateway, rpc, http, retry_after = "TOO_MANY", 429, -32029, 429, 1

    @classmethod
    def of_account(cls, limit: str, maximum: int, seconds: int = 1) -> Self:
        """Return the error for a limit of EASEL_ACCOUNT_LIMITS; `seconds`: after which to try again."""
        message = f"This account has reached its limit {limit}={maximum}; try again in {seconds} s."
        problem = cls.with_message(message, limit=limit, maximum=maximum)
        problem.retry_after = seconds
        return problem


class TooManyFailures(HostError):
    """Too many wrong tokens or passwords came from this address; try again in {seconds} s."""

    code, gateway, rpc, http, retry_after = "TOO_MANY_FAILURES", 429, -32031, 429, 1

    @classmethod
    def after(cls, seconds: int) -> Self:
        problem = cls(seconds=seconds)
        problem.retry_after = seconds
        return problem


class ModelFailed(HostError):
    """The model failed: {reason}"""

    code, gateway, rpc, http = "MODEL_FAILED", 500, -32021, 502


class ToolFailed(HostError):
    """{tool}: {reason}"""

    code, gateway, rpc, http = "TOOL_FAILED", 500, -32022, 502


class ConfirmationClosed(HostError):
    """Confirmation {id} is closed: {problem} Run the action again."""

    code, gateway, rpc, http = "CONFIRMATION_CLOSED", 409, -32018, 409


class ActionFailed(HostError):
    """{problem}"""

    code, gateway, rpc, http = "ACTION_FAILED", 500, -32027, 500


class Cancelled(HostError):
    """Cancelled by {name}. Effects of the tool until then remain, but its result was not saved."""

    code, gateway, rpc, http = "CANCELLED", 409, -32044, 409


class NotRunning(HostError):
    """{id} is not running: its status is {status}."""

    code, gateway, rpc, http = "NOT_RUNNING", 409, -32045, 409


class TimedOut(HostError):
    """{what} timed out after {seconds} s."""

    code, gateway, rpc, http = "TIMED_OUT", 504, -32028, 504


class NotInRun(HostError):
    """This tool works only inside a run; only an agent can call it."""

    code, gateway, rpc, http = "NOT_IN_RUN", 400, -32039, 400


class StepLimit(HostError):
    """The run did not finish within {limit} steps; its work is kept. Raise EASEL_MAX_STEPS or ask less."""

    code, gateway, rpc, http = "STEP_LIMIT", 500, -32023, 500


class TokenLimit(HostError):
    """The run used {used} of {limit} tokens; its work is kept. Raise EASEL_RUN_TOKEN_BUDGET or ask less."""

    code, gateway, rpc, http = "TOKEN_LIMIT", 500, -32060, 500


class RejectionLimit(HostError):
    """{limit} patches in a row were rejected; earlier edits are kept. Ask again or edit the text yourself."""

    code, gateway, rpc, http = "REJECTION_LIMIT", 500, -32061, 500


class RunTimedOut(HostError):
    """The run timed out after {seconds} s; EASEL_RUN_TIMEOUT_SECONDS sets the limit."""

    code, gateway, rpc, http = "RUN_TIMED_OUT", 504, -32024, 504


class AttemptsExhausted(HostError):
    """The run failed after {attempts} attempts: its worker was lost each time."""

    code, gateway, rpc, http = "ATTEMPTS_EXHAUSTED", 500, -32025, 500


class CorruptData(HostError):
    """The {what} {id} is corrupt or missing; upload it again."""

    code, gateway, rpc, http = "CORRUPT_DATA", 500, -32026, 500


class BadSettings(HostError):
    """{problem}"""

    code, gateway, rpc, http = "BAD_SETTINGS", 500, -32030, 500


class ProviderRefused(HostError):
    """The provider {provider} refused the request: {error}."""

    code, gateway, rpc, http = "PROVIDER_REFUSED", 400, -32062, 400


class ProviderUnreachable(HostError):
    """The provider {provider} {problem}; try again later."""

    code, gateway, rpc, http = "PROVIDER_UNREACHABLE", 503, -32063, 502


class SecretsUnavailable(HostError):
    """{problem}"""

    code, gateway, rpc, http = "SECRETS_UNAVAILABLE", 503, -32057, 503


class InternalError(HostError):
    """Internal error; the server log has the details under {reference}."""

    code, gateway, rpc, http = "INTERNAL_ERROR", 500, -32603, 500


class Unavailable(HostError):
    """{what} is unavailable; nothing was changed. Try again in a moment."""

    code, gateway, rpc, http, retry_after = "UNAVAILABLE", 503, -32050, 503, 1

    @classmethod
    def after_sending(cls, what: object, *, is_repeatable: bool) -> Self:
        """Return the error for a write without a reply; `is_repeatable`: a second write does no harm."""
        advice = "it is safe to send it again" if is_repeatable else "check before you send it again"
        message = f"{what} is unavailable; the change may have been stored: {advice}."
        problem = cls.with_message(message, what=what, mayBeStored=True)
        problem.retry_after = cls.retry_after if is_repeatable else None
        return problem


_BY_CODE = {kind.code: kind for kind in HostError.__subclasses__()}


def by_code(code: str, default: type[HostError]) -> type[HostError]:
    """Return the class of an error that was stored by its code."""
    return _BY_CODE.get(code, default)
