"""The marker that replaces an offloaded value, and how the value is restored. CC-26, RS-35

Owns the marker's members, the escaping of forged markers, and restoring. Does not know where artifacts are
stored: the host stores and fetches the bytes.

**Text or JSON.** The id of an artifact is the digest of its bytes, and the string `[1]` and the list `[1]`
have the same bytes. The `uri` shows which of both was offloaded: it ends in `#json` unless the value was a
string. The fragment `#json` is never sent to a server, so the `uri` always returns the exact bytes.

**Forged markers.** In the result of `offload_event` or `offload_large_values`, every object with `redacted`
true is a marker that these functions made. In an object from a client the key `redacted` with the value true
is escaped as `~redacted`, and the key `~redacted` as `~~redacted`. Restoring removes one `~`.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

import msgspec

from easel.core.artifact.artifact import SERVED_AT
from easel.ids import ArtifactId, artifact_id

MAX_MENTIONED = 1_000  # references counted per offloaded value; further artifacts in it are ignored
LIMIT = 2_048  # bytes of an event's data as UTF-8, and characters of Base64 in any value

REDACTED = "redacted"
_AS_JSON = "#json"
_ESCAPE = "~"

to_bytes = msgspec.json.Encoder().encode
from_bytes = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class OffloadedValue:
    """The artifact of an offloaded value."""

    artifact_id: ArtifactId
    content: bytes
    media_type: str = "text/plain; charset=utf-8"


def make_marker(value: Any) -> tuple[dict[str, Any], OffloadedValue]:
    """Return the marker and the artifact of a value. A string is stored as UTF-8, other values as JSON."""
    is_text = isinstance(value, str)
    content = value.encode() if is_text else to_bytes(value)
    digest = hashlib.sha256(content).hexdigest()
    offloaded = OffloadedValue(artifact_id(digest), content)
    if not is_text:
        offloaded = replace(offloaded, media_type="application/json")
    uri = SERVED_AT + offloaded.artifact_id + ("" if is_text else _AS_JSON)
    return {REDACTED: True, "original_size": len(content), "sha256": digest, "uri": uri}, offloaded


def marker_size(original_size: int, *, is_text: bool) -> int:
    """Return the bytes that the marker takes in JSON, for a value of `original_size` bytes."""
    return MIN_MARKER_BYTES - 1 + len(str(original_size)) + (0 if is_text else len(_AS_JSON))


MIN_MARKER_BYTES = len(to_bytes(make_marker("")[0]))


# --- forged markers -----------------------------------------------------------------------------------------

MAY_BE_FORGED = REDACTED + '"'  # JSON without this text has no key that needs escaping
_ESCAPED_KEY = re.compile(f"{_ESCAPE}+{REDACTED}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_marker(value: Mapping[Any, Any]) -> bool:
    """Return whether the object has all members of a marker; `redacted` alone may be a client's member."""
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


def escape_key(key: str, value: Any) -> str:
    if not key.endswith(REDACTED):
        return key
    return _ESCAPE + key if _ESCAPED_KEY.fullmatch(key) or (key == REDACTED and value is True) else key


def unescape_key(key: str) -> str:
    """Return the original key."""
    return key[1:] if key.endswith(REDACTED) and _ESCAPED_KEY.fullmatch(key) else key


def unescape_keys(value: Any) -> Any:
    """Return an object with its original keys; any other value unchanged."""
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, Any]", value)
    return (
        {unescape_key(key): item for key, item in members.items()}
        if any(map(_ESCAPED_KEY.fullmatch, members))
        else members
    )


# --- restoring ----------------------------------------------------------------------------------------------


def restore_markers(value: Any, fetched: Mapping[ArtifactId, bytes]) -> Any:
    """Return the original value. `fetched` must have the bytes of all artifacts that `markers_in` returns.

    If the complete data of an event was offloaded, the marker also has the event's visibility and provenance.
    They are kept.
    """
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if not is_marker(members):
            return {unescape_key(key): restore_markers(item, fetched) for key, item in members.items()}
        content = fetched[_artifact_of(members)]
        original: Any = from_bytes(content) if members["uri"].endswith(_AS_JSON) else content.decode()
        others = {key: item for key, item in members.items() if key not in _FIELDS}
        return {**original, **others} if others else original
    if isinstance(value, list):
        return [restore_markers(item, fetched) for item in cast("list[Any]", value)]
    return value


def markers_in(value: Any) -> frozenset[ArtifactId]:
    """Return the artifacts of all markers in the value, which are needed to restore it."""
    return frozenset(map(_artifact_of, _find_markers(value)))


def offloaded_bytes(value: Any) -> int:
    """Return the total size of the offloaded values that this value has markers of."""
    return sum(marker["original_size"] for marker in _find_markers(value))


def _find_markers(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if is_marker(members):
            yield members
        else:
            for item in members.values():
                yield from _find_markers(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _find_markers(item)


_FIELDS = frozenset({REDACTED, "original_size", "sha256", "uri"})


def _artifact_of(marker: Mapping[str, Any]) -> ArtifactId:
    return artifact_id(marker["sha256"])


# --- mentions -----------------------------------------------------------------------------------------------

_ARTIFACT = re.compile(r"art_[0-9a-f]{64}")
_ARTIFACT_IN_BYTES = re.compile(_ARTIFACT.pattern.encode())


def mentioned_artifacts(text: str, offloaded: tuple[OffloadedValue, ...] = ()) -> frozenset[ArtifactId]:
    """Return every artifact that a JSON text or its offloaded values name.

    These are the references that keep the artifacts from being deleted.
    """
    found = frozenset(map(ArtifactId, _ARTIFACT.findall(text) if "art_" in text else ()))
    for value in offloaded:
        if b"art_" in value.content:
            names = islice(_ARTIFACT_IN_BYTES.finditer(value.content), MAX_MENTIONED)
            found |= {ArtifactId(name[0].decode()) for name in names}
    return found
