"""The text of a message: always a string, with references in place of encoded runs. RS-62

Owns the form of a reference, what is taken out of a text, how a text and its markers fit into an event, and
how the text is restored. A reference counts only if its marker is in `attachments`; any other is ordinary
text. Does not know how Base64 is recognised (see `base64_runs`), or where artifacts are stored.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from easel.core.stream.base64_runs import find_base64_runs
from easel.core.stream.json_text import to_json
from easel.core.stream.marker import LIMIT, OffloadedValue, from_bytes, make_marker
from easel.core.stream.payload_limit import is_small, offload_event
from easel.ids import ArtifactId, artifact_id

Marker = dict[str, Any]

MIN_BEGINNING_BYTES = 500  # of a cut text; if the list of attachments leaves less, one marker replaces it
MIN_TEXT_BYTES = 800  # of a cut text and its marker; the other members of an event leave at least this
DELTA_BYTES = 1_500  # with its ids, the event of a delta is below the limit of 2 KB (RS-35)

MAX_CHARACTER_BYTES = 6  # of one character in JSON

_REFERENCE = re.compile(r"\[\[artifact:(art_[0-9a-f]{64})\]\]")
_REFERENCE_LENGTH = len("[[artifact:art_]]") + 64
_TEXT_MEMBERS = frozenset({"text", "truncated", "attachments"})


class EncodedRun(str):
    """A piece of text that is an encoded run over the limit, or a part of one."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class MessageText:
    """A text with references, the markers of what they refer to, and the values to store as artifacts."""

    text: str
    attachments: tuple[Marker, ...] = ()
    offloaded: tuple[OffloadedValue, ...] = ()


def take_out_runs(text: str) -> MessageText:
    """Replace each encoded run over the limit by a reference, and keep the words around it."""
    runs = find_base64_runs(text)
    if not runs:
        return MessageText(_storable(text))
    parts: list[str] = []
    markers: dict[str, tuple[Marker, OffloadedValue]] = {}
    at = 0
    for start, end in runs:
        marker, offloaded = make_marker(_storable(text[start:end]))
        markers[offloaded.artifact_id] = marker, offloaded
        parts += [_storable(text[at:start]), to_reference(offloaded.artifact_id)]
        at = end
    parts.append(_storable(text[at:]))
    return MessageText(
        "".join(parts),
        tuple(marker for marker, _ in markers.values()),
        tuple(offloaded for _, offloaded in markers.values()),
    )


def take_out_whole(text: str) -> MessageText:
    """Replace the whole text, which is a run or a part of one, by a reference."""
    marker, offloaded = make_marker(_storable(text))
    return MessageText(to_reference(offloaded.artifact_id), (marker,), (offloaded,))


def to_reference(name: ArtifactId) -> str:
    return f"[[artifact:{name}]]"


def _storable(text: str) -> str:
    """Return the text as it is stored: without NUL and half surrogate pairs."""
    if "\x00" not in text:
        try:
            text.encode()
        except UnicodeEncodeError:
            pass
        else:
            return text
    return from_bytes(to_json(text))


# --- events -------------------------------------------------------------------------------------------------


def offload_message(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, tuple[OffloadedValue, ...]]:
    """Return the data of a message event in at most LIMIT bytes, its JSON, and the values taken out.

    `text` of the data is a `str`, an `EncodedRun` or a `MessageText`; in the result it is a string.
    """
    text: str | MessageText = data["text"]
    if isinstance(text, EncodedRun):
        text = take_out_whole(text)
    elif isinstance(text, str):
        json = to_json(data)
        if is_small(json):
            return data, json, ()
        text = take_out_runs(text)
    others = {name: value for name, value in data.items() if name not in _TEXT_MEMBERS}
    light, json, offloaded = offload_event(others, LIMIT - MIN_TEXT_BYTES)
    members, of_text = fit_into_event(text, LIMIT + 1 - len(json.encode()))
    text_json = to_json(members)
    joined = f"{json[:-1]},{text_json[1:]}" if light else text_json
    return {**light, **members}, joined, (*offloaded, *of_text)


def split_message(text: MessageText) -> list[MessageText]:
    """Split a text into pieces for deltas; no reference is divided, and each piece has its markers."""
    pieces: list[MessageText] = []
    at = 0
    while at < len(text.text):
        piece = cut_text(text.text[at : at + DELTA_BYTES + _REFERENCE_LENGTH], DELTA_BYTES)
        pieces.append(MessageText(piece, tuple(with_markers_of(piece, text.attachments))))
        at += len(piece)
    return pieces


def fit_into_event(text: MessageText, max_bytes: int) -> tuple[dict[str, Any], tuple[OffloadedValue, ...]]:
    """Return the members of an event that carry the text, in at most `max_bytes` of JSON, and its artifacts.

    A text that does not fit is cut: `truncated` is true, and the first attachment is the complete text. A
    list of attachments that does not fit is replaced by its marker.
    """
    members: dict[str, Any] = {"text": text.text}
    if text.attachments:
        members["attachments"] = list(text.attachments)
    if _size(members) <= max_bytes:
        return members, text.offloaded
    if text.attachments:
        marker, of_list = make_marker(list(text.attachments))
        members["attachments"] = marker
        if _size(members) <= max_bytes:
            return members, (*text.offloaded, of_list)
    complete, of_text = make_marker(text.text)
    offloaded = (*text.offloaded, of_text)
    members = {"text": "", "truncated": True, "attachments": [complete, *text.attachments]}
    if _size(members) + MIN_BEGINNING_BYTES > max_bytes and text.attachments:
        members["attachments"], of_list = make_marker(members["attachments"])
        offloaded += (of_list,)
    members["text"] = cut_text(text.text, max_bytes - _size(members))
    return members, offloaded


def cut_text(text: str, max_bytes: int) -> str:
    """Return the longest beginning that takes at most `max_bytes` in JSON and divides no reference."""
    if len(text) * MAX_CHARACTER_BYTES <= max_bytes:
        return text
    lengths = range(min(len(text), max_bytes) + 1)
    length = bisect_right(lengths, max_bytes, key=lambda length: len(to_json(text[:length]).encode()) - 2) - 1
    if length == len(text):
        return text
    start = max(0, length - _REFERENCE_LENGTH + 1)
    end = length + _REFERENCE_LENGTH
    divided = next((at for at in _REFERENCE.finditer(text, start, end) if at.end() > length), None)
    return text[: divided.start() if divided and divided.start() < length else length]


def _size(members: Mapping[str, Any]) -> int:
    return len(to_json(members).encode())


# --- reading ------------------------------------------------------------------------------------------------


def with_markers_of(text: str, attachments: Sequence[Marker]) -> list[Marker]:
    """Return the attachments that a text, which may be a beginning, refers to."""
    if not attachments:
        return []
    named = set(_REFERENCE.findall(text))
    return [marker for marker in attachments if artifact_id(marker["sha256"]) in named]


def find_references(text: str) -> list[ArtifactId]:
    """Return the artifacts that a text refers to, each once, in order."""
    return [ArtifactId(name) for name in dict.fromkeys(_REFERENCE.findall(text))]


def artifacts_of(attachments: Sequence[Marker]) -> list[ArtifactId]:
    return [artifact_id(marker["sha256"]) for marker in attachments]


def restore_references(text: str, fetched: Mapping[ArtifactId, bytes]) -> str:
    """Return the text with the content of each fetched artifact in place of its reference."""

    def content(reference: re.Match[str]) -> str:
        stored = fetched.get(ArtifactId(reference[1]))
        return reference[0] if stored is None else stored.decode()

    return _REFERENCE.sub(content, text) if fetched else text
