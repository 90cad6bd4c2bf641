"""Artifacts over HTTP: uploads of any size within a limit, downloads by range, and nothing that executes in our origin."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import http.client
import os
import socket
import time
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.edges.http import artifacts as edge
from easel.edges.http.multipart import MAX_FORM_OVERHEAD_BYTES, MAX_HEADER_BYTES, open_form_file
from easel.errors import BadInput
from easel.stores.blobs.store import CHUNK
from tests.core.artifact.test_media_type import BYTES, LIES
from tests.edges.http.live import LiveEasel
from tests.edges.http.test_bad_input import check_error
from tests.requirements import case, rule
from tests.support.artifacts import aged_key, id_of
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

SMALL_LIMIT = 100_000
PNG = b"\x89PNG\r\n\x1a\n" + bytes(1000)
TEXT = b"0123456789"
SOON = 30.0
LARGE = 30_000_000  # more than a socket takes in while nobody reads


@pytest.fixture(scope="module")
def narrow_easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """With a limit that is soon reached."""
    with LiveEasel(
        tmp_path_factory.mktemp("easel"), with_worker=False, settings={"max_artifact_bytes": SMALL_LIMIT}
    ) as live:
        yield live


def upload(
    easel: LiveEasel, content: bytes, kind: str = "application/octet-stream", **how: Any
) -> httpx2.Response:
    return easel.ask(
        "POST",
        "/api/artifacts",
        content=content,
        headers={"content-type": kind, **how.pop("headers", {})},
        **how,
    )


def made(easel: LiveEasel, content: bytes, kind: str = "application/octet-stream") -> str:
    answer = upload(easel, content, kind)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()["uri"]


def blobs_of(easel: LiveEasel) -> list[str]:
    return sorted(
        str(path.relative_to(easel.folder / "blobs"))
        for path in (easel.folder / "blobs").rglob("*")
        if path.is_file()
    )


def rows_of(easel: LiveEasel) -> list[dict[str, Any]]:
    return easel.sql("select artifact_id, blob_key, is_stored from artifacts")


# --- uploading --------------------------------------------------------------------------------------------------------


@rule("CC-24")
def test_what_is_uploaded_comes_back_exactly(easel: LiveEasel) -> None:
    content = os.urandom(2_500_000)  # more than any other body may have
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


def test_the_same_bytes_are_kept_once(easel: LiveEasel) -> None:
    content = os.urandom(100)
    first, again = upload(easel, content), upload(easel, content, "text/plain")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    of_this = [row for row in rows_of(easel) if row["artifact_id"] == id_of(content)]
    assert len(of_this) == 1
    assert all(key in {row["blob_key"] for row in rows_of(easel)} for key in blobs_of(easel))


def test_an_upload_may_come_in_pieces_of_unknown_number(easel: LiveEasel) -> None:
    content = os.urandom(300_000)
    answer = upload(easel, (content[at : at + 999] for at in range(0, len(content), 999)))  # type: ignore[arg-type]
    assert answer.status_code == 201
    assert answer.json()["sha256"] == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    "content, kind, expected", [(PNG, "text/html", "image/png"), (b"<script>", "image/png", "text/html")]
)
def test_the_bytes_say_what_it_is(small_easel: LiveEasel, content: bytes, kind: str, expected: str) -> None:
    assert upload(small_easel, content, kind).json()["media_type"] == expected


def test_a_form_with_a_file_is_taken_like_the_file_itself(easel: LiveEasel) -> None:
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
def test_what_is_too_large_is_refused_and_leaves_nothing(
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


def test_exactly_the_limit_is_taken_in_both_ways(narrow_easel: LiveEasel) -> None:
    content = os.urandom(SMALL_LIMIT)
    assert upload(narrow_easel, content).status_code == 201
    assert narrow_easel.ask("POST", "/api/artifacts", files={"file": ("f", content)}).status_code == 200
    check_error(upload(narrow_easel, content + b"x"), 413)
    check_error(narrow_easel.ask("POST", "/api/artifacts", files={"file": ("f", content + b"x")}), 413)


def test_what_is_declared_as_too_large_is_refused_before_it_is_sent(narrow_easel: LiveEasel) -> None:
    connection = http.client.HTTPConnection(*narrow_easel.address, timeout=SOON)
    connection.putrequest("POST", "/api/artifacts")
    for name, value in {**narrow_easel.bearer, "content-length": str(10**12)}.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


@case("R2")
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, gzip"])
def test_a_compressed_body_is_refused(small_easel: LiveEasel, encoding: str) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    check_error(upload(small_easel, bomb, headers={"content-encoding": encoding}), 400)


BOMBS = [
    ("a gzip bomb", gzip.compress(gzip.compress(bytes(50_000_000)))),
    ("a billion laughs", next(content for says, content, _ in BYTES if says == "a billion laughs")),
    ("an svg with a script", b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"),
    (
        "a picture of 60,000 by 60,000",
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\xea\x60\x00\x00\xea\x60\x08\x06\x00\x00\x00",
    ),
    ("json 100,000 deep", b"[" * 100_000),
]


@case("R2")
@pytest.mark.parametrize("says, content", BOMBS, ids=[row[0] for row in BOMBS])
def test_a_bomb_is_only_bytes(small_easel: LiveEasel, says: str, content: bytes) -> None:
    began = (
        time.process_time()
    )  # the server lives in this process: what is unpacked would cost it work, however busy the machine is
    uri = made(small_easel, content, "application/json")
    got = small_easel.get(uri)
    assert got.content == content
    assert "content-encoding" not in got.headers
    assert time.process_time() - began < 2


def test_nothing_is_refused(small_easel: LiveEasel) -> None:
    check_error(upload(small_easel, b""), 400)
    check_error(small_easel.ask("POST", "/api/artifacts"), 400)
    check_error(small_easel.ask("POST", "/api/artifacts", files={"file": ("f", b"")}), 400)


def test_who_goes_away_in_the_middle_leaves_nothing(narrow_easel: LiveEasel) -> None:
    before = blobs_of(narrow_easel), rows_of(narrow_easel)
    with socket.create_connection(narrow_easel.address, timeout=SOON) as talk:
        head = f"POST /api/artifacts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {narrow_easel.token}\r\nContent-Length: 90000\r\n\r\n"
        talk.sendall(head.encode() + bytes(50_000))
        wait_for_sync(lambda: len(rows_of(narrow_easel)) > len(before[1]), within=SOON, what="its row is there")
    wait_for_sync(
        lambda: (blobs_of(narrow_easel), rows_of(narrow_easel)) == before,
        within=SOON,
        what="nothing is left of it",
    )


def test_nobody_uploads_or_downloads_without_signing_in(small_easel: LiveEasel) -> None:
    uri = made(small_easel, PNG)
    with small_easel.stranger() as stranger:
        check_error(stranger.post("/api/artifacts", content=b"x"), 401)
        check_error(stranger.get(uri), 401)


def test_another_site_cannot_upload(small_easel: LiveEasel) -> None:
    check_error(upload(small_easel, b"x", headers={"origin": "https://evil.example"}), 403)


# --- forms ------------------------------------------------------------------------------------------------------------

START = (
    b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="f"\r\nContent-Type: text/plain\r\n\r\n'
)
FIELD = b'--xyz\r\nContent-Disposition: form-data; name="note"\r\n\r\n'
FORM = "multipart/form-data; boundary=xyz"

BAD_FORMS = [
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
    ("a large field in front", FORM, FIELD + bytes(MAX_FORM_OVERHEAD_BYTES + 1) + b"\r\n" + START + b"a\r\n--xyz--"),
    ("a large field behind", FORM, START + b"a\r\n" + FIELD + bytes(MAX_FORM_OVERHEAD_BYTES + 1) + b"\r\n--xyz--"),
    ("much in front of the first boundary", FORM, bytes(MAX_FORM_OVERHEAD_BYTES + 1) + b"\r\n" + START + b"a\r\n--xyz--"),
    ("bytes for a boundary", "multipart/form-data; boundary*=utf-8''%ff%fe", START + b"a\r\n--xyz--"),
    ("nothing", FORM, b""),
]


@pytest.mark.parametrize("says, kind, body", BAD_FORMS, ids=[row[0] for row in BAD_FORMS])
def test_a_form_that_is_none_is_refused_and_leaves_nothing(
    narrow_easel: LiveEasel, says: str, kind: str, body: bytes
) -> None:
    before = blobs_of(narrow_easel), rows_of(narrow_easel)
    check_error(upload(narrow_easel, body, kind), 400)
    assert (blobs_of(narrow_easel), rows_of(narrow_easel)) == before


GOOD_FORMS = [
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


@pytest.mark.parametrize("says, kind, body", GOOD_FORMS, ids=[row[0] for row in GOOD_FORMS])
async def test_a_form_is_read_however_it_is_cut(says: str, kind: str, body: bytes) -> None:
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
def test_any_bytes_come_out_of_a_form_as_they_went_in(content: bytes, size: int) -> None:
    if b"\r\n--xyz" in b"\r\n" + content:
        return
    assert asyncio.run(read_form(START + content + b"\r\n--xyz--\r\n", FORM, size)) == ("text/plain", content)


@given(st.binary(max_size=400), st.integers(1, 40))
def test_any_bytes_for_a_form_are_a_file_or_refused(body: bytes, size: int) -> None:
    for text in (body, START + body, START + body + b"\r\n--xyz\r\n" + body):
        with contextlib.suppress(BadInput):
            asyncio.run(read_form(text, FORM, size))


# --- downloading ------------------------------------------------------------------------------------------------------

RANGES = [
    # asked, what comes, where from
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
WHOLE = [
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
OUTSIDE = ["bytes=10-", "bytes=10-20", "bytes=999-", "bytes=-0"]


@pytest.mark.parametrize("asked, expected, where", RANGES)
def test_a_range_of_it(small_easel: LiveEasel, asked: str, expected: bytes, where: str) -> None:
    answer = small_easel.get(made(small_easel, TEXT), headers={"range": asked})
    assert (answer.status_code, answer.content) == (206, expected)
    assert answer.headers["content-range"] == f"bytes {where}/10"
    assert answer.headers["content-length"] == str(len(expected))
    check_safe(answer)


@pytest.mark.parametrize("asked", WHOLE)
def test_what_is_no_single_range_gets_all_of_it(small_easel: LiveEasel, asked: str) -> None:
    answer = small_easel.get(made(small_easel, TEXT), headers={"range": asked.encode()})
    assert (answer.status_code, answer.content) == (200, TEXT)
    assert answer.headers["accept-ranges"] == "bytes"
    assert "content-range" not in answer.headers


@pytest.mark.parametrize("asked", OUTSIDE)
def test_a_range_outside_of_it_is_refused_with_its_size(small_easel: LiveEasel, asked: str) -> None:
    answer = small_easel.get(made(small_easel, TEXT), headers={"range": asked})
    assert check_error(answer, 416)["name"] == "RANGE_NOT_SATISFIABLE"
    assert answer.headers["content-range"] == "bytes */10"


def test_a_range_in_the_middle_of_something_large(easel: LiveEasel) -> None:
    content = os.urandom(3 * CHUNK + 11)
    uri = made(easel, content)
    start, end = CHUNK - 5, 2 * CHUNK + 5
    assert easel.get(uri, headers={"range": f"bytes={start}-{end - 1}"}).content == content[start:end]
    resumed = easel.get(
        uri, headers={"range": f"bytes={start}-", "if-range": f'"{hashlib.sha256(content).hexdigest()}"'}
    )
    assert (resumed.status_code, resumed.content) == (206, content[start:])


@pytest.mark.parametrize("said", ['"other"', "Sat, 29 Oct 1994 19:43:31 GMT", 'W/"x"'])
def test_a_range_of_something_else_is_all_of_this(small_easel: LiveEasel, said: str) -> None:
    answer = small_easel.get(made(small_easel, TEXT), headers={"range": "bytes=0-0", "if-range": said})
    assert (answer.status_code, answer.content) == (200, TEXT)


def test_what_the_reader_has_is_not_sent_again(small_easel: LiveEasel) -> None:
    uri = made(small_easel, TEXT)
    etag = small_easel.get(uri).headers["etag"]
    assert etag == f'"{hashlib.sha256(TEXT).hexdigest()}"'
    for said in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        answer = small_easel.get(uri, headers={"if-none-match": said})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    for said in ('"x"', etag.strip('"'), ""):
        assert small_easel.get(uri, headers={"if-none-match": said}).status_code == 200
    assert small_easel.get(uri).headers["cache-control"] == "private, no-cache"


def test_the_head_alone(small_easel: LiveEasel) -> None:
    uri = made(small_easel, PNG)
    head, snapshot = small_easel.ask("HEAD", uri), small_easel.get(uri)
    assert (head.status_code, head.content) == (200, b"")
    for name in (
        "content-length",
        "content-type",
        "etag",
        "accept-ranges",
        "content-security-policy",
        "content-disposition",
    ):
        assert head.headers[name] == snapshot.headers[name]
    assert small_easel.ask("HEAD", uri, headers={"range": "bytes=0-0"}).headers["content-length"] == str(
        len(PNG)
    )
    assert small_easel.ask("HEAD", "/api/artifacts/art_none").status_code == 404


@pytest.mark.parametrize("query", ["?as=json", "?x=1&x=2", "?token=none", "?%00", "#json"])
def test_whatever_follows_the_address_changes_nothing(small_easel: LiveEasel, query: str) -> None:
    assert small_easel.get(made(small_easel, TEXT) + query).content == TEXT


NO_ARTIFACTS = [
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


@pytest.mark.parametrize("name", NO_ARTIFACTS)
def test_what_is_not_there_is_not_found(small_easel: LiveEasel, name: str) -> None:
    check_error(small_easel.get(f"/api/artifacts/{name}"), 404)


@case("O10")
def test_anothers_artifact_answers_as_one_that_never_was(easel: LiveEasel) -> None:
    easel.sql("insert into users (user_id, name) values ('eve', 'eve') on conflict do nothing")
    key, foreign, unknown = aged_key(user_id="eve"), id_of(b"secret"), id_of(b"nothing")  # type: ignore[arg-type]
    easel.sql(
        "insert into artifacts (user_id, artifact_id, size, media_type, blob_key, is_stored) "
        f"values ('eve', '{foreign}', 6, 'text/plain', '{key}', {'true' if easel.database_url else 1})"
    )
    easel.do(easel.instances[0].services.artifacts._blobs.put(key, b"secret"))
    answers = [easel.get(f"/api/artifacts/{name}") for name in (foreign, unknown)]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].text.replace(foreign, "ID") == answers[1].text.replace(unknown, "ID")
    mine = upload(easel, b"secret")
    assert mine.status_code == 201, "that somebody else has the same bytes is nobody's business"


# --- nothing executes in our origin -----------------------------------------------------------------------------------

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


@pytest.mark.parametrize(
    "says, content, kind", [row for row in BYTES if row[1]], ids=[row[0] for row in BYTES if row[1]]
)
@case("R2")
def test_every_kind_is_served_safely_whatever_it_is_called(
    small_easel: LiveEasel, says: str, content: bytes, kind: str
) -> None:
    for declared in (kind, *(lie for lie in LIES if lie.isascii() and lie.isprintable())):
        check_safe(small_easel.get(made(small_easel, content, declared)))


@pytest.mark.parametrize(
    "content",
    [b"<html><script>alert(1)</script>", b"<svg onload=alert(1)>", b"<?xml version='1.0'?><x/>", b"%PDF-1.7"],
)
def test_what_could_execute_is_a_download_of_plain_bytes(small_easel: LiveEasel, content: bytes) -> None:
    answer = small_easel.get(made(small_easel, content, "text/html"))
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")


def test_other_answers_keep_the_policy_of_the_pages(small_easel: LiveEasel) -> None:
    for path in ("/", "/api/tools", "/api/artifacts/none"):
        [policy] = small_easel.get(path).headers.get_list("content-security-policy")
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy


# --- when the bytes are not what they were ----------------------------------------------------------------------------


def spoil(easel: LiveEasel, uri: str, content: bytes) -> None:
    [row] = [row for row in rows_of(easel) if uri.endswith(row["artifact_id"])]
    path = easel.folder / "blobs" / row["blob_key"]
    path.write_bytes(content)


@case("D7")
@pytest.mark.parametrize("now_there", [b"1123456788", b"012345678", b"0123456789x", b""])
def test_damage_is_said_in_so_many_words_where_it_is_seen_in_time(
    small_easel: LiveEasel, logged: list[dict[str, Any]], now_there: bytes
) -> None:
    uri = made(small_easel, TEXT)
    spoil(small_easel, uri, now_there)
    assert check_error(small_easel.get(uri), 500)["name"] == "CORRUPT_DATA"
    assert [line["level"] for line in logged if line["event"] == "artifact.corrupt"] == ["error"]
    assert upload(small_easel, TEXT).status_code == 201, "it can be stored again"
    assert small_easel.get(uri).content == TEXT


@case("D7")
@pytest.mark.parametrize(
    "change",
    [
        lambda snapshot: snapshot[:-1] + b"\x00",
        lambda snapshot: snapshot[: CHUNK + 1],
        lambda snapshot: snapshot + bytes(CHUNK),
    ],
)
def test_damage_further_back_breaks_off_the_connection(
    easel: LiveEasel, logged: list[dict[str, Any]], change: Any
) -> None:
    content = os.urandom(4 * CHUNK - 1) + b"\x01"
    uri = made(easel, content)
    spoil(easel, uri, change(content))
    with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
        easel.get(uri)
    assert [line["level"] for line in logged if line["event"] == "artifact.corrupt"] == ["error"]
    assert easel.get("/healthz").status_code == 200


def test_a_reader_that_takes_nothing_is_cut(
    small_easel: LiveEasel, logged: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge, "STALL_SECONDS", 0.3)
    uri, received = made(small_easel, os.urandom(LARGE)), 0
    with socket.create_connection(small_easel.address, timeout=SOON) as talk:
        talk.sendall(
            f"GET {uri} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {small_easel.token}\r\n\r\n".encode()
        )
        wait_for_sync(
            lambda: any(line["event"] == "http.answered" and line["path"] == uri for line in logged),
            within=SOON,
            what="it is logged",
        )
        with contextlib.suppress(ConnectionResetError):
            while piece := talk.recv(65_536):
                received += len(piece)
    assert received < LARGE


# --- what is stored and logged of it ----------------------------------------------------------------------------------


@rule("CC-08")
def test_no_row_and_no_log_line_holds_the_pixels(
    small_easel: LiveEasel, logged: list[dict[str, Any]]
) -> None:
    pixels = os.urandom(5_000)
    small_easel.get(made(small_easel, PNG + pixels, "image/png"))
    # Pages go from easel.db-wal to easel.db, and never back: in this order none is missed.
    stored = b"".join(
        path.read_bytes() for path in sorted(small_easel.folder.glob("easel.db*"), reverse=True)
    )
    assert id_of(PNG + pixels).encode() in stored
    told = str(logged).encode()
    for form in (pixels[1_000:1_100], pixels[1_000:1_100].hex().encode(), repr(pixels[1_000:1_100]).encode()):
        assert form not in stored
        assert form not in told
