"""A run as it is told, and as it is held by the worker that claimed it."""

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
    input_artifact: ArtifactId | None = (
        None  # holds the input where that is too heavy for a table; `input_text` is its beginning
    )

    @property
    def is_terminal(self) -> bool:
        return is_terminal(self.status)


@dataclass(frozen=True, slots=True)
class NewRun:
    """What is asked for; the digest tells a repeated request from another one under the same key."""

    run_id: RunId
    user_id: UserId
    session_id: SessionId
    input_text: str
    max_attempts: int
    idempotency_key: str | None = None
    request_digest: str | None = None
    question: Message | None = None  # the message that it answers, which opens its place in the thread
    title: str | None = None  # for the session, if it has none yet
    input_artifact: ArtifactId | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's hold on one attempt of a run. Append, renew and finish all compare (worker_id, attempt). RX-13, RS-39"""

    run_id: RunId
    worker_id: WorkerId
    attempt: int
    user_id: UserId
    session_id: SessionId
    input_text: str
    max_attempts: int
    last_seq: int  # of the log as earlier attempts left it
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
        """Every earlier attempt lost its worker, and this is the last one: perhaps the run itself is what kills them."""
        return self.attempt == self.max_attempts and self.is_takeover

    @property
    def is_exhausted(self) -> bool:
        """Claimed only to be ended: every attempt it had was lost with its worker. RS-38"""
        return self.attempt > self.max_attempts


class ClaimLost(Exception):
    """Another worker holds the run now; nothing more may be written for it."""
