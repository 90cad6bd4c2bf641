"""Artifacts over HTTP: streamed uploads, and downloads by range.

Owns the headers that keep an artifact from executing in our origin: an opaque origin that may load nothing,
no type sniffing, no embedding by other sites. `media_type.presentation_of` decides which types a browser may
show.
"""

import re
from collections.abc import AsyncIterator

from msgspec import Struct
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from easel.core.artifact.media_type import presentation_of
from easel.edges.errors import CONNECTION
from easel.edges.http.calls import Call, body_part, check_head, json_response, watch_disconnect
from easel.edges.http.multipart import MAX_FORM_OVERHEAD_BYTES, is_form, open_form_file
from easel.errors import HostError, RangeNotSatisfiable

STALL_SECONDS = 60.0  # a client that reads nothing for this long is disconnected; it can resume by range

_RANGE = re.compile(r"bytes=(\d{0,30})-(\d{0,30})", re.ASCII | re.IGNORECASE)
_SAFE = {
    "content-security-policy": "sandbox; default-src 'none'",
    "cross-origin-resource-policy": "same-origin",
    "accept-ranges": "bytes",
    "cache-control": "private, no-cache",  # a browser may store the artifact and must revalidate it
}


class ArtifactView(Struct):
    artifact_id: str
    uri: str
    size: int
    media_type: str
    sha256: str


async def upload_artifact(call: Call) -> Response:
    declared_type, source = await read_upload(call)
    artifact = await call.host.artifacts.upload(call.principal, source, declared_type)
    details = {"size": artifact.size, "media_type": artifact.media_type}
    await call.host.audit.record(
        call.principal, "artifact.uploaded", subject=artifact.artifact_id, details=details
    )
    view = ArtifactView(
        artifact.artifact_id, artifact.uri, artifact.size, artifact.media_type, artifact.sha256
    )
    return json_response(view, 201 if artifact.is_new else 200)


async def read_upload(call: Call) -> tuple[str, AsyncIterator[bytes]]:
    """Return the declared media type and the bytes: the whole body, or the part `file` of a form."""
    request, limit = call.request, call.host.artifacts.max_bytes
    declared_type = request.headers.get("content-type", "")
    if not is_form(declared_type):
        check_head(request, limit)
        return declared_type, request.stream()
    check_head(request, limit + MAX_FORM_OVERHEAD_BYTES)
    return await open_form_file(request.stream(), declared_type)


async def download_artifact(call: Call) -> Response:
    artifact = await call.host.artifacts.find(call.principal.account_id, call.path["artifact_id"])
    request_headers = call.request.headers
    etag = f'"{artifact.sha256}"'
    headers = {**_SAFE, "etag": etag}
    if _names(request_headers.get("if-none-match", ""), etag):
        return Response(status_code=304, headers=headers)
    presentation = presentation_of(artifact.media_type)
    headers["content-type"] = presentation.content_type
    headers["content-disposition"] = (
        "inline"
        if presentation.is_inline
        else f'attachment; filename="{artifact.artifact_id}{presentation.extension}"'
    )
    if call.request.method == "HEAD":
        return Response(headers={**headers, "content-length": str(artifact.size)})
    part = (
        _part(request_headers.get("range", ""), artifact.size)
        if request_headers.get("if-range", etag) == etag
        else None
    )
    start, end = part or (0, artifact.size)
    if part is not None:
        headers["content-range"] = f"bytes {start}-{end - 1}/{artifact.size}"
    headers["content-length"] = str(end - start)
    chunks = await call.host.artifacts.open(artifact, start, end)
    # Read the first chunk before the headers are sent: a missing or corrupt blob is then an error response.
    return Download(206 if part else 200, headers, await anext(chunks, b""), chunks)


def _names(header: str, etag: str) -> bool:
    """Return whether If-None-Match names the tag; weak tags compare equal (RFC 9110, 13.1.2)."""
    return header.strip() == "*" or etag in {tag.strip().removeprefix("W/") for tag in header.split(",")}


def _part(header: str, size: int) -> tuple[int, int] | None:
    """Return the start and end of a range; None for the whole content, also for several or invalid ranges."""
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
    """Sends the chunks of an artifact. A failure aborts the connection, so that the client detects it."""

    def __init__(
        self, status: int, headers: dict[str, str], first: bytes, rest: AsyncIterator[bytes]
    ) -> None:
        super().__init__(status_code=status, headers=headers)
        self._first = first
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope["extensions"][CONNECTION]
        connection["limit_stalls"](STALL_SECONDS)
        async with watch_disconnect(receive) as disconnect:
            try:
                await send(
                    {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
                )
                await send(body_part(self._first))
                async for chunk in self._rest:
                    if disconnect.done():
                        return
                    await send(body_part(chunk))
                await send(body_part(b"", more=False))
            except HostError:  # logged where it is raised
                connection["abort"]()
                await disconnect
