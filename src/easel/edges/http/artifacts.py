"""Artifacts over HTTP: bytes in as they come, bytes out by range, and nothing of it executes in our origin.

What a browser may show is for `media_type.shown` to say. Whatever it is, the answer's own policy gives it an opaque origin
and nothing to load, its type is not guessed, and no other site can embed it.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from easel.core.artifact.artifact import Artifact
from easel.core.artifact.media_type import presentation_of
from easel.edges.errors import CONNECTION
from easel.edges.http.calls import Call, check_head, json_answer
from easel.edges.http.multipart import MAX_BESIDE, file_in, is_form
from easel.errors import HostError, RangeNotSatisfiable

STALL_SECONDS = 60.0  # a reader that takes nothing for so long is cut; it can come back with a range

_RANGE = re.compile(r"bytes=(\d{0,30})-(\d{0,30})", re.ASCII | re.IGNORECASE)
_SAFE = {
    "content-security-policy": "sandbox; default-src 'none'",
    "cross-origin-resource-policy": "same-origin",
    "accept-ranges": "bytes",
    "cache-control": "private, no-cache",  # kept by its reader alone, who asks each time whether it still may
}


class ArtifactView(Struct):
    artifact_id: str
    uri: str
    size: int
    media_type: str
    sha256: str


def artifact_view(artifact: Artifact) -> ArtifactView:
    return ArtifactView(
        artifact.artifact_id, artifact.uri, artifact.size, artifact.media_type, artifact.sha256
    )


async def upload_artifact(call: Call) -> Response:
    declared_type, source = await incoming(call.request, call.host.artifacts.max_bytes)
    artifact = await call.host.artifacts.upload(call.principal, source, declared_type)
    told = {"size": artifact.size, "media_type": artifact.media_type}
    await call.host.audit.record(
        call.principal, "artifact.uploaded", subject=artifact.artifact_id, details=told
    )
    return json_answer(artifact_view(artifact), 201 if artifact.is_new else 200)


async def incoming(request: Request, limit: int) -> tuple[str, AsyncIterator[bytes]]:
    """What the sender says it is, and its bytes: the whole body, or the part `file` of a form."""
    declared_type = request.headers.get("content-type", "")
    if not is_form(declared_type):
        check_head(request, limit)
        return declared_type, request.stream()
    check_head(request, limit + MAX_BESIDE)
    return await file_in(request.stream(), declared_type)


async def download_artifact(call: Call) -> Response:
    artifact = await call.host.artifacts.find(call.principal, call.path["artifact_id"])
    asked = call.request.headers
    etag = f'"{artifact.sha256}"'
    headers = {**_SAFE, "etag": etag}
    if _names(asked.get("if-none-match", ""), etag):
        return Response(status_code=304, headers=headers)
    how = presentation_of(artifact.media_type)
    headers["content-type"] = how.content_type
    headers["content-disposition"] = (
        "inline" if how.is_inline else f'attachment; filename="{artifact.artifact_id}{how.extension}"'
    )
    if call.request.method == "HEAD":
        return Response(headers={**headers, "content-length": str(artifact.size)})
    part = _part(asked.get("range", ""), artifact.size) if asked.get("if-range", etag) == etag else None
    start, end = part or (0, artifact.size)
    if part is not None:
        headers["content-range"] = f"bytes {start}-{end - 1}/{artifact.size}"
    headers["content-length"] = str(end - start)
    chunks = await call.host.artifacts.open(artifact, start, end)
    # Its beginning before our answer's: what is found to be gone or damaged by then is said in so many words.
    return Download(206 if part else 200, headers, await anext(chunks, b""), chunks)


def _names(header: str, etag: str) -> bool:
    """Weakness does not matter here, says RFC 9110, 13.1.2."""
    return header.strip() == "*" or etag in {one.strip().removeprefix("W/") for one in header.split(",")}


def _part(header: str, size: int) -> tuple[int, int] | None:
    """From where up to where; None: all of it, which is also the answer to several ranges at once and to what is none."""
    found = _RANGE.fullmatch(header.strip())
    first, last = (found[1], found[2]) if found else ("", "")
    if not first and not last:
        return None
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= size:
        raise RangeNotSatisfiable(asked=header, size=size)
    return start, end


class Download(Response):
    """Sends chunk after chunk. What cannot go on is broken off, so that nobody takes the beginning for the whole."""

    def __init__(
        self, status: int, headers: dict[str, str], first: bytes, rest: AsyncIterator[bytes]
    ) -> None:
        super().__init__(status_code=status, headers=headers)
        self._first = first
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_wait_until_gone(receive))
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            await _send_in_time(send, self._first)
            async for chunk in self._rest:
                if gone.done():
                    return
                await _send_in_time(send, chunk)
            await send({"type": "http.response.body", "body": b""})
        except (HostError, TimeoutError):  # logged by who raised it; a reader that stalls is no news
            scope["extensions"][CONNECTION]["abort"]()
            await gone
        finally:
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone


async def _send_in_time(send: Send, chunk: bytes) -> None:
    async with asyncio.timeout(STALL_SECONDS):
        await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
