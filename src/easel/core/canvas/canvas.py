"""A canvas as it is stored: what it is called, its spec and state, its assets, who looks at it, and where its log stands.

A mutation is a `Decide`: under the canvas's lock it is shown the canvas as it is and says what becomes of it. So a rule never works
on a copy that somebody else has overtaken. CV-44
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from easel.core.canvas.assets import Asset
from easel.core.canvas.execution import Transition
from easel.core.canvas.refresh import Failing
from easel.core.canvas.spec import Refresh
from easel.core.session.session import is_session_key
from easel.core.stream.envelope import Envelope
from easel.errors import BadInput, RevisionConflict
from easel.ids import CanvasId, UserId, is_name

MAX_TITLE_LENGTH = 200
MAX_SESSION_KEY_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCanvas:
    """What is asked for, checked and light."""

    user_id: UserId
    canvas_id: CanvasId
    agent_id: str
    title: str
    spec: Mapping[str, Any]
    state: Mapping[str, Any]
    owner_session_key: str | None = None
    assets: Sequence[Asset] = ()
    refreshes: Sequence[Refresh] = ()
    is_accepted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Canvas:
    user_id: UserId
    canvas_id: CanvasId
    agent_id: str
    title: str
    owner_session_key: str | None  # None: the agent's main session
    spec_json: str = field(compare=False)  # as it is stored: most who read a canvas need only its state
    state: Mapping[str, Any]
    revision: int
    last_seq: int
    spec_revision: int  # at which revision the spec was stored last, or a page that an agent wrote: who accepts has to have seen it
    is_accepted: bool  # a person wrote the spec as it is, or accepted what an agent wrote. RS-59
    created_at: datetime
    updated_at: datetime

    @property
    def spec(self) -> Mapping[str, Any]:
        return msgspec.json.decode(self.spec_json)

    @property
    def session_key(self) -> str:
        return self.owner_session_key or f"agent:{self.agent_id}:main"


@dataclass(frozen=True, slots=True)
class View:
    """A client displays the canvas, on a connection that the view goes with; it is live while that is known to be there."""

    view_id: str
    client_id: str
    connection_id: str
    is_live: bool = True


@dataclass(frozen=True, slots=True)
class CanvasSnapshot:
    """All there is of a canvas, read together. CV-09, CV-46"""

    canvas: Canvas
    assets: Sequence[Asset] = field(default_factory=list[Asset])
    views: Sequence[View] = field(default_factory=list[View])
    failing: Sequence[Failing] = field(
        default_factory=list[Failing]
    )  # as it was read: an outcome does not tell of them

    @property
    def live_views(self) -> list[View]:
        return [view for view in self.views if view.is_live]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of a canvas, and the events that tell of it. What is None stays as it is."""

    events: Sequence[Envelope]
    is_mutation: bool = True  # whether the revision rises; who looks at a canvas does not change it
    title: str | None = None
    spec: Mapping[str, Any] | None = None
    state: Mapping[str, Any] | None = None
    owner_session_key: str | None = None
    put: Sequence[Asset] = ()
    removed: Sequence[str] = ()  # paths
    opened: View | None = None
    closed: Sequence[str] = ()  # views
    transition: Transition | None = None  # of an action's execution
    refreshes: Sequence[Refresh] | None = None  # what runs by itself from now on, where the spec changes
    is_accepted: bool | None = None  # whether a person stands for the spec


Decide = Callable[[CanvasSnapshot], Change | None]  # None: nothing is to be changed


@dataclass(frozen=True, slots=True)
class Outcome:
    """A canvas after a change. `left` are the keys of blobs that are no asset of it any more."""

    snapshot: CanvasSnapshot
    is_changed: bool
    orphaned_blobs: Sequence[str] = ()


def check_revision(canvas: Canvas, expected_revision: int | None) -> None:
    """Refuses before anything happens, and says where the canvas stands. CV-45"""
    if expected_revision is not None and expected_revision != canvas.revision:
        raise RevisionConflict(
            canvas=canvas.canvas_id, expected=expected_revision, currentRevision=canvas.revision
        )


def checked_canvas_id(value: str) -> CanvasId:
    if not is_name(value) or "__" in value:
        raise BadInput(
            problem="canvasId is 1 to 128 characters: letters, digits and . _ : - (a letter or digit first), without __."
        )
    return CanvasId(value)


def checked_agent_id(value: str) -> str:
    if not is_name(value) or "__" in value:
        raise BadInput(
            problem="agentId is 1 to 128 characters: letters, digits and . _ : - (a letter or digit first), without __."
        )
    return value


def checked_title(value: str | None, canvas_id: CanvasId) -> str:
    """One line; a canvas without a title is called by its id."""
    title = " ".join((value or "").split()) or canvas_id
    if len(title) > MAX_TITLE_LENGTH or not title.isprintable():
        raise BadInput(problem=f"title is at most {MAX_TITLE_LENGTH} printable characters.")
    return title


def checked_session_key(value: str | None) -> str | None:
    """`agent:{agentId}:{name}`."""
    if value is None:
        return None
    if not is_session_key(value) or len(value) > MAX_SESSION_KEY_LENGTH:
        raise BadInput(
            problem=f"ownerSessionKey is agent:AGENT:NAME, at most {MAX_SESSION_KEY_LENGTH} characters."
        )
    return value
