"""Helpers for tests of artifacts over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.http.live import LiveEasel

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx2

SMALL_LIMIT = 100_000
PNG = b"\x89PNG\r\n\x1a\n" + bytes(1000)
TEXT = b"0123456789"
TIMEOUT_SECONDS = 30.0


@pytest.fixture(scope="module")
def narrow_easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """A server with a small limit for artifacts."""
    with LiveEasel(
        tmp_path_factory.mktemp("easel"), with_worker=False, settings={"max_artifact_bytes": SMALL_LIMIT}
    ) as live:
        yield live


def upload(
    easel: LiveEasel, content: bytes, kind: str = "application/octet-stream", **options: Any
) -> httpx2.Response:
    return easel.ask(
        "POST",
        "/api/artifacts",
        content=content,
        headers={"content-type": kind, **options.pop("headers", {})},
        **options,
    )


def store_artifact(easel: LiveEasel, content: bytes, kind: str = "application/octet-stream") -> str:
    """Upload an artifact and return its path."""
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
