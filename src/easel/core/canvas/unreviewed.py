"""Values of a canvas's state that agents, programs and tools wrote since a person accepted the canvas. RS-73

Owns which paths of the state have such values, and who wrote each. A write by a person clears its path and
all below it. Few paths are kept: of more, their common parents are. Does not know actions.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from easel.core.canvas.canvas import Canvas, Change
from easel.core.principal import Principal
from easel.core.stream.json_text import to_json
from easel.core.stream.marker import is_marker, unescape_keys
from easel.core.values.paths import MISSING, pointer
from easel.core.values.references import leaves

MAX_PATHS = 64
MAX_PATH_LENGTH = 500  # characters


def unreviewed_after(canvas: Canvas, change: Change, principal: Principal) -> Mapping[str, str]:
    """Return the author of each value that no person wrote, by JSON pointer, after a change."""
    is_acceptance = change.is_accepted and principal.is_person and change.restored_version is None
    authors = {} if is_acceptance else dict(canvas.unreviewed)
    if change.state is None:
        return authors
    for path, old, new in _differences(canvas.state, change.state, ()):
        author = None if principal.is_person else principal.author
        if change.authors is not None:
            author = next((who for at, who in change.authors.items() if is_related(at, path)), None)
        if author is None and _keeps_part(old, new):
            continue
        authors = {at: who for at, who in authors.items() if not _is_within(at, path)}
        if author is not None and not any(_is_within(path, at) for at in authors):
            authors[path] = author
    return _limit(authors)


def is_related(one: str, other: str) -> bool:
    """Return whether one of two JSON pointers is the other one or leads to it."""
    return _is_within(one, other) or _is_within(other, one)


def _is_within(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent}/")


def _differences(old: Any, new: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path and both values of each difference; an array and an offloaded value are one value."""
    if old is new:
        return
    if _is_object(new) and (_is_object(old) or (old is MISSING and new)):
        before: dict[str, Any] = {} if old is MISSING else unescape_keys(old)
        after: dict[str, Any] = unescape_keys(new)
        for name in {**before, **after}:
            yield from _differences(before.get(name, MISSING), after.get(name, MISSING), (*path, name))
    elif MISSING in (old, new) or to_json(old) != to_json(new):
        yield pointer(path), old, new


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping) and not is_marker(cast("Mapping[Any, Any]", value))


def _keeps_part(old: Any, new: Any) -> bool:
    """Return whether a new array has values of the old one, so that it is not all of its writer."""
    if not isinstance(old, list) or not isinstance(new, list):
        return False
    values = {to_json(leaf) for _, leaf in leaves(cast("list[Any]", old))}
    return any(to_json(leaf) in values for _, leaf in leaves(cast("list[Any]", new)))


def _limit(authors: dict[str, str]) -> dict[str, str]:
    """Return at most `MAX_PATHS` paths: the deepest and the longest are replaced by their parents."""
    while len(authors) > MAX_PATHS or max(map(len, authors), default=0) > MAX_PATH_LENGTH:
        deepest = max(path.count("/") for path in authors)
        authors = {
            path.rpartition("/")[0]
            if len(path) > MAX_PATH_LENGTH or (len(authors) > MAX_PATHS and path.count("/") == deepest)
            else path: author
            for path, author in authors.items()
        }
    return authors
