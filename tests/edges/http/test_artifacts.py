"""Uploads of artifacts: streamed, limited in size, and stored once."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import socket
import time
from typing import TYPE_CHECKING

import pytest

from easel.edges.http.multipart import MAX_FORM_OVERHEAD_BYTES
from tests.core.artifact.test_media_type import CONTENTS
from tests.edges.http.artifact_calls import (
    SMALL_LIMIT,
    TIMEOUT_SECONDS,
    blobs_of,
    narrow_easel,
    rows_of,
    store_artifact,
    upload,
)
from tests.edges.http.test_bad_input import check_error
from tests.requirements import case, rule
from tests.support.artifacts import id_of
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from tests.edges.http.live import LiveEasel

__all__ = ["narrow_easel"]  # a fixture


@rule("CC-24")
def test_upload_is_downloaded_unchanged(easel: LiveEasel) -> None:
    content = os.urandom(2_500_000)  # more than the limit of other bodies
    answer = upload(easel, content)
    assert answer.status_code == 201
    digest = hashlib.sha256(content).hexdigest()
    assert answer.json() == {
        "artifact_id": f"art_{digest}",
        "uri": f"/api/artifacts/art_{digest}",
        "size": len(content),
        "media_type": "application/octet-stream",
        "sha256": digest,
    }
    got = easel.get(answer.json()["uri"])
    assert got.status_code == 200
    assert got.content == content


def test_equal_content_is_stored_once(easel: LiveEasel) -> None:
    content = os.urandom(100)
    first, again = upload(easel, content), upload(easel, content, "text/plain")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    rows = [row for row in rows_of(easel) if row["artifact_id"] == id_of(content)]
    assert len(rows) == 1
    assert all(key in {row["blob_key"] for row in rows_of(easel)} for key in blobs_of(easel))


def test_form_with_a_file_is_stored_like_the_file(easel: LiveEasel) -> None:
    content = os.urandom(70_000)
    answer = easel.ask(
        "POST",
        "/api/artifacts",
        files={"file": ('a "b" é.bin', content, "text/html")},
        data={"note": "hello"},
    )
    assert answer.status_code == 201
    assert answer.json()["sha256"] == hashlib.sha256(content).hexdigest()
    assert upload(easel, content).status_code == 200


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("as_form", [True, False])
def test_oversized_upload_is_refused_and_not_stored(
    narrow_easel: LiveEasel, declared: bool, as_form: bool
) -> None:
    content = os.urandom(SMALL_LIMIT + MAX_FORM_OVERHEAD_BYTES + 1)
    if as_form:
        boundary, content = (
            "xyz",
            b'--xyz\r\ncontent-disposition: form-data; name="file"\r\n\r\n' + content + b"\r\n--xyz--\r\n",
        )
        kind = f"multipart/form-data; boundary={boundary}"
    else:
        kind = "application/octet-stream"
    sent = content if declared else iter([content[:70_000], content[70_000:]])
    before = blobs_of(narrow_easel), rows_of(narrow_easel)
    check_error(upload(narrow_easel, sent, kind), 413)  # type: ignore[arg-type]
    assert (blobs_of(narrow_easel), rows_of(narrow_easel)) == before


def test_upload_of_exactly_the_limit_is_accepted(narrow_easel: LiveEasel) -> None:
    content = os.urandom(SMALL_LIMIT)
    assert upload(narrow_easel, content).status_code == 201
    assert narrow_easel.ask("POST", "/api/artifacts", files={"file": ("f", content)}).status_code == 200
    check_error(upload(narrow_easel, content + b"x"), 413)
    check_error(narrow_easel.ask("POST", "/api/artifacts", files={"file": ("f", content + b"x")}), 413)


def test_declared_oversize_is_refused_before_the_body_is_sent(narrow_easel: LiveEasel) -> None:
    connection = http.client.HTTPConnection(*narrow_easel.address, timeout=TIMEOUT_SECONDS)
    connection.putrequest("POST", "/api/artifacts")
    for name, value in {**narrow_easel.bearer, "content-length": str(10**12)}.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


BOMBS = [
    ("a gzip bomb", gzip.compress(gzip.compress(bytes(50_000_000)))),
    ("a billion laughs", next(content for name, content, _ in CONTENTS if name == "a billion laughs")),
    ("an svg with a script", b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"),
    (
        "a picture of 60,000 by 60,000",
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\xea\x60\x00\x00\xea\x60\x08\x06\x00\x00\x00",
    ),
    ("json 100,000 deep", b"[" * 100_000),
]


@case("R2")
@pytest.mark.parametrize("name, content", BOMBS, ids=[row[0] for row in BOMBS])
def test_hostile_content_is_not_unpacked(small_easel: LiveEasel, name: str, content: bytes) -> None:
    # The server runs in this process, so unpacking would use its processor time.
    started = time.process_time()
    uri = store_artifact(small_easel, content, "application/json")
    got = small_easel.get(uri)
    assert got.content == content
    assert "content-encoding" not in got.headers
    assert time.process_time() - started < 2


def test_empty_upload_is_refused(small_easel: LiveEasel) -> None:
    check_error(upload(small_easel, b""), 400)
    check_error(small_easel.ask("POST", "/api/artifacts"), 400)
    check_error(small_easel.ask("POST", "/api/artifacts", files={"file": ("f", b"")}), 400)


def test_disconnected_upload_stores_nothing(narrow_easel: LiveEasel) -> None:
    before = blobs_of(narrow_easel), rows_of(narrow_easel)
    with socket.create_connection(narrow_easel.address, timeout=TIMEOUT_SECONDS) as connection:
        head = (
            "POST /api/artifacts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000\r\n"
            f"Authorization: Bearer {narrow_easel.token}\r\n\r\n"
        )
        connection.sendall(head.encode() + bytes(50_000))
        wait_for_sync(
            lambda: len(rows_of(narrow_easel)) > len(before[1]), within=TIMEOUT_SECONDS, what="its row exists"
        )
    wait_for_sync(
        lambda: (blobs_of(narrow_easel), rows_of(narrow_easel)) == before,
        within=TIMEOUT_SECONDS,
        what="its row and blob are deleted",
    )
