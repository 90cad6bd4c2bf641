"""What bytes are, by looking at their beginning, and how they may be shown.

Owns the tables of signatures and of passive types. Nothing is parsed or unpacked: an archive, a drawing or a document
with a billion laughs in it is as inert here as noise. What the sender says can name a type more closely, within a list of
types that are served alike, and never change what the bytes are.
"""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass

HEAD = 2_048  # bytes that are looked at

BINARY = "application/octet-stream"
TEXT = "text/plain"
HTML = "text/html"
SVG = "image/svg+xml"
XML = "text/xml"

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"\x00\x00\x01\x00", "image/x-icon"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"OggS\x00", "application/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"\x00asm", "application/wasm"),
)
# Four bytes that say "a container", then what it holds: after a length in RIFF, in front of it in ISO media.
_IN_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_IN_ISO = {
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"heic": "image/heic",
    b"M4A ": "audio/mp4",
    b"qt  ": "video/quicktime",
}

# What a browser takes for HTML when nobody tells it: https://mimesniff.spec.whatwg.org/#rules-for-identifying-an-unknown-mime-type
_TAG = re.compile(
    rb"<!--|<(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|meta|link|img|form)(?=[\s>/])"
)
_NOT_IN_TEXT = frozenset({*range(0x09), 0x0B, *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F})

# What a sender may call such bytes more closely. Only names: each is served in the way of its family.
_CLOSER: Mapping[str, frozenset[str]] = {
    TEXT: frozenset({"application/json", "application/x-ndjson", "text/csv", "text/markdown", "text/tab-separated-values", "text/x-diff"}),
    "application/zip": frozenset({
        "application/epub+zip",
        "application/vnd.oasis.opendocument.text",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    }),
    "application/ogg": frozenset({"audio/ogg", "video/ogg"}),
}  # fmt: skip


def media_type(head: bytes, declared: str = "") -> str:
    """The type of the bytes that begin so. `head` is their first `HEAD` bytes, or all of them."""
    found = _of_signature(head) or _of_text(head)
    declared = declared.partition(";")[0].strip().lower()
    return declared if declared in _CLOSER.get(found, ()) else found


def _of_signature(head: bytes) -> str | None:
    for signature, name in _SIGNATURES:
        if head.startswith(signature):
            # Two letters are no proof: a bitmap also has four bytes of nothing where text would go on.
            return name if name != "image/bmp" or head[6:10] == b"\x00" * 4 else None
    if head.startswith(b"RIFF"):
        return _IN_RIFF.get(head[8:12])
    if head[4:8] == b"ftyp":
        return _IN_ISO.get(head[8:12], "video/mp4")
    if head.startswith(b"\x1a\x45\xdf\xa3") and b"webm" in head[:64]:
        return "video/webm"
    return None


def _of_text(head: bytes) -> str:
    if not _NOT_IN_TEXT.isdisjoint(head) or not _is_utf8(head):
        return BINARY
    start = head.removeprefix(codecs.BOM_UTF8).lstrip().lower()
    if _TAG.match(start):
        return SVG if start.startswith(b"<!--") and b"<svg" in start else HTML
    if start.startswith((b"<svg", b"<!doctype svg")):
        return SVG
    if start.startswith((b"<?xml", b"<!doctype", b"<!entity")):
        return SVG if b"<svg" in start else HTML if b"<html" in start else XML
    return TEXT


def _is_utf8(head: bytes) -> bool:
    """A letter that the end of the head cuts in two is no fault."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD)
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Shown:
    """How bytes are handed to a browser."""

    content_type: str
    is_inline: bool
    extension: str  # of the file that they are saved as


_PLAIN = "text/plain; charset=utf-8"
# What nothing in a browser executes, whatever is in it. Everything else is a download of plain bytes.
_PASSIVE: Mapping[str, Shown] = {
    "image/png": Shown("image/png", True, ".png"),
    "image/jpeg": Shown("image/jpeg", True, ".jpg"),
    "image/gif": Shown("image/gif", True, ".gif"),
    "image/webp": Shown("image/webp", True, ".webp"),
    "image/avif": Shown("image/avif", True, ".avif"),
    "audio/mpeg": Shown("audio/mpeg", True, ".mp3"),
    "audio/wav": Shown("audio/wav", True, ".wav"),
    "audio/ogg": Shown("audio/ogg", True, ".ogg"),
    "video/ogg": Shown("video/ogg", True, ".ogv"),
    "video/mp4": Shown("video/mp4", True, ".mp4"),
    "video/webm": Shown("video/webm", True, ".webm"),
    "application/json": Shown("application/json", True, ".json"),
    TEXT: Shown(_PLAIN, True, ".txt"),
    "application/x-ndjson": Shown(_PLAIN, True, ".ndjson"),
    "text/csv": Shown(_PLAIN, True, ".csv"),
    "text/markdown": Shown(_PLAIN, True, ".md"),
    "text/tab-separated-values": Shown(_PLAIN, True, ".tsv"),
    "text/x-diff": Shown(_PLAIN, True, ".diff"),
}
_EXTENSIONS = {
    HTML: ".html",
    SVG: ".svg",
    XML: ".xml",
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "application/gzip": ".gz",
}


def shown(name: str) -> Shown:
    return _PASSIVE.get(name) or Shown(BINARY, False, _EXTENSIONS.get(name, ""))
