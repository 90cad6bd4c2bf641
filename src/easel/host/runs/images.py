"""Images of a message: the artifacts that its text refers to and that are images. RS-62

An artifact is an uploaded image, or Base64 that was taken out of a message. Any other reference stays text.
"""

import base64
import binascii

from easel.core.artifact.media_type import HEAD, media_type
from easel.core.run.conversation import Image
from easel.core.stream.message_text import find_references
from easel.errors import CorruptData, NotFound
from easel.host.ports import ArtifactAccess
from easel.ids import ArtifactId, UserId

MAX_IMAGES = 10  # of one message
# The types that all providers accept.
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class ImageReader:
    def __init__(self, artifacts: ArtifactAccess, *, max_bytes: int) -> None:
        self._artifacts = artifacts
        self._max_bytes = max_bytes

    async def read(self, user_id: UserId, text: str) -> tuple[Image, ...]:
        """Return the images that a text refers to, without those that are too large or do not exist."""
        images: list[Image] = []
        for name in find_references(text):
            if len(images) == MAX_IMAGES:
                break
            if (image := await self._read(user_id, name)) is not None:
                images.append(image)
        return tuple(images)

    async def _read(self, user_id: UserId, name: ArtifactId) -> Image | None:
        try:
            size = await self._artifacts.size_of(user_id, name)
            if size > self._max_bytes * 4 // 3 + HEAD:  # Base64 is larger than its content
                return None
            content = await self._artifacts.read(user_id, name)
        except (NotFound, CorruptData):
            return None
        kind = media_type(content[:HEAD])
        if kind.startswith("text/"):
            content = _decode(content)
            kind = media_type(content[:HEAD])
        if kind not in IMAGE_TYPES or len(content) > self._max_bytes:
            return None
        return Image(name, kind, content)


def _decode(text: bytes) -> bytes:
    """Return the content of Base64, empty if it is none."""
    joined = b"".join(text.split()).rstrip(b"=").translate(bytes.maketrans(b"-_", b"+/"))
    try:
        return base64.b64decode(joined + b"=" * (-len(joined) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""
