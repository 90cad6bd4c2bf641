"""Uploads of artifacts as multipart forms."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.edges.http.multipart import MAX_FORM_OVERHEAD_BYTES, MAX_HEADER_BYTES, open_form_file
from easel.errors import BadInput
from tests.edges.http.artifact_calls import (
    blobs_of,
    narrow_easel,
    rows_of,
    upload,
)
from tests.edges.http.test_bad_input import check_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.edges.http.live import LiveEasel

__all__ = ["narrow_easel"]  # a fixture

START = (
    b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="f"\r\nContent-Type: text/plain\r\n\r\n'
)
FIELD = b'--xyz\r\nContent-Disposition: form-data; name="note"\r\n\r\n'
FORM = "multipart/form-data; boundary=xyz"

INVALID_FORMS = [
    # says, content type, body
    ("no boundary", "multipart/form-data", START + b"a\r\n--xyz--"),
    ("an empty boundary", "multipart/form-data; boundary=", START + b"a\r\n--xyz--"),
    ("a long boundary", f"multipart/form-data; boundary={'x' * 71}", START + b"a\r\n--xyz--"),
    ("another boundary", "multipart/form-data; boundary=abc", START + b"a\r\n--xyz--"),
    ("a long content type", FORM + "; x=" + "y" * 2_000, START + b"a\r\n--xyz--"),
    ("no end", FORM, START + b"a"),
    ("half an end", FORM, START + b"a\r\n--xy"),
    ("no end after the last boundary", FORM, START + b"a\r\n--xyz"),
    ("headers without an end", FORM, b"--xyz\r\nContent-Disposition: form-data"),
    ("long headers", FORM, b"--xyz\r\nx: " + b"y" * (MAX_HEADER_BYTES * 2)),
    ("many headers", FORM, b"--xyz\r\n" + b"x: y\r\n" * MAX_HEADER_BYTES + b"\r\n\r\na\r\n--xyz--"),
    ("only fields", FORM, FIELD + b"a\r\n--xyz--"),
    ("no parts", FORM, b"--xyz--"),
    ("a part without a name", FORM, b"--xyz\r\n\r\na\r\n--xyz--"),
    ("two files", FORM, START + b"a\r\n" + START + b"b\r\n--xyz--"),
    (
        "a large field in front",
        FORM,
        FIELD + bytes(MAX_FORM_OVERHEAD_BYTES + 1) + b"\r\n" + START + b"a\r\n--xyz--",
    ),
    (
        "a large field behind",
        FORM,
        START + b"a\r\n" + FIELD + bytes(MAX_FORM_OVERHEAD_BYTES + 1) + b"\r\n--xyz--",
    ),
    (
        "much in front of the first boundary",
        FORM,
        bytes(MAX_FORM_OVERHEAD_BYTES + 1) + b"\r\n" + START + b"a\r\n--xyz--",
    ),
    ("bytes for a boundary", "multipart/form-data; boundary*=utf-8''%ff%fe", START + b"a\r\n--xyz--"),
    ("nothing", FORM, b""),
]


@pytest.mark.parametrize("name, kind, body", INVALID_FORMS, ids=[row[0] for row in INVALID_FORMS])
def test_invalid_form_is_refused_and_not_stored(
    narrow_easel: LiveEasel, name: str, kind: str, body: bytes
) -> None:
    before = blobs_of(narrow_easel), rows_of(narrow_easel)
    check_error(upload(narrow_easel, body, kind), 400)
    assert (blobs_of(narrow_easel), rows_of(narrow_easel)) == before


VALID_FORMS = [
    ("the plain one", FORM, START + b"content\r\n--xyz--\r\n"),
    ("nothing after the last boundary", FORM, START + b"content\r\n--xyz--"),
    ("a preamble and an epilogue", FORM, b"hello\r\n" + START + b"content\r\n--xyz--\r\ngoodbye"),
    ("fields around", FORM, FIELD + b"a\r\n" + START + b"content\r\n" + FIELD + b"b\r\n--xyz--\r\n"),
    ("an empty field", FORM, FIELD + b"\r\n" + START + b"content\r\n--xyz--\r\n"),
    (
        "space after the boundary",
        FORM,
        START.replace(b"--xyz\r\n", b"--xyz  \r\n") + b"content\r\n--xyz--\r\n",
    ),
    (
        "a boundary in quotes",
        'Multipart/Form-Data; charset=utf-8; boundary="xyz"',
        START + b"content\r\n--xyz--\r\n",
    ),
    ("names in small letters", FORM, START.lower() + b"content\r\n--xyz--\r\n"),
]


@pytest.mark.parametrize("name, kind, body", VALID_FORMS, ids=[row[0] for row in VALID_FORMS])
async def test_form_is_read_in_chunks_of_any_size(name: str, kind: str, body: bytes) -> None:
    for size in (1, 2, 3, 5, 17, len(body)):
        assert await read_form(body, kind, size) == ("text/plain", b"content")


async def read_form(body: bytes, kind: str, size: int) -> tuple[str, bytes]:
    declared, chunks = await open_form_file(in_pieces(body, size), kind)
    return declared, b"".join([chunk async for chunk in chunks])


async def in_pieces(body: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(body), size):
        yield body[at : at + size]


@given(
    st.binary(max_size=300)
    | st.lists(st.sampled_from([b"\r", b"\n", b"-", b"--", b"--xy", b"\r\n--xy", b"xyz", b"a"])).map(
        b"".join
    ),
    st.integers(1, 40),
)
def test_any_content_round_trips_through_a_form(content: bytes, size: int) -> None:
    if b"\r\n--xyz" in b"\r\n" + content:
        return
    assert asyncio.run(read_form(START + content + b"\r\n--xyz--\r\n", FORM, size)) == ("text/plain", content)


@given(st.binary(max_size=400), st.integers(1, 40))
def test_random_form_is_a_file_or_refused(body: bytes, size: int) -> None:
    for text in (body, START + body, START + body + b"\r\n--xyz\r\n" + body):
        with contextlib.suppress(BadInput):
            asyncio.run(read_form(text, FORM, size))
