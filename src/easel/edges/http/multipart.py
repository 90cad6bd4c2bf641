"""The file of a form (`multipart/form-data`, RFC 7578), read as a stream.

Owns the limits and which part is the file; python-multipart splits the body. Buffers one chunk of the body
for a file of any size; other fields are skipped. Starlette's own parser would first write all of the file to
a temporary file, unlimited.
"""

from collections.abc import AsyncGenerator, AsyncIterator

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from easel.errors import BadInput

FILE = "file"  # the name of the form part that contains the file
MAX_TYPE_LENGTH = 1_000
MAX_BOUNDARY_LENGTH = 70  # RFC 2046
MAX_HEADER_BYTES = 8_192  # one header of a part
MAX_FORM_OVERHEAD_BYTES = 65_536  # all bytes outside of the file


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "multipart/form-data"


async def open_form_file(body: AsyncIterator[bytes], content_type: str) -> tuple[str, AsyncIterator[bytes]]:
    """Read the body up to the file. Returns the declared type of the file and a stream of its bytes."""
    form = _Form(body, _boundary(content_type))
    while form.file_type is None:
        await form.read()
    return form.file_type, _file_chunks(form)


async def _file_chunks(form: "_Form") -> AsyncGenerator[bytes]:
    yield form.take_content()
    while not form.is_complete:
        await form.read()
        yield form.take_content()


class _Form:
    """The headers of the present part, and the bytes of the file that were read and not yet taken."""

    def __init__(self, body: AsyncIterator[bytes], boundary: bytes) -> None:
        self.file_type: str | None = None  # known when the file begins
        self.is_complete = False
        self._body = body
        self._content = bytearray()
        self._overhead = 0
        self._headers: dict[bytes, bytes] = {}
        self._name, self._value = bytearray(), bytearray()
        self._is_in_file = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._headers.clear,
                "on_header_field": lambda data, start, end: self._name.extend(data[start:end]),
                "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
                "on_header_end": self._end_header,
                "on_headers_finished": self._begin_content,
                "on_part_data": self._add_data,
                "on_end": self._end,
            },
            max_header_size=MAX_HEADER_BYTES,
        )
        # The parser knows no preamble: an empty part in front makes it one that is skipped.
        self._parser.write(b"--" + boundary + b"\r\n\r\n\r\n")

    async def read(self) -> None:
        """Parse the next chunk of the body. Call `take_content` in between."""
        chunk = await anext(self._body, None)
        if chunk is None:
            raise BadInput(problem="The form is incomplete: its last boundary is missing.")
        try:
            self._parser.write(chunk)
        except MultipartParseError as error:
            raise BadInput(problem=f"The form is not valid: {error}.") from None
        self._overhead += len(chunk) - len(self._content)
        if self._overhead > MAX_FORM_OVERHEAD_BYTES:
            raise BadInput(
                problem=f"The form has more than {MAX_FORM_OVERHEAD_BYTES} bytes outside of the file."
            )

    def take_content(self) -> bytes:
        content = bytes(self._content)
        self._content.clear()
        return content

    def _end_header(self) -> None:
        self._headers[bytes(self._name).lower()] = bytes(self._value)
        self._name.clear()
        self._value.clear()

    def _begin_content(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        self._is_in_file = options.get(b"name") == FILE.encode()
        if self._is_in_file:
            if self.file_type is not None:
                raise BadInput(problem="The form must have one file.")
            self.file_type = self._headers.get(b"content-type", b"").decode("utf-8", "replace")

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_in_file:
            self._content += data[start:end]

    def _end(self) -> None:
        if self.file_type is None:
            raise BadInput(problem=f"The form has no part named `{FILE}`.")
        self.is_complete = True


def _boundary(content_type: str) -> bytes:
    if len(content_type) > MAX_TYPE_LENGTH:
        raise BadInput(problem="The content type is too long.")
    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    if not 0 < len(boundary) <= MAX_BOUNDARY_LENGTH:
        raise BadInput(problem="The content type of a form must name a boundary: boundary=…")
    return boundary
