"""Locations of blobs for tests: a folder on disk, and a bucket behind a real HTTP server."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer

from easel.stores.blobs.bucket import PART_BYTES
from easel.stores.blobs.store import Blobs, open_blobs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

TIMEOUT_SECONDS = 60
LARGE = 2 * PART_BYTES + 4321  # uploaded to S3 in parts


class BlobLocation:
    """Blobs, and a listing of everything that is stored, staged files included."""

    def __init__(self, url: str, everything: Callable[[], list[str]]) -> None:
        self.url = url
        self.blobs = open_blobs(url)
        self.everything = everything


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    assert server._server is not None
    # moto checks whether a key is free and stores it in two steps; a real bucket does it atomically.
    answer, lock = server._server.app, threading.Lock()

    def answer_serially(environ: Any, start_response: Any) -> Any:
        with lock:
            return answer(environ, start_response)

    server._server.app = answer_serially
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()
    server._server.server_close()


@pytest.fixture
def aws(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return boto3.client("s3", endpoint_url=s3_server)


@pytest.fixture
def bucket(aws: Any) -> BlobLocation:
    name = f"bucket-{uuid4().hex}"
    aws.create_bucket(Bucket=name)

    def everything() -> list[str]:
        objects = [
            found["Key"].removeprefix("some/prefix/")
            for found in aws.list_objects_v2(Bucket=name).get("Contents", [])
        ]
        return objects + [
            f"upload of {found['Key']}"
            for found in aws.list_multipart_uploads(Bucket=name).get("Uploads", [])
        ]

    return BlobLocation(f"s3://{name}/some/prefix", everything)


@pytest.fixture
def disk(tmp_path: Path) -> BlobLocation:
    root = tmp_path / "blobs"
    return BlobLocation(
        f"file://{root}",
        lambda: [str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()],
    )


@pytest.fixture(params=["disk", "bucket"])
def location(request: pytest.FixtureRequest) -> BlobLocation:
    return request.getfixturevalue(request.param)


@pytest.fixture
def blobs(location: BlobLocation) -> Blobs:
    return location.blobs


async def pieces(data: bytes, size: int = 65_536) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def list_keys(blobs: Blobs, prefix: str = "") -> list[str]:
    return sorted([key async for key in blobs.list(prefix)])
