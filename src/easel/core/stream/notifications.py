"""Notifications between instances.

A lost notification only delays an event until the next poll: the log is the source of truth.
"""

import msgspec

from easel.ids import AccountId, CallId, RunId, WorkerId


class _Notification(msgspec.Struct, frozen=True, array_like=True):
    """A notification is sent as a JSON array that begins with its tag."""


class RunAppended(_Notification, frozen=True, tag="g"):
    run_id: RunId
    seq: int

    @property
    def key(self) -> str:
        return self.run_id


class ThreadAppended(_Notification, frozen=True, tag="t"):
    key: str  # `scoped_key(account_id, session_id)`
    seq: int


class CanvasAppended(_Notification, frozen=True, tag="v"):
    key: str  # `scoped_key(account_id, canvas_id)`
    seq: int


class AccountAppended(_Notification, frozen=True, tag="a"):
    key: AccountId
    seq: int


class OrderAdvanced(_Notification, frozen=True, tag="m"):
    """Events of a followed account were numbered."""

    key: AccountId
    seq: int


class LogDeleted(_Notification, frozen=True, tag="x"):
    """A log was deleted. `what` is the kind of log, because a session and a canvas may have the same key."""

    what: str
    key: str


class RunReady(_Notification, frozen=True, tag="q"):
    """A run can be claimed. The worker `prefers`, if any, may claim it before others.

    `anywhere`: the run may be at any position of the queue, so that workers must search the complete queue.
    """

    anywhere: bool = False
    prefers: WorkerId | None = None


class CancelRequested(_Notification, frozen=True, tag="c"):
    run_id: RunId


class NodeChanged(_Notification, frozen=True, tag="n"):
    """A node has connected, disconnected or reconnected."""

    key: str  # `scoped_key(account_id, node_id)`
    connection_id: str  # the connection that was opened or closed


class CallPending(_Notification, frozen=True, tag="w"):
    """A call for this target was added or cancelled."""

    target: str  # the id of its connection


class CallAnswered(_Notification, frozen=True, tag="r"):
    call_id: CallId


class SignedOut(_Notification, frozen=True, tag="o"):
    sign_in_id: str


class SettingsChanged(_Notification, frozen=True, tag="p"):
    """A user has changed a setting."""

    account_id: AccountId


class ActionStopped(_Notification, frozen=True, tag="s"):
    """An execution was cancelled; the instance that runs it must stop it."""

    event_id: str


LogAppended = RunAppended | ThreadAppended | CanvasAppended | AccountAppended | OrderAdvanced
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

_decode = msgspec.json.Decoder(Notification).decode


def to_text(notification: Notification) -> str:
    """Return the notification as text without spaces."""
    return msgspec.json.encode(notification).decode()


def from_text(text: str) -> Notification | None:
    """Return the notification, or None for a kind that only newer instances know."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return None
