"""The content of a canvas that a person accepts: title, spec, session and assets, and what a write does to it.

Owns which parts of a write are changes, who their author is, and whether the canvas is accepted afterwards. A
write by a program that changes nothing gives no change. The session in whose folder a canvas works is chosen at
its creation, and afterwards only by a person. Does not know stores. RS-59, RS-68, RS-72
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from easel.core.canvas.acceptance import acceptance_after, are_assets_changed, may_accept
from easel.core.canvas.assets import Asset
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Change
from easel.core.canvas.events import ACCEPTED_MARK, SESSION_MARK, SPEC_MARK, TITLE_MARK, asset_path_mark
from easel.core.canvas.spec import Refresh
from easel.core.canvas.versions import Version
from easel.core.principal import Principal
from easel.core.session.session import resolve_session_key
from easel.core.values.fingerprint import fingerprint
from easel.errors import BadInput, Forbidden

CANNOT_ACCEPT = (
    "accepted: this request does not accept the canvas; review it and use `canvas.accept`, "
    "or send its spec and all assets."
)
ONLY_PEOPLE_ACCEPT = (
    "accepted: only a person can accept a canvas; write it without `accepted`, then a person can accept it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentWrite:
    """The parts of a write as they were sent. A part that was not sent is None."""

    title: str | None = None
    spec: Mapping[str, Any] | None = None
    refreshes: Sequence[Refresh] | None = None  # the jobs of the spec
    session_key: str | None = None
    put: Sequence[Asset] = ()
    removed: Sequence[str] = ()
    has_all_assets: bool = False
    is_accepted: bool | None = None  # as in `Draft`
    restored: Version | None = None  # the version whose content this is


def change_content(
    principal: Principal, snapshot: CanvasSnapshot, write: ContentWrite
) -> tuple[Change, list[str]]:
    """Return the change of the content, without events and hints of tools, and its marks in `changedPaths`.

    Without marks there is no change. Raises `BadInput` or `Forbidden` if `is_accepted` cannot become true.
    """
    canvas, restored = snapshot.canvas, write.restored
    title = None if write.title == canvas.title else write.title
    spec = None if write.spec is None or fingerprint(write.spec) == fingerprint(canvas.spec) else write.spec
    session = resolve_session_key(write.session_key, canvas.agent_id)
    session = session if may_accept(principal) and session != canvas.session_key else None
    # A person's write of the same content replaces its blob, which may be missing.
    put = [one for one in write.put if may_accept(principal) or are_assets_changed(snapshot, [one])]
    is_changed = bool(spec is not None or session or are_assets_changed(snapshot, put, write.removed))
    if restored is None:
        accepted = acceptance_after(
            principal,
            snapshot,
            is_changed=is_changed,
            has_spec=write.spec is not None,
            has_all_assets=write.has_all_assets,
        )
        is_complete = write.spec is not None and write.has_all_assets
        reviewed = None if is_complete or canvas.is_accepted or accepted else canvas.written_by
    else:
        # A person who names a version has not seen all of it: it is accepted only if it was before.
        accepted = (restored.is_accepted and may_accept(principal)) if is_changed else None
        reviewed = None if restored.is_accepted else restored.written_by
    # What a person changes without accepting it keeps the author that the person who is asked must know. RS-64
    author = (may_accept(principal) and reviewed) or principal.author
    accepted = False if write.is_accepted is False else accepted
    if write.is_accepted and not (canvas.is_accepted if accepted is None else accepted):
        raise (
            BadInput(problem=CANNOT_ACCEPT)
            if may_accept(principal)
            else Forbidden(problem=ONLY_PEOPLE_ACCEPT)
        )
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
        titled_by=None if title is None else restored.titled_by if restored else principal.author,
        restored_version=None if restored is None else restored.number,
    )
    return change, marks


def warn_of_session(canvas: Canvas, session_key: str | None) -> list[str]:
    """Return a warning if a write named another session than the one in whose folder the canvas works. RS-72"""
    if resolve_session_key(session_key, canvas.agent_id) in (None, canvas.session_key):
        return []
    return [
        f"ownerSessionKey: this canvas works in the folder of {canvas.session_key}, and only a person can "
        "change that; the other session was ignored."
    ]
