"""Notifications between instances.

A lost notification only delays an event until the next poll: the log is the source of truth.
"""

from dataclasses import dataclass

from easel.ids import AccountId, CallId, RunId, WorkerId


@dataclass(frozen=True, slots=True)
class RunAppended:
    run_id: RunId
    seq: int

    @property
    def key(self) -> str:
        return self.run_id


@dataclass(frozen=True, slots=True)
class ThreadAppended:
    key: str  # `scoped_key(account_id, session_id)`
    seq: int


@dataclass(frozen=True, slots=True)
class CanvasAppended:
    key: str  # `scoped_key(account_id, canvas_id)`
    seq: int


@dataclass(frozen=True, slots=True)
class LogDeleted:
    """A log was deleted. `what` is the kind of log, because a session and a canvas may have the same key."""

    what: str
    key: str


@dataclass(frozen=True, slots=True)
class RunReady:
    """A run can be claimed. The worker `prefers`, if any, may claim it before others.

    `anywhere`: the run may be at any position of the queue, so that workers must search the complete queue.
    """

    anywhere: bool = False
    prefers: WorkerId | None = None


@dataclass(frozen=True, slots=True)
class CancelRequested:
    run_id: RunId


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node has connected, disconnected or reconnected."""

    key: str  # `scoped_key(account_id, node_id)`
    connection_id: str  # the connection that was opened or closed


@dataclass(frozen=True, slots=True)
class CallPending:
    """A tool call for this connection of a node was added or cancelled."""

    connection_id: str


@dataclass(frozen=True, slots=True)
class CallAnswered:
    call_id: CallId


@dataclass(frozen=True, slots=True)
class SignedOut:
    sign_in_id: str


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """A user has changed a setting."""

    account_id: AccountId


@dataclass(frozen=True, slots=True)
class ActionStopped:
    """An execution was cancelled; the instance that runs it must stop it."""

    event_id: str


LogAppended = RunAppended | ThreadAppended | CanvasAppended
Notification = (
    LogAppended
    | LogDeleted
    | RunReady
    | CancelRequested
    | NodeChanged
    | CallPending
    | CallAnswered
    | SignedOut
    | SettingsChanged
    | ActionStopped
)

_LETTERS: dict[type[LogAppended], str] = {RunAppended: "g", ThreadAppended: "t", CanvasAppended: "v"}


def to_text(notification: Notification) -> str:
    match notification:
        case RunAppended() | ThreadAppended() | CanvasAppended():
            return f"{_LETTERS[type(notification)]}{notification.seq}.{notification.key}"
        case LogDeleted(what, key):
            return f"x{what}.{key}"
        case RunReady(anywhere, prefers):
            return ("a" if anywhere else "q") + (prefers or "")
        case CancelRequested(run_id):
            return f"c{run_id}"
        case NodeChanged(key, connection_id):
            return f"n{connection_id}.{key}"
        case CallPending(connection_id):
            return f"w{connection_id}"
        case CallAnswered(call_id):
            return f"r{call_id}"
        case ActionStopped(event_id):
            return f"s{event_id}"
        case SignedOut(sign_in_id):
            return f"o{sign_in_id}"
        case SettingsChanged(account_id):
            return f"p{account_id}"


def from_text(text: str) -> Notification | None:
    """Return the notification, or None for a kind that only newer instances know."""
    kind, rest = text[:1], text[1:]
    if kind in ("g", "t", "v"):
        seq, _, key = rest.partition(".")
        if not seq.isdigit():
            return None
        return (
            RunAppended(RunId(key), int(seq))
            if kind == "g"
            else ThreadAppended(key, int(seq))
            if kind == "t"
            else CanvasAppended(key, int(seq))
        )
    if kind in ("q", "a"):
        return RunReady(kind == "a", WorkerId(rest) if rest else None)
    if kind == "c":
        return CancelRequested(RunId(rest))
    if kind == "x":
        what, _, key = rest.partition(".")
        return LogDeleted(what, key)
    if kind == "n":
        connection_id, _, key = rest.partition(".")
        return NodeChanged(key, connection_id)
    if kind in ("w", "r"):
        return CallPending(rest) if kind == "w" else CallAnswered(CallId(rest))
    if kind == "p":
        return SettingsChanged(AccountId(rest))
    if kind in ("o", "s"):
        return SignedOut(rest) if kind == "o" else ActionStopped(rest)
    return None
