"""The versions of a canvas: earlier titles, specs, assets and sessions that a change has replaced.

Owns when a change makes a version, what a version must keep so that it can be read later, and how the
difference between two versions is described. Does not know stores. The state belongs to no version.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, cast

from easel.core.canvas.assets import Asset
from easel.core.canvas.canvas import CanvasSnapshot, Change
from easel.core.principal import ActorKind
from easel.core.values.fingerprint import fingerprint

DEFAULT_MAX_VERSIONS = 50
MAX_PARTS = 50  # that the description of a change names
ADDED, REMOVED, CHANGED = "added", "removed", "changed"
_MEMBERS_COMPARED_ONE_BY_ONE = ("actions", "toolPolicy", "bindings")


class Part(NamedTuple):
    """A part of a canvas that two versions differ in, such as `spec.actions.save` or `assets/index.html`."""

    path: str
    how: str  # added, removed or changed


@dataclass(frozen=True, slots=True)
class Differences:
    """What a version changed. `more` is how many parts are not named."""

    parts: Sequence[Part]
    more: int = 0
    restored: int | None = None  # the version that was restored


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version without its content. The present content of a canvas is a version, too."""

    number: int
    revision: int  # the last revision of the canvas with this content; of the present version the current one
    title: str
    titled_by: str | None
    session_key: str  # the session in whose folder its actions work. RS-72
    is_accepted: bool  # whether a person had accepted this content when it was replaced
    written_by: str | None
    written_at: datetime | None
    differences: Differences | None  # from the version before; None: not known, as of the first version


@dataclass(frozen=True, slots=True)
class VersionContent:
    """A version with its content, and what the canvas had when the content was read.

    `canvas_written_at` is the time of the last change of its spec or its assets.
    """

    version: Version
    spec: Mapping[str, Any]
    assets: Sequence[Asset]
    tool_hints: Mapping[str, Any]  # as in `Canvas`
    canvas_revision: int
    canvas_written_at: datetime | None


@dataclass(frozen=True, slots=True)
class Replaced:
    """What a change replaces, and a version keeps. An asset that the change adds is None.

    A complete version has all parts: the newest one by a person and the newest accepted one stay when those
    after them are pruned. RS-72
    """

    is_complete: bool
    has_spec: bool
    assets: Mapping[str, Asset | None]
    differences: Differences


def find_replaced(before: CanvasSnapshot, change: Change) -> Replaced | None:
    """Return what the change replaces, or None if spec, session and the content of all assets stay."""
    spec_parts = [] if change.spec is None else compare_specs(before.canvas.spec, change.spec)
    assets: dict[str, Asset | None] = {}
    asset_parts: list[Part] = []
    current = {asset.path: asset for asset in before.assets}
    for path in change.removed:
        if path in current:
            assets[path] = current[path]
            asset_parts.append(Part(path, REMOVED))
    for asset in change.put:
        old = current.get(asset.path)
        if old is None or asset.has_other_content(old):
            assets[asset.path] = old
            asset_parts.append(Part(asset.path, ADDED if old is None else CHANGED))
    canvas = before.canvas
    moved = (
        [] if change.owner_session_key in (None, canvas.session_key) else [Part("ownerSessionKey", CHANGED)]
    )
    if not spec_parts and not asset_parts and not moved:
        return None
    title = [] if change.title in (None, canvas.title) else [Part("title", CHANGED)]
    parts = [*title, *moved, *spec_parts, *sorted(asset_parts)]
    differences = Differences(parts[:MAX_PARTS], max(0, len(parts) - MAX_PARTS), change.restored_version)
    ends_authorship = _is_by_person(canvas.written_by) and not _is_by_person(change.written_by)
    is_complete = ends_authorship or (canvas.is_accepted and change.is_accepted is False)
    all_assets: Mapping[str, Asset | None] = {**current, **assets} if is_complete else assets
    return Replaced(is_complete, is_complete or bool(spec_parts), all_assets, differences)


def _is_by_person(author: str | None) -> bool:
    return author is not None and author.startswith(f"{ActorKind.PERSON} ")


def compare_specs(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Part]:
    """Return the members that differ; of actions, policy and bindings each one."""
    parts: list[Part] = []
    for name in {**before, **after}:
        members: list[Part] = []
        if name in _MEMBERS_COMPARED_ONE_BY_ONE:
            members += _compare(
                f"spec.{name}.", *(object_or_empty(spec.get(name)) for spec in (before, after))
            )
        whole = ({name: spec[name]} if name in spec else {} for spec in (before, after))
        parts += members or _compare("spec.", *whole)
    return parts


def _compare(prefix: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[Part]:
    for name in {**before, **after}:
        if name not in before:
            yield Part(prefix + name, ADDED)
        elif name not in after:
            yield Part(prefix + name, REMOVED)
        elif fingerprint([before[name]]) != fingerprint([after[name]]):
            yield Part(prefix + name, CHANGED)


def object_or_empty(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
