"""A run as clients see it, and the claim of the worker that executes it."""

from dataclasses import dataclass
from datetime import datetime

from easel.core.principal import MAIN_AGENT, Principal, PrincipalKind, Role, lower_role
from easel.core.run.status import Status, is_terminal
from easel.core.session.events import BY_HOST
from easel.core.session.message import Message
from easel.core.stream.envelope import Provenance
from easel.core.stream.message_text import Marker
from easel.ids import AccountId, RunId, SessionId, UserId, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    run_id: RunId
    account_id: AccountId
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
    started_by: UserId | None = None  # the person who answers for it; None: Easel itself
    input_attachments: tuple[Marker, ...] = ()  # of the references in `input_text`

    @property
    def is_terminal(self) -> bool:
        return is_terminal(self.status)


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to enqueue. `request_digest` detects different requests with the same idempotency key."""

    run_id: RunId
    account_id: AccountId
    session_id: SessionId
    input_text: str
    max_attempts: int
    idempotency_key: str | None = None
    request_digest: str | None = None
    question: Message | None = None  # the user's message
    title: str | None = None  # set if the session has no title
    input_attachments: tuple[Marker, ...] = ()
    by: Provenance = BY_HOST  # who starts the run
    started_by: UserId | None = None  # the person who answers for it; None: Easel itself
    started_role: Role = Role.MEMBER  # of the principal that starts it
    max_queued: int = 0  # refuse the run if its account has so many queued runs already; 0: do not count them


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's ownership of one attempt of a run.

    The store compares `worker_id` and `attempt` at every append, renewal and end. RX-13, RS-39
    """

    run_id: RunId
    worker_id: WorkerId
    attempt: int
    account_id: AccountId
    session_id: SessionId
    input_text: str
    max_attempts: int
    last_seq: int  # position in the log before this attempt
    turn_no: int  # the run's place in the order in which runs became ready
    queued_seconds: float  # from enqueue to this claim, by the database's clock
    running_seconds: float  # since the first attempt started, by the database's clock
    cancel_requested: bool
    has_document: bool = False  # whether the session has a document
    input_attachments: tuple[Marker, ...] = ()  # of the references in `input_text`
    started_by: UserId | None = None  # the person who answers for the run; None: Easel itself
    started_role: Role = Role.MEMBER  # of the principal that started it
    role_now: Role | None = None  # of that person in the account at this claim; None: has left it

    @property
    def role(self) -> Role | None:
        """The role of the run's agent: no higher than at its start, and than its starter's now. RS-76

        None: the person who started it has left the account. Easel itself has no role that could change.
        """
        if self.started_by is None or self.role_now is Role.ADMIN:
            return self.started_role
        return None if self.role_now is None else lower_role(self.started_role, self.role_now)

    @property
    def agent(self) -> Principal:
        """The principal of the run: the agent that acts in it, for the person who started it. RS-76"""
        return Principal(
            self.account_id,
            MAIN_AGENT,
            PrincipalKind.AGENT,
            self.role or Role.VIEWER,
            on_behalf_of=self.started_by,
            run_id=self.run_id,
        )

    @property
    def may_act(self) -> bool:
        """Whether the run may be executed: its starter may still start runs in the account. RS-76"""
        return self.role not in (None, Role.VIEWER)

    @property
    def is_takeover(self) -> bool:
        return self.attempt > 1

    @property
    def is_last_chance(self) -> bool:
        """Whether this is the last attempt after lost workers: the run itself may crash its workers."""
        return self.attempt == self.max_attempts and self.is_takeover

    @property
    def is_exhausted(self) -> bool:
        """Whether no attempt is left, so that the worker claims the run only to fail it. RS-38"""
        return self.attempt > self.max_attempts


class ClaimLost(Exception):
    """The claim of the run has expired or passed to another worker; nothing more may be written for it."""
