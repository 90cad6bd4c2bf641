"""The file of a form (`multipart/form-data`, RFC 7578), read as a stream.

Owns the search for boundaries. Buffers a few kilobytes for a file of any size; other fields are skipped,
within a limit. Starlette's own parser would first write all of the file to a temporary file, unlimited.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from email.message import Message
from email.utils import collapse_rfc2231_value

from easel.errors import BadInput

FILE = "file"  # the name of the form part that contains the file
MAX_TYPE_LENGTH = 1_000
MAX_BOUNDARY_LENGTH = 70  # RFC 2046
MAX_HEADER_BYTES = 8_192  # headers of one part
MAX_FORM_OVERHEAD_BYTES = 65_536  # all bytes outside of the file


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "multipart/form-data"


async def open_form_file(body: AsyncIterator[bytes], content_type: str) -> tuple[str, AsyncIterator[bytes]]:
    """Read the body up to the file. Returns the declared type of the file and a stream of its bytes."""
    form = _FormReader(body, _boundary(content_type))
    while True:
        heading = await form.heading()
        if heading is None:
            raise BadInput(problem=f"The form has no part named `{FILE}`.")
        if _name(heading) == FILE:
            return heading.get("content-type", ""), _file_chunks(form)
        async for _ in form.part(is_counted=True):
            pass


async def _file_chunks(form: "_FormReader") -> AsyncGenerator[bytes]:
    async for chunk in form.part():
        yield chunk
    while (heading := await form.heading()) is not None:
        if _name(heading) == FILE:
            raise BadInput(problem="The form must have one file.")
        async for _ in form.part(is_counted=True):
            pass


class _FormReader:
    """Splits a body at its boundaries. Call `heading` and `part` alternately."""

    def __init__(self, body: AsyncIterator[bytes], boundary: bytes) -> None:
        self._body = body
        self._boundary = b"\r\n--" + boundary
        # Every boundary but the first has a line break in front of it: add one for the first.
        self._buffer = bytearray(b"\r\n")
        self._overhead = 0
        self._has_started = False

    async def heading(self) -> Message | None:
        """Return the headers of the next part, or None after the last."""
        if not self._has_started:
            self._has_started = True
            async for _ in self.part(is_counted=True):  # ignore the preamble
                pass
        while len(self._buffer) < 2:
            await self._more()
        if self._buffer.startswith(b"--"):
            return None
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > MAX_HEADER_BYTES:
                raise BadInput(problem="The headers of a part of the form are too long.")
            await self._more()
        lines = self._buffer[:end].split(b"\r\n")[1:]  # the first line ends the boundary
        self._count(end)
        del self._buffer[: end + 2]  # keep a line break: an empty part's boundary starts with it
        heading = Message()
        for line in lines:
            name, _, value = line.decode("utf-8", "replace").partition(":")
            heading[name.strip()] = value.strip()
        return heading

    async def part(self, *, is_counted: bool = False) -> AsyncGenerator[bytes]:
        """Yield the bytes up to the next boundary; with `is_counted`, drop them and count them."""
        is_first = True
        while True:
            end = self._buffer.find(self._boundary)
            # Keep the end of the buffer: it may be the beginning of a boundary.
            ready = end if end >= 0 else len(self._buffer) - len(self._boundary)
            start = 2 if is_first else 0
            if ready >= start:
                chunk = bytes(self._buffer[start:ready])
                del self._buffer[:ready]
                is_first = False
                if is_counted:
                    self._count(len(chunk))
                elif chunk:
                    yield chunk
            if end >= 0:
                del self._buffer[: len(self._boundary)]
                return
            await self._more()

    def _count(self, size: int) -> None:
        self._overhead += size
        if self._overhead > MAX_FORM_OVERHEAD_BYTES:
            raise BadInput(
                problem=f"The form has more than {MAX_FORM_OVERHEAD_BYTES} bytes outside of the file."
            )

    async def _more(self) -> None:
        chunk = await anext(self._body, None)
        if chunk is None:
            raise BadInput(problem="The form is incomplete: its last boundary is missing.")
        self._buffer += chunk


def _boundary(content_type: str) -> bytes:
    if len(content_type) > MAX_TYPE_LENGTH:
        raise BadInput(problem="The content type is too long.")
    boundary = _parameter(content_type, "boundary")
    if not 0 < len(boundary) <= MAX_BOUNDARY_LENGTH:
        raise BadInput(problem="The content type of a form must name a boundary: boundary=…")
    return boundary.encode("latin-1", "replace")


def _name(heading: Message) -> str:
    return _parameter(heading.get("content-disposition", ""), "name")


def _parameter(value: str, name: str) -> str:
    holder = Message()
    holder["content-type"] = value
    found = holder.get_param(name, "")
    return collapse_rfc2231_value(found) if found else ""
