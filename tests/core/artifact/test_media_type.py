"""Media types are detected from the content, and only passive types are displayed."""

from __future__ import annotations

import codecs
import gzip
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.artifact.artifact import blob_created_at, blob_key
from easel.core.artifact.media_type import BINARY, HEAD, media_type, presentation_of
from easel.ids import OWNER, new_blob_name
from tests.requirements import case

BILLION_LAUGHS = (
    b'<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;&lol;">]>'
    b"<lolz>&lol2;</lolz>"
)
CONTENTS = [
    # case, content, media type
    ("png", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "image/png"),
    ("jpeg", b"\xff\xd8\xff\xe0\x00\x10JFIF\x00", "image/jpeg"),
    ("gif", b"GIF89a\x01\x00\x01\x00", "image/gif"),
    ("an older gif", b"GIF87a\x01\x00\x01\x00", "image/gif"),
    ("webp", b"RIFF\x24\x00\x00\x00WEBPVP8 ", "image/webp"),
    ("wav", b"RIFF\x24\x00\x00\x00WAVEfmt ", "audio/wav"),
    ("unknown riff", b"RIFF\x24\x00\x00\x00XXXX", BINARY),
    ("avif", b"\x00\x00\x00\x1cftypavif\x00\x00\x00\x00", "image/avif"),
    ("mp4", b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00", "video/mp4"),
    ("webm", b"\x1a\x45\xdf\xa3\x9fB\x86\x81\x01B\x82\x84webm", "video/webm"),
    ("bmp", b"BM\x36\x00\x00\x00\x00\x00\x00\x00\x36", "image/bmp"),
    ("text that begins like a bmp", b"BMW is a car.", "text/plain"),
    ("pdf", b"%PDF-1.7\n", "application/pdf"),
    ("zip", b"PK\x03\x04\x14\x00", "application/zip"),
    ("gzip", gzip.compress(b"x" * 100), "application/gzip"),
    ("html", b"<!DOCTYPE html><html>", "text/html"),
    ("html in capitals, after a mark and space", codecs.BOM_UTF8 + b" \n\t<HTML lang=de>", "text/html"),
    ("a script", b"<script>alert(1)</script>", "text/html"),
    ("a comment", b"<!-- hello --><b>", "text/html"),
    ("an unknown tag", b"<apple>", "text/plain"),
    ("svg", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'>", "image/svg+xml"),
    ("svg after a prologue", b"<?xml version='1.0'?>\n<!DOCTYPE svg>\n<svg>", "image/svg+xml"),
    ("svg after a comment", b"<!-- drawn by hand --><svg>", "image/svg+xml"),
    ("xhtml", b"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'>", "text/html"),
    ("a billion laughs", BILLION_LAUGHS, "text/xml"),
    ("text", "Grüße, 世界\n".encode(), "text/plain"),
    ("json", b'{"a": [1, 2]}', "text/plain"),
    ("javascript", b"alert(document.cookie)", "text/plain"),
    ("text cut inside a character", b"x" + ("ü" * HEAD).encode(), "text/plain"),
    ("a short text cut inside a character", b"abc\xc3", BINARY),
    ("an invalid character", b"abc\xc3( and more" + b"x" * HEAD, BINARY),
    ("utf-16", "hello".encode("utf-16"), BINARY),
    ("a NUL", b"abc\x00def", BINARY),
    ("colours of a terminal", b"\x1b[31mred", "text/plain"),
    ("empty", b"", "text/plain"),
]


@pytest.mark.parametrize("name, content, expected", CONTENTS, ids=[row[0] for row in CONTENTS])
@case("R2")
def test_media_type_is_detected_from_the_content(name: str, content: bytes, expected: str) -> None:
    assert media_type(content[:HEAD]) == expected


DECLARED = [
    "image/png",
    "text/html",
    "image/svg+xml",
    "text/javascript",
    "application/pdf",
    "application/xhtml+xml",
    "nonsense",
    "",
    "a;b/c\r\n",
    "é",
]


@pytest.mark.parametrize("declared", DECLARED)
def test_declared_type_does_not_override_detection(declared: str) -> None:
    for _, content, expected in CONTENTS:
        assert media_type(content[:HEAD], declared) == expected


SPECIFIC = [
    (b'{"a": 1}', "application/json", "application/json"),
    (b'{"a": 1}', "Application/JSON; charset=utf-8", "application/json"),
    (b"a,b\n", "text/csv", "text/csv"),
    (b"# Title", "text/markdown", "text/markdown"),
    (b"<script>", "text/markdown", "text/html"),
    (b"\x00", "application/json", BINARY),
    (
        b"PK\x03\x04",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
]


@pytest.mark.parametrize("content, declared, expected", SPECIFIC)
def test_declared_type_may_be_more_specific(content: bytes, declared: str, expected: str) -> None:
    assert media_type(content, declared) == expected


PASSIVE = {
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "image/avif",
    "text/plain; charset=utf-8",
    "application/json",
}
PASSIVE |= {"audio/mpeg", "audio/wav", "audio/ogg", "video/ogg", "video/mp4", "video/webm"}


@case("R2")
@given(
    st.binary(max_size=64) | st.sampled_from([content for _, content, _ in CONTENTS]),
    st.text(max_size=30) | st.sampled_from(DECLARED),
)
def test_only_passive_types_are_displayed(content: bytes, declared: str) -> None:
    served = presentation_of(media_type(content, declared))
    assert (served.content_type in PASSIVE) if served.is_inline else (served.content_type == BINARY)


@pytest.mark.parametrize(
    "active",
    [
        "text/html",
        "image/svg+xml",
        "text/xml",
        "application/pdf",
        "text/javascript",
        "application/wasm",
        "x/y",
        "",
    ],
)
def test_active_type_is_a_download(active: str) -> None:
    assert (presentation_of(active).content_type, presentation_of(active).is_inline) == (BINARY, False)


# --- keys of blobs ------------------------------------------------------------------------------------------

OTHER_KEYS = [
    "accounts/owner/artifacts/x",
    "accounts/owner/artifacts/01m7f7dea5qy4gjds115sry356/more",
    "accounts/owner/agents/main/canvases/c/01m7f7dea5qy4gjds115sry356",
    "other/owner/artifacts/01m7f7dea5qy4gjds115sry356",
    "accounts/owner/artifacts/01M7F7DEA5QY4GJDS115SRY356",
    "accounts/owner/artifacts/zzzzzzzzzzzzzzzzzzzzzzzzzz",
    "",
]


def test_key_contains_its_creation_time() -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    at = blob_created_at(blob_key(OWNER, new_blob_name()))
    assert at is not None
    assert before < at <= datetime.now(UTC)


@pytest.mark.parametrize("key", OTHER_KEYS)
def test_other_key_has_no_creation_time(key: str) -> None:
    assert blob_created_at(key) is None
