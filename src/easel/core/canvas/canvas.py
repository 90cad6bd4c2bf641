"""A stored canvas: title, spec, state, assets, views and log position.

Owns the values and the checks of their fields. Does not know stores. A mutation is a `Decide`: a function
that the store calls with the current snapshot while it locks the canvas, and that returns the change. So a
rule never decides on stale data. CV-44
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from easel.core.canvas.assets import Asset
from easel.core.canvas.consent import NO_CONSENT, Consent
from easel.core.canvas.refresh import Failing
from easel.core.canvas.spec import Refresh
from easel.core.session.session import MAIN_ALIAS, is_session_key, main_session_key, resolve_session_key
from easel.core.stream.envelope import Envelope
from easel.core.stream.marker import OffloadedValue
from easel.errors import BadInput, NotFound, RevisionConflict
from easel.ids import AccountId, CanvasId, UserId, is_name

_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
MAX_TITLE_LENGTH = 200
MAX_MADE_ID_LENGTH = 96  # of a canvas id that is made of a title
MAX_SESSION_KEY_LENGTH = 200
_WORD = re.compile(r"[a-z0-9]+")
_JOINERS = re.compile("(?<=\\S)[\u200c\u200d](?=\\S)")  # inside an emoji, or a word of some scripts
_ID_RULE = "must be 1 to 128 letters, digits and . _ : - (a letter or digit first), without __."


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCanvas:
    """A canvas to create. Its fields are checked, and large values are offloaded."""

    account_id: AccountId
    canvas_id: CanvasId
    agent_id: str
    title: str
    spec: Mapping[str, Any]
    state: Mapping[str, Any]
    owner_session_key: str | None = None
    assets: Sequence[Asset] = ()
    refreshes: Sequence[Refresh] = ()
    is_accepted: bool = True
    tool_hints: Mapping[str, Any] = field(default_factory=dict[str, Any])
    written_by: str | None = None
    consent: Consent = NO_CONSENT
    created_by: UserId | None = None  # the person who answers for it; None: Easel itself
    offloaded: Sequence[OffloadedValue] = ()  # to store as artifacts before the canvas


@dataclass(frozen=True, slots=True, kw_only=True)
class Canvas:
    account_id: AccountId
    canvas_id: CanvasId
    agent_id: str
    title: str
    owner_session_key: str | None  # None: the agent's main session
    spec_json: str = field(compare=False)  # decoded on demand: most readers need only the state
    state: Mapping[str, Any]
    revision: int
    last_seq: int
    # The revision of the last change of the spec or the session, or of the page by an agent. A person may
    # accept the spec only after seeing this revision or a later one.
    spec_revision: int
    is_accepted: bool  # whether a person wrote or accepted the spec. RS-59
    created_at: datetime
    updated_at: datetime
    # The hints of each allowed tool when the spec was written or accepted; see `core.action.hints`. RS-68
    tool_hints: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # Kind and id of the author of spec, assets and session, and of the title; None: not remembered. RS-64
    written_by: str | None = None
    titled_by: str | None = None
    # Paths of the state with values that no person wrote since the acceptance, and their authors. RS-73
    unreviewed: Mapping[str, str] = field(default_factory=dict[str, str])
    consent_json: str = "{}"  # what the members accepted last; decoded on demand. RS-77
    created_by: UserId | None = None  # the person who made it, or answers for the program that did

    @property
    def spec(self) -> Mapping[str, Any]:
        return msgspec.json.decode(self.spec_json)

    @property
    def consent(self) -> Consent:
        return Consent.from_json(msgspec.json.decode(self.consent_json))

    @property
    def session_key(self) -> str:
        return self.owner_session_key or main_session_key(self.agent_id)

    def session_of(self, key: str | None) -> str:
        """Return the session of an action that names this key, the alias `main` or none."""
        return resolve_session_key(key, self.agent_id) or self.session_key


@dataclass(frozen=True, slots=True)
class View:
    """A client that displays the canvas. A view is live while its connection is open and renewed."""

    view_id: str
    client_id: str
    connection_id: str
    user_id: UserId | None = None  # the person who has it open, or answers for the program that does
    is_live: bool = True


@dataclass(frozen=True, slots=True)
class CanvasSnapshot:
    """A canvas with its assets, views and failing jobs, read in one transaction. CV-09, CV-46"""

    canvas: Canvas
    assets: Sequence[Asset] = field(default_factory=list[Asset])
    views: Sequence[View] = field(default_factory=list[View])
    failing: Sequence[Failing] = field(default_factory=list[Failing])  # always empty in an `Outcome`
    # Tools that claim less effect than remembered, with the reason of each. Set only for views. RS-68
    weakened: Mapping[str, str] = field(default_factory=dict[str, str])
    # When the spec or an asset was last changed; None: not read.
    written_at: datetime | None = field(default=None, compare=False)

    @property
    def is_accepted(self) -> bool:
        """Whether the canvas counts as accepted: not while one of its tools is weaker than remembered."""
        return self.canvas.is_accepted and not self.weakened

    @property
    def live_views(self) -> list[View]:
        return [view for view in self.views if view.is_live]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a canvas and its events. A field that is None leaves its part of the canvas unchanged."""

    events: Sequence[Envelope]
    offloaded: Sequence[OffloadedValue] = ()  # to store as artifacts before the change
    is_mutation: bool = True  # whether the revision is incremented; not when a view is opened
    title: str | None = None
    spec: Mapping[str, Any] | None = None
    state: Mapping[str, Any] | None = None
    owner_session_key: str | None = None
    put: Sequence[Asset] = ()
    removed: Sequence[str] = ()  # paths of assets
    opened: View | None = None
    closed: Sequence[str] = ()  # ids of views
    refreshes: Sequence[Refresh] | None = None  # the jobs of the new spec, if the spec changes
    is_accepted: bool | None = None  # whether a person accepted the spec. RS-59
    tool_hints: Mapping[str, Any] | None = None
    written_by: str | None = None  # of a change of the spec, the assets or the session
    titled_by: str | None = None  # of a change of the title
    restored_version: int | None = None
    # The authors of values of the state by path; the others are of the accepted spec. None: all are of the
    # principal that makes the change.
    authors: Mapping[str, str] | None = None
    unreviewed: Mapping[str, str] | None = None  # set by the transaction
    consent: Consent | None = None  # set by the transaction


