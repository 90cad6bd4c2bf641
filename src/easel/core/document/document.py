"""A document: the Markdown text of a canvas, its drafts and versions. RS-32

Owns the values. A change is a `Decide`: a function that the store calls with the current document while it
locks it, and that returns the change. So a rule never decides on stale data.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from easel.core.document.lease import Held, Lease
from easel.core.stream.envelope import Envelope
from easel.core.stream.marker import OffloadedValue
from easel.ids import AccountId, CanvasId, RunId, SessionId


class AuthorKind(StrEnum):
    PERSON = "person"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a text: a person, or the assistant in a run. RS-49"""

    kind: AuthorKind
    id: str
    run_id: RunId | None = None


LineRange = tuple[int, int]  # first and last line, 1-based and inclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document as read at `now`, by the store's clock.

    The text is that of the newest draft. `inspected` are the lines of this revision that the holder of the
    lease has been shown. `version_revision_id` is the revision of the newest version, None if there is none.
    """

    account_id: AccountId
    canvas_id: CanvasId
    session_id: SessionId  # of the session that owns the canvas
    canvas_revision: int
    last_seq: int = 0  # of the log of the canvas
    text: str
    revision_id: str
    lease: Lease
    inspected: Sequence[LineRange] = ()
    version_revision_id: str | None
    now: datetime
    # Whether the run of the claim was cancelled, or its session or the document's has a later message.
    is_interrupted: bool = False

    @property
    def live_lease(self) -> Held | None:
        """Return the lease, unless it has expired."""
        return self.lease if isinstance(self.lease, Held) and self.lease.is_live(self.now) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentChange:
    """A change of a document. A field that is None leaves its part unchanged.

    A new text needs its author. Successive texts of one author are one draft until it is reported. `events`
    are appended to the log of the canvas.
    """

    lease: Lease | None = None
    inspected: Sequence[LineRange] | None = None
    text: str | None = None
    author: Author | None = None
    promotes_before: bool = False  # make the text before the change a version, if it differs. CT-35
    offloaded: Sequence[OffloadedValue] = ()  # to store as artifacts before the change
    promotes: bool = False  # make the resulting text a version, if it differs from the newest version. CT-35
    events: Sequence[Envelope] = ()


Decide = Callable[[Document], DocumentChange | None]  # returns None for no change


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentDraft:
    """The text that one author left, and the text before. `draft_no` orders the drafts of a document."""

    canvas_id: CanvasId
    draft_no: int
    author: Author
    before: str
    text: str


@dataclass(frozen=True, slots=True)
class Reported:
    """The drafts of a document up to `draft_no`, which a run's batch reports in hidden updates.

    The store marks them as reported and makes each a version, if it is not one already and differs from the
    version before. CT-34, CT-35
    """

    canvas_id: CanvasId
    draft_no: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentVersion:
    """A version of a document, without its text."""

    version_no: int
    revision_id: str
    author: Author
    created_at: datetime
    size: int  # bytes of UTF-8


def revision_of(text: str) -> str:
    """Return the `revision_id` of a text: the SHA-256 of its UTF-8. CT-30"""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
