"""Images of a message: the artifacts that its text refers to and that are images. RS-62

An artifact is an uploaded image, or Base64 that was taken out of a message. Any other reference stays text.
"""

import asyncio
import base64
import binascii

from easel.core.artifact.media_type import HEAD, media_type
from easel.core.run.conversation import Image
from easel.core.stream.message_text import find_references
from easel.errors import CorruptData, NotFound
from easel.host.ports import ArtifactAccess
from easel.ids import AccountId, ArtifactId

MAX_IMAGES = 10  # of one message
MAX_REFERENCES = 50  # of one message that are tried
MAX_REQUEST_IMAGE_BYTES = 16 * 2**20  # of all images of one request; providers reject large requests
BASE64_HEAD = 136  # characters that show whether Base64 is an image
# The types that all providers accept.
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def count_images(text: str) -> int:
    """Return how many images a text may have, without reading any."""
    return min(len(find_references(text)), MAX_IMAGES) if "[[artifact:" in text else 0


class ImageReader:
    def __init__(self, artifacts: ArtifactAccess, *, max_bytes: int) -> None:
        self._artifacts = artifacts
        self._max_bytes = max_bytes

    async def read(self, account_id: AccountId, text: str) -> tuple[Image, ...]:
        """Return the images that a text refers to, without those that are too large or do not exist.

        The images after the limit of a request stay references.
        """
        images: list[Image] = []
        room = MAX_REQUEST_IMAGE_BYTES
        for name in find_references(text)[:MAX_REFERENCES]:
            if len(images) == MAX_IMAGES:
                break
            if (image := await self._read(account_id, name)) is not None:
                room -= len(image.content)
                if room < 0:
                    break
                images.append(image)
        return tuple(images)

    async def _read(self, account_id: AccountId, name: ArtifactId) -> Image | None:
        try:
            size = await self._artifacts.size_of(account_id, name)
            if size > self._max_bytes * 4 // 3 + HEAD:  # Base64 is larger than its content
                return None
            content = await self._artifacts.read(account_id, name)
        except (NotFound, CorruptData):
            return None
        kind = media_type(content[:HEAD])
        if kind.startswith("text/"):
            kind = media_type(_decode_head(content))
            if kind in IMAGE_TYPES:
                content = await asyncio.to_thread(_decode, content)
                kind = media_type(content[:HEAD])
        if kind not in IMAGE_TYPES or len(content) > self._max_bytes:
            return None
        return Image(name, kind, content)


def _decode_head(text: bytes) -> bytes:
    """Return the first bytes of Base64, empty if the text does not begin with Base64."""
    head = b"".join(text[:HEAD].split())[:BASE64_HEAD]
    return _decode(head[: len(head) // 4 * 4])


def _decode(text: bytes) -> bytes:
    """Return the content of Base64, empty if it is none."""
    joined = b"".join(text.split()).rstrip(b"=").translate(bytes.maketrans(b"-_", b"+/"))
    try:
        return base64.b64decode(joined + b"=" * (-len(joined) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""
