"""The marker that stands for a value that was moved to an artifact, and the way back. CC-26, RS-35

Owns the marker's shape, what tells ours from one that a client made, and how a value is put back together. Pure: it says
which bytes are to be kept as artifacts; keeping and fetching them is the host's business.

**Text or JSON.** An artifact is named by its bytes, and the string `[1]` and the list `[1]` are the same bytes under the same
name. Neither the four fields nor the artifact can say which of the two was moved, so the `uri` does: that of a value
that was no string ends in `#json`. A fragment never travels: whoever fetches the `uri` gets the same exact bytes.

**Ours or theirs.** In what went through `offload_event` or `offload_large_values`, an object with `redacted` true is ours. One that was
there before has the key written `~redacted`; and a key that was written so before gets one more `~`. Taking one off
again gives back what was.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import msgspec

from easel.core.artifact.artifact import SERVED_AT
from easel.ids import ArtifactId, artifact_id

MAX_MENTIONED = 1_000  # in one moved value: whoever writes a book of names has not read them
LIMIT = 2_048  # bytes of UTF-8: of an event's data, and of Base64 anywhere

REDACTED = "redacted"
_AS_JSON = "#json"
_ESCAPE = "~"

to_bytes = msgspec.json.Encoder().encode
from_bytes = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class OffloadedValue:
    """A value that was taken out, as the artifact that it becomes."""

    artifact_id: ArtifactId
    content: bytes
    media_type: str = "text/plain; charset=utf-8"


def move(value: Any) -> tuple[dict[str, Any], OffloadedValue]:
    """The marker for a value, and the exact bytes it speaks of: a string's own, any other value's compact JSON."""
    is_text = isinstance(value, str)
    content = value.encode() if is_text else to_bytes(value)
    digest = hashlib.sha256(content).hexdigest()
    offloaded = (
        OffloadedValue(artifact_id(digest), content)
        if is_text
        else OffloadedValue(artifact_id(digest), content, "application/json")
    )
    uri = SERVED_AT + offloaded.artifact_id + ("" if is_text else _AS_JSON)
    return {REDACTED: True, "original_size": len(content), "sha256": digest, "uri": uri}, offloaded


def marker_size(original_size: int, *, is_text: bool) -> int:
    """What the marker of so many bytes takes in JSON."""
    return MIN_MARKER_BYTES - 1 + len(str(original_size)) + (0 if is_text else len(_AS_JSON))


MIN_MARKER_BYTES = len(to_bytes(move("")[0]))


# --- ours and theirs --------------------------------------------------------------------------------------------------

MAY_BE_FORGED = REDACTED + '"'  # no JSON has the key without it
_ESCAPED_KEY = re.compile(f"{_ESCAPE}+{REDACTED}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_marker(value: Mapping[Any, Any]) -> bool:
    """With all that a marker has: a patch of a state may set one member called `redacted`, and that is none."""
    if value.get(REDACTED) is not True:
        return False
    size, digest, uri = value.get("original_size"), value.get("sha256"), value.get("uri")
    return (
        type(size) is int
        and size >= 0
        and isinstance(uri, str)
        and isinstance(digest, str)
        and _DIGEST.fullmatch(digest) is not None
    )


def escaped_key(key: str, value: Any) -> str:
    if not key.endswith(REDACTED):
        return key
    return _ESCAPE + key if _ESCAPED_KEY.fullmatch(key) or (key == REDACTED and value is True) else key


def _unescaped_key(key: str) -> str:
    return key[1:] if key.endswith(REDACTED) and _ESCAPED_KEY.fullmatch(key) else key


def unescaped(value: Any) -> Any:
    """An object with its keys as they came, its members as they are; anything else as it is."""
    if not isinstance(value, dict):
        return value
    given = cast("dict[str, Any]", value)
    return (
        {_unescaped_key(key): item for key, item in given.items()}
        if any(map(_ESCAPED_KEY.fullmatch, given))
        else given
    )


# --- the way back -----------------------------------------------------------------------------------------------------


def restored(value: Any, fetched: Mapping[ArtifactId, bytes]) -> Any:
    """What was there before: `fetched` has the bytes of all that `markers_in` names.

    An event whose data was moved as a whole keeps its visibility and provenance beside the marker; they stay.
    """
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        if not is_marker(given):
            return {_unescaped_key(key): restored(item, fetched) for key, item in given.items()}
        content = fetched[_artifact_of(given)]
        whole: Any = from_bytes(content) if given["uri"].endswith(_AS_JSON) else content.decode()
        beside = {key: item for key, item in given.items() if key not in _FIELDS}
        return {**whole, **beside} if beside else whole
    if isinstance(value, list):
        return [restored(item, fetched) for item in cast("list[Any]", value)]
    return value


def markers_in(value: Any) -> frozenset[ArtifactId]:
    """The artifacts that it takes to restore this."""
    return frozenset(_marked(value))


def _marked(value: Any) -> Iterator[ArtifactId]:
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        if is_marker(given):
            yield _artifact_of(given)
        else:
            for item in given.values():
                yield from _marked(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _marked(item)


def moved_bytes(value: Any) -> int:
    """What all that was moved out of it weighs together."""
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        return given["original_size"] if is_marker(given) else sum(map(moved_bytes, given.values()))
    return sum(map(moved_bytes, cast("list[Any]", value))) if isinstance(value, list) else 0


_FIELDS = frozenset({REDACTED, "original_size", "sha256", "uri"})


def _artifact_of(marker: Mapping[str, Any]) -> ArtifactId:
    return artifact_id(marker["sha256"])


# --- mentions ---------------------------------------------------------------------------------------------------------

_ARTIFACT = re.compile(r"art_[0-9a-f]{64}")
_ARTIFACT_IN_BYTES = re.compile(_ARTIFACT.pattern.encode())
_NONE: frozenset[ArtifactId] = frozenset()


def mentioned(text: str, offloaded: tuple[OffloadedValue, ...] = ()) -> frozenset[ArtifactId]:
    """Every artifact that an encoded event speaks of, in what was moved out of it too: whoever reads it whole will follow them."""
    found = frozenset(map(ArtifactId, _ARTIFACT.findall(text))) if "art_" in text else _NONE
    for one in offloaded:
        if b"art_" in one.content:
            found |= frozenset(
                ArtifactId(name.decode()) for name in islice(_found_in(one.content), MAX_MENTIONED)
            )
    return found


def _found_in(content: bytes) -> Iterator[bytes]:
    return (match[0] for match in _ARTIFACT_IN_BYTES.finditer(content))
