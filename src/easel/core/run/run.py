"""A run as clients see it, and the claim of the worker that executes it."""

from dataclasses import dataclass
from datetime import datetime

from easel.core.run.status import Status, is_terminal
from easel.core.session.message import Message
from easel.ids import ArtifactId, RunId, SessionId, UserId, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    run_id: RunId
    user_id: UserId
    session_id: SessionId
    status: Status
    input_text: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    error_message: str | None
    attempt: int
    max_attempts: int
    oldest_seq: int
    last_seq: int
    queue_no: int
    # Has the whole input if that was offloaded; `input_text` is its beginning then.
    input_artifact: ArtifactId | None = None

    @property
    def is_terminal(self) -> bool:
        return is_terminal(self.status)


@dataclass(frozen=True, slots=True)
class NewRun:
    """A requested run. The digest distinguishes a repeated request from another one with the same key."""

    run_id: RunId
    user_id: UserId
    session_id: SessionId
    input_text: str
    max_attempts: int
    idempotency_key: str | None = None
    request_digest: str | None = None
    question: Message | None = None  # the user's message
    title: str | None = None  # for a session without a title
    input_artifact: ArtifactId | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's ownership of one attempt of a run.

    Append, renew and finish all compare (worker_id, attempt). RX-13, RS-39
    """

    run_id: RunId
    worker_id: WorkerId
    attempt: int
    user_id: UserId
    session_id: SessionId
    input_text: str
    max_attempts: int
    last_seq: int  # last position of the log before this attempt
    turn_no: int
    queued_seconds: float  # from enqueue to this claim, by the database's clock
    running_seconds: float  # since the first attempt started, by the database's clock
    cancel_requested: bool
    input_artifact: ArtifactId | None = None

    @property
    def is_takeover(self) -> bool:
        return self.attempt > 1

    @property
    def is_last_chance(self) -> bool:
        """This is the last attempt, and all others lost their worker: the run may crash its workers."""
        return self.attempt == self.max_attempts and self.is_takeover

    @property
    def is_exhausted(self) -> bool:
        """The run is claimed only to be failed: it has no attempt left. RS-38"""
        return self.attempt > self.max_attempts


class ClaimLost(Exception):
    """The claim of the run has expired or passed to another worker; nothing more may be written for it."""
