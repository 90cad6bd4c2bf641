"""Media types: detection from the first bytes of a content, and how to serve each type.

Owns the tables of signatures and of passive types. Content is neither parsed nor unpacked, so malicious
archives, drawings and documents have no effect. The sender may declare a more specific type than the detected
one, from a list of types that are served alike. Does not know HTTP.
"""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass

HEAD = 2_048  # bytes at the start of the content that are inspected

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
# Types inside container formats, by the four bytes after the length (RIFF) or after `ftyp` (ISO media).
_IN_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_IN_ISO = {
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"heic": "image/heic",
    b"M4A ": "audio/mp4",
    b"qt  ": "video/quicktime",
}

# Content that browsers detect as HTML:
# https://mimesniff.spec.whatwg.org/#rules-for-identifying-an-unknown-mime-type
_TAG = re.compile(
    rb"<!--|<(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|meta"
    rb"|link|img|form)(?=[\s>/])"
)
_NOT_IN_TEXT = frozenset({*range(0x09), 0x0B, *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F})

# Detected type -> the more specific types that a sender may declare. They are served like the detected type.
_SPECIFIC: Mapping[str, frozenset[str]] = {
    TEXT: frozenset({
        "application/json",
        "application/x-ndjson",
        "text/csv",
        "text/markdown",
        "text/tab-separated-values",
        "text/x-diff",
    }),
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
    """Return the media type of a content. `head` is its first `HEAD` bytes, fewer if it is shorter."""
    detected = _detect_signature(head) or _detect_text(head)
    declared = declared.partition(";")[0].strip().lower()
    return declared if declared in _SPECIFIC.get(detected, ()) else detected


def _detect_signature(head: bytes) -> str | None:
    for signature, name in _SIGNATURES:
        if head.startswith(signature):
            # `BM` may also begin a text, so a bitmap is recognised by its four zero bytes too.
            return name if name != "image/bmp" or head[6:10] == b"\x00" * 4 else None
    if head.startswith(b"RIFF"):
        return _IN_RIFF.get(head[8:12])
    if head[4:8] == b"ftyp":
        return _IN_ISO.get(head[8:12], "video/mp4")
    if head.startswith(b"\x1a\x45\xdf\xa3") and b"webm" in head[:64]:
        return "video/webm"
    return None


def _detect_text(head: bytes) -> str:
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
    """Return whether the head is UTF-8. The end of the head may cut a character."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD)
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Presentation:
    """How content of a type is served to a browser."""

    content_type: str
    is_inline: bool
    extension: str  # file extension for a download


# Types without code that browsers execute, with their extensions: served as they are, or as plain text. Other
# types are served as a download of type `BINARY`.
_MEDIA = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/avif": ".avif",
    "audio/mpeg": ".mp3",
    "audio/wav": ".wav",
    "audio/ogg": ".ogg",
    "video/ogg": ".ogv",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
    "application/json": ".json",
}
_TEXTS = {
    TEXT: ".txt",
    "application/x-ndjson": ".ndjson",
    "text/csv": ".csv",
    "text/markdown": ".md",
    "text/tab-separated-values": ".tsv",
    "text/x-diff": ".diff",
}
_DOWNLOADS = {
    HTML: ".html",
    SVG: ".svg",
    XML: ".xml",
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "application/gzip": ".gz",
}


def presentation_of(name: str) -> Presentation:
    """Return how to serve a media type."""
    if name in _MEDIA:
        return Presentation(name, True, _MEDIA[name])
    if name in _TEXTS:
        return Presentation("text/plain; charset=utf-8", True, _TEXTS[name])
    return Presentation(BINARY, False, _DOWNLOADS.get(name, ""))
