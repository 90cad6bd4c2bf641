"""Downloads of artifacts: ranges, safe headers, corrupt blobs, and content that stays out of logs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from easel.edges.http import artifacts as edge
from easel.ids import AccountId
from easel.stores.blobs.store import CHUNK_BYTES
from tests.core.artifact.test_media_type import CONTENTS
from tests.edges.http.artifact_calls import (
    PNG,
    TEXT,
    TIMEOUT_SECONDS,
    rows_of,
    store_artifact,
    upload,
)
from tests.edges.http.test_bad_input import check_error
from tests.requirements import case, rule
from tests.support.artifacts import aged_key, id_of
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from tests.edges.http.live import LiveEasel

LARGE = 30_000_000  # more than the buffers of a socket

RANGES = [
    # range header, content, content range
    ("bytes=0-0", b"0", "0-0"),
    ("bytes=0-", TEXT, "0-9"),
    ("bytes=3-5", b"345", "3-5"),
    ("bytes=9-9", b"9", "9-9"),
    ("bytes=5-999", b"56789", "5-9"),
    ("bytes=5-99999999999999999999", b"56789", "5-9"),
    ("bytes=-3", b"789", "7-9"),
    ("bytes=-999", TEXT, "0-9"),
    ("BYTES=1-1", b"1", "1-1"),
]
IGNORED_RANGES = [
    "",
    "bytes",
    "bytes=",
    "bytes=-",
    "bytes=x-y",
    "bytes=5-3",
    "bytes=0-1,3-4",
    "lines=0-1",
    "bytes=0-1;q=1",
    "bytes=" + "9" * 5_000 + "-",
    "bytes=--1",
    "bytes=٣-٥",
]
UNSATISFIABLE = ["bytes=10-", "bytes=10-20", "bytes=999-", "bytes=-0"]


@pytest.mark.parametrize("header, expected, where", RANGES)
def test_range_is_returned(small_easel: LiveEasel, header: str, expected: bytes, where: str) -> None:
    answer = small_easel.get(store_artifact(small_easel, TEXT), headers={"range": header})
    assert (answer.status_code, answer.content) == (206, expected)
    assert answer.headers["content-range"] == f"bytes {where}/10"
    assert answer.headers["content-length"] == str(len(expected))
    check_safe(answer)


@pytest.mark.parametrize("header", IGNORED_RANGES)
def test_other_range_header_is_ignored(small_easel: LiveEasel, header: str) -> None:
    answer = small_easel.get(store_artifact(small_easel, TEXT), headers={"range": header.encode()})
    assert (answer.status_code, answer.content) == (200, TEXT)
    assert answer.headers["accept-ranges"] == "bytes"
    assert "content-range" not in answer.headers


@pytest.mark.parametrize("header", UNSATISFIABLE)
def test_unsatisfiable_range_is_refused_with_the_size(small_easel: LiveEasel, header: str) -> None:
    answer = small_easel.get(store_artifact(small_easel, TEXT), headers={"range": header})
    assert check_error(answer, 416)["name"] == "RANGE_NOT_SATISFIABLE"
    assert answer.headers["content-range"] == "bytes */10"


def test_range_of_a_large_artifact(easel: LiveEasel) -> None:
    content = os.urandom(3 * CHUNK_BYTES + 11)
    uri = store_artifact(easel, content)
    start, end = CHUNK_BYTES - 5, 2 * CHUNK_BYTES + 5
    assert easel.get(uri, headers={"range": f"bytes={start}-{end - 1}"}).content == content[start:end]
    resumed = easel.get(
        uri, headers={"range": f"bytes={start}-", "if-range": f'"{hashlib.sha256(content).hexdigest()}"'}
    )
    assert (resumed.status_code, resumed.content) == (206, content[start:])


@pytest.mark.parametrize("if_range", ['"other"', "Sat, 29 Oct 1994 19:43:31 GMT", 'W/"x"'])
def test_if_range_with_another_version_returns_all(small_easel: LiveEasel, if_range: str) -> None:
    answer = small_easel.get(
        store_artifact(small_easel, TEXT), headers={"range": "bytes=0-0", "if-range": if_range}
    )
    assert (answer.status_code, answer.content) == (200, TEXT)


def test_matching_etag_returns_not_modified(small_easel: LiveEasel) -> None:
    uri = store_artifact(small_easel, TEXT)
    etag = small_easel.get(uri).headers["etag"]
    assert etag == f'"{hashlib.sha256(TEXT).hexdigest()}"'
    for header in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        answer = small_easel.get(uri, headers={"if-none-match": header})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    for header in ('"x"', etag.strip('"'), ""):
        assert small_easel.get(uri, headers={"if-none-match": header}).status_code == 200
    assert small_easel.get(uri).headers["cache-control"] == "private, no-cache"


def test_head_has_the_headers_of_get(small_easel: LiveEasel) -> None:
    uri = store_artifact(small_easel, PNG)
    head, complete = small_easel.ask("HEAD", uri), small_easel.get(uri)
    assert (head.status_code, head.content) == (200, b"")
    for name in (
        "content-length",
        "content-type",
        "etag",
        "accept-ranges",
        "content-security-policy",
        "content-disposition",
    ):
        assert head.headers[name] == complete.headers[name]
    assert small_easel.ask("HEAD", uri, headers={"range": "bytes=0-0"}).headers["content-length"] == str(
        len(PNG)
    )
    assert small_easel.ask("HEAD", "/api/artifacts/art_none").status_code == 404


@pytest.mark.parametrize("query", ["?as=json", "?x=1&x=2", "?token=none", "?%00", "#json"])
def test_query_is_ignored(small_easel: LiveEasel, query: str) -> None:
    assert small_easel.get(store_artifact(small_easel, TEXT) + query).content == TEXT


UNKNOWN_NAMES = [
    "x",
    "art_",
    "art_" + "0" * 64,
    "ART_" + "0" * 64,
    "art_" + "0" * 64 + "%0a",
    "%00",
    "..",
    "new_01m7f7dea5qy4gjds115sry356",
    "%ff",
    "x" * 5_000,
]


@pytest.mark.parametrize("name", UNKNOWN_NAMES)
def test_unknown_artifact_is_not_found(small_easel: LiveEasel, name: str) -> None:
    check_error(small_easel.get(f"/api/artifacts/{name}"), 404)


@case("O10")
def test_artifact_of_another_user_is_not_found(easel: LiveEasel) -> None:
    easel.sql("insert into accounts (account_id) values ('eve') on conflict do nothing")
    key, foreign, unknown = aged_key(account_id=AccountId("eve")), id_of(b"secret"), id_of(b"nothing")
    easel.sql(
        "insert into artifacts (account_id, artifact_id, size, media_type, blob_key, is_stored) "
        f"values ('eve', '{foreign}', 6, 'text/plain', '{key}', {'true' if easel.database_url else 1})"
    )
    easel.do(easel.instances[0].services.artifacts._blobs.put(key, b"secret"))
    answers = [easel.get(f"/api/artifacts/{name}") for name in (foreign, unknown)]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].text.replace(foreign, "ID") == answers[1].text.replace(unknown, "ID")
    own = upload(easel, b"secret")
    assert own.status_code == 201, "does not reveal that another user has this content"


# --- safe headers -------------------------------------------------------------------------------------------

INLINE = {
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "image/avif",
    "text/plain; charset=utf-8",
    "application/json",
}
INLINE |= {"audio/mpeg", "audio/wav", "audio/ogg", "video/ogg", "video/mp4", "video/webm"}


def check_safe(answer: httpx2.Response) -> None:
    headers = answer.headers
    for name in (
        "content-security-policy",
        "x-content-type-options",
        "x-frame-options",
        "content-disposition",
        "content-type",
        "cache-control",
    ):
        assert len(headers.get_list(name)) == 1, name
    assert headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-frame-options"] == "DENY"
    if headers["content-disposition"] == "inline":
        assert headers["content-type"] in INLINE
    else:
        assert headers["content-disposition"].startswith('attachment; filename="art_')
        assert headers["content-type"] == "application/octet-stream"


@case("R2")
def test_every_type_is_served_safely_whatever_was_declared(small_easel: LiveEasel) -> None:
    for _, content, kind in CONTENTS:
        for declared in (kind, "text/html"):
            if content:
                check_safe(small_easel.get(store_artifact(small_easel, content, declared)))


@pytest.mark.parametrize(
    "content",
    [b"<html><script>alert(1)</script>", b"<svg onload=alert(1)>", b"<?xml version='1.0'?><x/>", b"%PDF-1.7"],
)
def test_active_content_is_a_download_of_plain_bytes(small_easel: LiveEasel, content: bytes) -> None:
    answer = small_easel.get(store_artifact(small_easel, content, "text/html"))
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")


def test_other_responses_have_the_policy_of_pages(small_easel: LiveEasel) -> None:
    for path in ("/", "/api/tools", "/api/artifacts/none"):
        [policy] = small_easel.get(path).headers.get_list("content-security-policy")
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy


# --- corrupt blobs ------------------------------------------------------------------------------------------


def replace_blob(easel: LiveEasel, uri: str, content: bytes) -> None:
    [row] = [row for row in rows_of(easel) if uri.endswith(row["artifact_id"])]
    path = easel.folder / "blobs" / row["blob_key"]
    path.write_bytes(content)


@case("D7")
@pytest.mark.parametrize("corrupt", [b"1123456788", b"012345678", b"0123456789x", b""])
def test_corrupt_small_artifact_is_reported_as_an_error(
    small_easel: LiveEasel, logged: list[dict[str, Any]], corrupt: bytes
) -> None:
    uri = store_artifact(small_easel, TEXT)
    replace_blob(small_easel, uri, corrupt)
    assert check_error(small_easel.get(uri), 500)["name"] == "CORRUPT_DATA"
    assert [line["level"] for line in logged if line["event"] == "artifact.corrupt"] == ["error"]
    assert upload(small_easel, TEXT).status_code == 201, "it can be stored again"
    assert small_easel.get(uri).content == TEXT


@case("D7")
@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-1] + b"\x00",
        lambda content: content[: CHUNK_BYTES + 1],
        lambda content: content + bytes(CHUNK_BYTES),
    ],
)
def test_corrupt_large_artifact_breaks_the_connection(
    easel: LiveEasel, logged: list[dict[str, Any]], change: Any
) -> None:
    content = os.urandom(4 * CHUNK_BYTES - 1) + b"\x01"
    uri = store_artifact(easel, content)
    replace_blob(easel, uri, change(content))
    with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
        easel.get(uri)
    assert [line["level"] for line in logged if line["event"] == "artifact.corrupt"] == ["error"]
    assert easel.get("/healthz").status_code == 200


def test_client_that_reads_nothing_is_disconnected(
    small_easel: LiveEasel, logged: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge, "STALL_SECONDS", 0.3)
    uri, received = store_artifact(small_easel, os.urandom(LARGE)), 0
    with socket.create_connection(small_easel.address, timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(
            f"GET {uri} HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {small_easel.token}\r\n\r\n".encode()
        )
        wait_for_sync(
            lambda: any(line["event"] == "http.answered" and line["path"] == uri for line in logged),
            within=TIMEOUT_SECONDS,
            what="the request is logged",
        )
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(65_536):
                received += len(piece)
    assert received < LARGE


# --- tables and logs ----------------------------------------------------------------------------------------


@rule("CC-08")
def test_content_is_not_in_tables_or_logs(small_easel: LiveEasel, logged: list[dict[str, Any]]) -> None:
    pixels = os.urandom(5_000)
    small_easel.get(store_artifact(small_easel, PNG + pixels, "image/png"))
    # Pages move from easel.db-wal to easel.db and never back, so this order misses none.
    stored = b"".join(
        path.read_bytes() for path in sorted(small_easel.folder.glob("easel.db*"), reverse=True)
    )
    assert id_of(PNG + pixels).encode() in stored
    lines = str(logged).encode()
    for form in (pixels[1_000:1_100], pixels[1_000:1_100].hex().encode(), repr(pixels[1_000:1_100]).encode()):
        assert form not in stored
        assert form not in lines
