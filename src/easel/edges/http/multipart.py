"""The one file in a form (`multipart/form-data`, RFC 7578), as it comes in.

Owns the search for boundaries. Holds a few kilobytes, whatever the size of the file; fields beside the file are passed
over, within a limit. Starlette's own parser would write the file to a temporary place first, without a limit.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from email.message import Message
from email.utils import collapse_rfc2231_value

from easel.errors import BadInput

FILE = "file"  # the name of the part that is taken
MAX_TYPE_LENGTH = 1_000
MAX_BOUNDARY_LENGTH = 70  # RFC 2046
MAX_HEADERS = 8_192  # bytes, of one part
MAX_BESIDE = 65_536  # bytes of everything that is not the file


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "multipart/form-data"


async def file_in(body: AsyncIterator[bytes], content_type: str) -> tuple[str, AsyncIterator[bytes]]:
    """The type that the sender says the file has, and its bytes: read up to the file now, and on as they are taken."""
    reading = _Reading(body, _boundary(content_type))
    while True:
        heading = await reading.heading()
        if heading is None:
            raise BadInput(problem=f"The form has no part named `{FILE}`.")
        if _name(heading) == FILE:
            return heading.get("content-type", ""), _whole_file(reading)
        async for _ in reading.part(is_counted=True):
            pass


async def _whole_file(reading: "_Reading") -> AsyncGenerator[bytes]:
    async for piece in reading.part():
        yield piece
    while (heading := await reading.heading()) is not None:
        if _name(heading) == FILE:
            raise BadInput(problem="The form has two files; send one at a time.")
        async for _ in reading.part(is_counted=True):
            pass


class _Reading:
    """A body between its boundaries. `heading` and `part` take turns."""

    def __init__(self, body: AsyncIterator[bytes], boundary: bytes) -> None:
        self._body = body
        self._boundary = b"\r\n--" + boundary
        self._held = bytearray(
            b"\r\n"
        )  # the first boundary has nothing in front of it; all others have a line's end
        self._beside = 0
        self._has_begun = False

    async def heading(self) -> Message | None:
        """What the next part says of itself; None: that was the last."""
        if not self._has_begun:
            self._has_begun = True
            async for _ in self.part(
                is_counted=True
            ):  # what stands in front of the first boundary is nobody's
                pass
        while len(self._held) < 2:
            await self._more()
        if self._held.startswith(b"--"):
            return None
        while (end := self._held.find(b"\r\n\r\n")) < 0:
            if len(self._held) > MAX_HEADERS:
                raise BadInput(problem="The headers of a part of the form are too long.")
            await self._more()
        lines = self._held[:end].split(b"\r\n")[1:]  # the first is what follows the boundary in its line
        self._count(end)
        del self._held[: end + 2]  # its line's end stays: a part without bytes has its boundary right there
        heading = Message()
        for line in lines:
            name, _, value = line.decode("utf-8", "replace").partition(":")
            heading[name.strip()] = value.strip()
        return heading

    async def part(self, *, is_counted: bool = False) -> AsyncGenerator[bytes]:
        """The bytes up to the next boundary."""
        is_first = True
        while True:
            end = self._held.find(self._boundary)
            # What could be the beginning of a boundary waits for what follows.
            ready = end if end >= 0 else len(self._held) - len(self._boundary)
            start = 2 if is_first else 0
            if ready >= start:
                piece = bytes(self._held[start:ready])
                del self._held[:ready]
                is_first = False
                if is_counted:
                    self._count(len(piece))
                elif piece:
                    yield piece
            if end >= 0:
                del self._held[: len(self._boundary)]
                return
            await self._more()

    def _count(self, size: int) -> None:
        self._beside += size
        if self._beside > MAX_BESIDE:
            raise BadInput(problem=f"The form has more than {MAX_BESIDE} bytes beside the file.")

    async def _more(self) -> None:
        piece = await anext(self._body, None)
        if piece is None:
            raise BadInput(problem="The form ends in the middle; its last boundary is missing.")
        self._held += piece


def _boundary(content_type: str) -> bytes:
    if len(content_type) > MAX_TYPE_LENGTH:
        raise BadInput(problem="The content type is too long.")
    boundary = _parameter(content_type, "boundary")
    if not 0 < len(boundary) <= MAX_BOUNDARY_LENGTH:
        raise BadInput(problem="A form says in its content type where its parts end: boundary=…")
    return boundary.encode("latin-1", "replace")


def _name(heading: Message) -> str:
    return _parameter(heading.get("content-disposition", ""), "name")


def _parameter(value: str, name: str) -> str:
    holder = Message()
    holder["content-type"] = value
    found = holder.get_param(name, "")
    return collapse_rfc2231_value(found) if found else ""
