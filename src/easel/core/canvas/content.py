"""The content of a canvas that a person accepts: spec, session and assets, and what a write does to it.

Owns what of a write is a change, who its author is, and whether the canvas is accepted afterwards. Only a
person's write accepts: a page runs actions in the name of its viewer. Does not know stores. RS-59, RS-68
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from easel.core.canvas.assets import Asset
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Change
from easel.core.canvas.consent import why_not_alone
from easel.core.canvas.events import ACCEPTED_MARK, SESSION_MARK, SPEC_MARK, TITLE_MARK, asset_path_mark
from easel.core.canvas.spec import Refresh
from easel.core.canvas.versions import Version
from easel.core.principal import Principal, PrincipalKind
from easel.core.session.session import main_session_key, resolve_session_key
from easel.core.values.fingerprint import fingerprint
from easel.errors import BadInput, Forbidden

CANNOT_ACCEPT = (
    "accepted: this request does not accept the canvas; review it and use `canvas.accept`, "
    "or send its spec, all assets and `ownerSessionKey`."
)
ONLY_PEOPLE_ACCEPT = (
    "accepted: only a person can accept a canvas; write it without `accepted`, then a person can accept it."
)
Hints = Mapping[str, Any]  # by tool; see `core.action.hints`


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentWrite:
    """The parts of a write as they were sent. A part that was not sent is None."""

    title: str | None = None
    spec: Mapping[str, Any] | None = None
    refreshes: Sequence[Refresh] | None = None  # the jobs of the spec
    hints: Callable[[Hints], Hints] | None = None  # of its tools, from those that the canvas remembers
    session_key: str | None = None
    put: Sequence[Asset] = ()
    removed: Sequence[str] = ()
    has_all_assets: bool = False
    is_accepted: bool | None = None  # as in `Draft`
    restored: Version | None = None  # the version whose content this is


def change_content(
    principal: Principal, snapshot: CanvasSnapshot, write: ContentWrite
) -> tuple[Change, list[str]]:
    """Return the change of the content, without events, and its marks in `changedPaths`.

    Without marks there is no change. Raises `BadInput` or `Forbidden` if `is_accepted` cannot become true.
    """
    canvas, restored, is_person = snapshot.canvas, write.restored, may_accept(principal)
    title = None if write.title == canvas.title else write.title
    spec = None if write.spec is None or fingerprint(write.spec) == fingerprint(canvas.spec) else write.spec
    session = resolve_session_key(write.session_key, canvas.agent_id)
    session = session if is_person and session != canvas.session_key else None  # RS-72
    present = {asset.path: asset for asset in snapshot.assets}
    other = [one for one in write.put if one.path not in present or one.has_other_content(present[one.path])]
    # A person may replace a blob that is missing by the same content.
    put = [one for one in write.put if one != present.get(one.path)] if is_person else other
    is_changed = bool(spec is not None or session or other or write.removed)
    # A write without a session means the default one: another one that a program chose was not seen. RS-72
    knows_session = write.session_key is not None or canvas.session_key == main_session_key(canvas.agent_id)
    covers_all = knows_session and (write.has_all_assets or not present)
    # What a person changes and does not accept keeps the author that the person who is asked must know. RS-64
    reviewed = None if restored is None or restored.is_accepted else restored.written_by
    if not is_person:
        accepted = False if is_changed else None
    elif restored is not None:  # not all of it was shown, so it is accepted only if it was before
        accepted = restored.is_accepted if is_changed else None
    else:
        is_whole = write.spec is not None and (canvas.is_accepted or covers_all)
        accepted = True if is_whole else None
        reviewed = None if canvas.is_accepted or is_whole else canvas.written_by
    if accepted and (problem := why_not_alone(canvas, canvas.spec if spec is None else spec, principal)):
        if write.is_accepted:
            raise Forbidden(problem=f"accepted: {problem}")
        accepted = False if is_changed else None
    author = (is_person and reviewed) or principal.author
    accepted = False if write.is_accepted is False else accepted
    if write.is_accepted and not (canvas.is_accepted if accepted is None else accepted):
        raise BadInput(problem=CANNOT_ACCEPT) if is_person else Forbidden(problem=ONLY_PEOPLE_ACCEPT)
    marks = [
        *([] if title is None else [TITLE_MARK]),
        *([] if spec is None else [SPEC_MARK]),
        *([] if session is None else [SESSION_MARK]),
        *map(asset_path_mark, (*write.removed, *(asset.path for asset in put))),
        *([] if accepted in (None, canvas.is_accepted) else [ACCEPTED_MARK]),
    ]
    change = Change(
        events=[],
        title=title,
        spec=spec,
        refreshes=None if spec is None else write.refreshes,
        owner_session_key=session,
        put=put,
        removed=write.removed,
        is_accepted=accepted,
        written_by=author if is_changed or put else None,
        tool_hints=write.hints(canvas.tool_hints) if write.hints and is_changed else None,
        titled_by=None if title is None else restored.titled_by if restored else principal.author,
        restored_version=None if restored is None else restored.number,
    )
    return change, marks


def may_accept(principal: Principal) -> bool:
    """Return whether the principal may accept a canvas: only a person may."""
    return principal.is_person


def has_limited_reach(principal: Principal) -> bool:
    """Return whether the principal's specs may allow only tools that it may call itself: those of agents."""
    return principal.kind is PrincipalKind.AGENT


def warn_of_session(canvas: Canvas, session_key: str | None) -> list[str]:
    """Return a warning if a write named another session than the canvas has. RS-72"""
    if resolve_session_key(session_key, canvas.agent_id) in (None, canvas.session_key):
        return []
    return [
        f"ownerSessionKey: this canvas works in the folder of {canvas.session_key}, and only a person can "
        "change that; the other session was ignored."
    ]
