"""Writes of canvases that leave out a part: the canvas id, or the spec beside a mode. RS-67

Owns how the missing part is made. The library does the writes.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from easel.core.canvas.canvas import CanvasSnapshot, make_canvas_id
from easel.core.canvas.spec import Mode, with_mode
from easel.core.principal import Principal
from easel.errors import AlreadyExists, NotFound, RevisionConflict, Unavailable
from easel.host.canvases.drafts import Draft
from easel.host.canvases.library import MAX_ATTEMPTS, NEW_SPEC, CanvasLibrary

# Writes the spec if the canvas is still at the revision, 0 for a canvas that must not exist. None: any.
Write = Callable[[Mapping[str, Any] | None, int | None], Awaitable[CanvasSnapshot]]


async def create_canvas(
    library: CanvasLibrary, principal: Principal, draft: Draft, mode: str | None
) -> CanvasSnapshot:
    """Create a canvas. Without a canvas id, it gets one made of its title. Raises `AlreadyExists`."""
    if mode is not None:
        draft = replace(
            draft, spec=with_mode(_without_mode(NEW_SPEC) if draft.spec is None else draft.spec, mode)
        )
    if draft.canvas_id:
        return await library.create(principal, draft)
    for canvas_id in _candidate_ids(draft.title):
        try:
            return await library.create(principal, replace(draft, canvas_id=canvas_id))
        except AlreadyExists:
            continue
    raise Unavailable(what="A free canvas id")


async def upsert_canvas(
    library: CanvasLibrary, principal: Principal, draft: Draft, mode: str | None
) -> CanvasSnapshot:
    """Create or replace a canvas. Without a canvas id, it is a new one."""
    if not draft.canvas_id:
        return await create_canvas(library, principal, draft, mode)

    async def write(spec: Mapping[str, Any] | None, revision: int | None) -> CanvasSnapshot:
        return await library.upsert(principal, replace(draft, spec=spec, expected_revision=revision))

    if mode is None or draft.spec is not None:
        spec = None if draft.spec is None else with_mode(draft.spec, mode)
        return await write(spec, draft.expected_revision)
    return await _write_mode(
        library, principal, draft.canvas_id, write, mode=mode, expected_revision=draft.expected_revision
    )


async def patch_canvas(
    library: CanvasLibrary,
    principal: Principal,
    canvas_id: str,
    *,
    mode: str | None,
    state_patch: list[Any] | None,
    spec: Mapping[str, Any] | None,
    title: str | None,
    owner_session_key: str | None,
    expected_revision: int | None,
) -> CanvasSnapshot:
    """Change parts of a canvas. A mode without a spec changes the mode of the spec. Raises `NotFound`."""

    async def write(spec: Mapping[str, Any] | None, revision: int | None) -> CanvasSnapshot:
        return await library.patch(
            principal,
            canvas_id,
            state_patch=state_patch,
            spec=spec,
            title=title,
            owner_session_key=owner_session_key,
            expected_revision=revision,
        )

    if mode is None or spec is not None:
        return await write(None if spec is None else with_mode(spec, mode), expected_revision)
    return await _write_mode(
        library, principal, canvas_id, write, mode=mode, expected_revision=expected_revision
    )


async def _write_mode(
    library: CanvasLibrary,
    principal: Principal,
    canvas_id: str,
    write: Write,
    *,
    mode: str,
    expected_revision: int | None,
) -> CanvasSnapshot:
    """Write the current spec with another mode. Retries if another request changes the canvas."""
    with_mode({}, mode)
    for _ in range(MAX_ATTEMPTS):
        try:
            current = (await library.get(principal, canvas_id)).canvas
        except NotFound:
            spec, revision = with_mode(_without_mode(NEW_SPEC), mode), 0
        else:
            spec, revision = with_mode(_without_mode(current.spec), mode), current.revision
            if current.spec.get("mode", Mode.HTML) == mode:
                return await write(None, expected_revision)
        try:
            return await write(spec, revision if expected_revision is None else expected_revision)
        except RevisionConflict:
            if expected_revision is not None:
                raise
    raise Unavailable(what=f"Canvas {canvas_id}")


def _without_mode(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name != "mode"}


def _candidate_ids(title: str | None) -> Iterator[str]:
    yield make_canvas_id(title)
    for _ in range(MAX_ATTEMPTS):
        yield make_canvas_id(title, suffix=secrets.token_hex(4))