# Returns None for no change. Called once per attempt of the transaction, while the canvas is locked:
# on SQLite in the writer thread, where every other write waits, with Postgres on the event loop.
# So it must be quick: a parsed spec and all else that needs no lock is prepared
# before and compared with the snapshot.
Decide = Callable[[CanvasSnapshot], Change | None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A canvas after a change. `orphaned_blobs` are the blob keys of assets that were replaced or removed."""

    snapshot: CanvasSnapshot
    is_changed: bool
    orphaned_blobs: Sequence[str] = ()


def check_revision(canvas: Canvas, expected_revision: int | None) -> None:
    """Raise `RevisionConflict` if the caller expected another revision than the current one. CV-45"""
    if expected_revision is not None and expected_revision != canvas.revision:
        raise RevisionConflict(
            canvas=canvas.canvas_id, expected=expected_revision, currentRevision=canvas.revision
        )


def to_ms(at: datetime) -> int:
    """Return the time in milliseconds since 1970."""
    return (at - _EPOCH) // _MILLISECOND


def require_canvas_id(value: str) -> CanvasId:
    if not is_name(value) or "__" in value:
        raise BadInput(problem=f"canvasId {_ID_RULE}")
    return CanvasId(value)


def parse_canvas_id(canvas_id: str, what: str = "canvas") -> CanvasId:
    """Return the id of a stored canvas. Raises `NotFound`, without a query, if it is not a valid id."""
    if not is_name(canvas_id):
        raise NotFound(what=what, id=canvas_id[:200])
    return CanvasId(canvas_id)


def make_canvas_id(title: str | None, suffix: str = "") -> str:
    """Return a canvas id made of the title: its words in lower case, joined by `-`. RS-67

    A suffix distinguishes canvases with the same title.
    """
    plain = unicodedata.normalize("NFKD", title or "").encode("ascii", "ignore").decode().lower()
    words = "-".join(_WORD.findall(plain)) or "canvas"
    length = MAX_MADE_ID_LENGTH - len(suffix) - bool(suffix)
    return "-".join([words[:length].rstrip("-"), *([suffix] if suffix else [])])


def require_agent_id(value: str) -> str:
    if not is_name(value) or "__" in value:
        raise BadInput(problem=f"agentId {_ID_RULE}")
    return value


def parse_title(value: str | None, canvas_id: CanvasId) -> str:
    """Return the title on one line; the default is the canvas id."""
    title = " ".join((value or "").split()) or canvas_id
    if len(title) > MAX_TITLE_LENGTH or not _JOINERS.sub("", title).isprintable():
        raise BadInput(problem=f"title must be at most {MAX_TITLE_LENGTH} printable characters.")
    return title


def choose_title(
    title: str | None, spec: Mapping[str, Any] | None, before: Mapping[str, Any], canvas_id: CanvasId
) -> str | None:
    """Return the title to store, if any: the given one, else one that the spec newly declares."""
    if title is None and spec is not None and spec.get("title") != before.get("title"):
        title = spec.get("title") or None
    return None if title is None else parse_title(title, canvas_id)


def require_session_key(value: str | None) -> str | None:
    """Return the session key, if any. Raises `BadInput` unless it is `agent:{agentId}:{name}` or `main`."""
    if value in (None, MAIN_ALIAS):
        return value
    if not is_session_key(value) or len(value) > MAX_SESSION_KEY_LENGTH:
        raise BadInput(
            problem=f"ownerSessionKey must be `{MAIN_ALIAS}` or agent:AGENT:NAME, at most "
            f"{MAX_SESSION_KEY_LENGTH} characters."
        )
    return value
