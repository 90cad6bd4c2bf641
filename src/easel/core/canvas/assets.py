"""The assets of a canvas: their paths, blob keys and media types.

Owns the rules for asset paths, which apply to reads and writes. A path that a browser, shell or file system
could take for another path (parent folder, escape, look-alike, letter case) is refused before any lookup.
Does not know stores. CV-47
"""

import base64
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

from easel.errors import BadInput
from easel.ids import AccountId, CanvasId, timestamp_of

FOLDER = "assets/"
ENTRY = "assets/index.html"
MAX_PATH_LENGTH = 512  # bytes; must fit into a blob key
MAX_NAME_LENGTH = 200  # bytes of one name; below the limits of file systems
MAX_NAMES = 16

# Characters with a special meaning in a shell, a browser or a file system, and characters that look like
# slashes.
_UNSAFE = frozenset('\\%:*?"<>|#;&' + "\u2044\u2215\u2216\u29f8\u29f9\u2571\u2572")
# Windows opens a device for these names, whatever their case and extension.
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$"]
    + [f"{port}{number}" for port in ("com", "lpt") for number in range(10)]
)
_KEY = re.compile(
    r"accounts/[^/]+/agents/[^/]+/canvases/[^/]+/assets/([0-9a-hjkmnp-tv-z]{26})(?:-([a-z2-7]{52}))?/.+"
)

_TYPES = {
    ".html": "text/html", ".htm": "text/html", ".css": "text/css", ".js": "text/javascript",
    ".mjs": "text/javascript", ".json": "application/json", ".map": "application/json", ".txt": "text/plain",
    ".md": "text/markdown", ".csv": "text/csv", ".svg": "image/svg+xml", ".png": "image/png",
    ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
    ".avif": "image/avif", ".ico": "image/x-icon", ".woff": "font/woff", ".woff2": "font/woff2",
    ".ttf": "font/ttf", ".wasm": "application/wasm", ".mp3": "audio/mpeg", ".mp4": "video/mp4",
    ".webm": "video/webm", ".pdf": "application/pdf",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of a canvas. Every version has a new blob key, because blobs are never overwritten."""

    path: str
    blob_key: str
    size: int

    @property
    def media_type(self) -> str:
        """The media type for the file name; the content is not inspected."""
        return _TYPES.get(PurePosixPath(self.path).suffix.lower(), "application/octet-stream")

    @property
    def digest(self) -> str | None:
        """The SHA-256 of the content, from the blob key; None if the key has none."""
        match = _KEY.fullmatch(self.blob_key)
        return _decode_digest(match[2]) if match and match[2] else None

    def has_other_content(self, other: "Asset") -> bool:
        """Return whether the content differs. Content of unknown digest in another blob counts as other."""
        return self.blob_key != other.blob_key and (self.digest is None or self.digest != other.digest)


def require_asset_path(path: str) -> str:
    """Return the path. Raises `BadInput` unless it is an unambiguous path of a file below `assets/`."""
    if not path.startswith(FOLDER):
        raise BadInput(problem=f"path: must begin with {FOLDER}, such as {ENTRY}.")
    if len(path.encode("utf-8", "surrogatepass")) > MAX_PATH_LENGTH or path.count("/") > MAX_NAMES:
        raise BadInput(problem=f"path: must have at most {MAX_PATH_LENGTH} bytes and {MAX_NAMES} names.")
    if not path.isprintable() or not _UNSAFE.isdisjoint(path):
        raise BadInput(
            problem="path: must have printable characters, "
            f"without {' '.join(sorted(_UNSAFE)[:11])}, look-alikes of slashes and escapes."
        )
    if ".." in path:
        raise BadInput(problem="path: must not contain two dots in a row.")
    if unicodedata.normalize("NFKC", path) != path:
        raise BadInput(problem="path: must be in Unicode normalization form NFKC.")
    for name in path.split("/"):
        if not name or name[0] in ". ~-" or name[-1] in ". ":
            raise BadInput(
                problem="path: a name must not be empty, begin with a dot, `~`, `-` or space, "
                "or end with a dot or space."
            )
        if len(name.encode()) > MAX_NAME_LENGTH:
            raise BadInput(problem=f"path: a name must have at most {MAX_NAME_LENGTH} bytes.")
        if name.partition(".")[0].rstrip().lower() in _DEVICES:
            raise BadInput(
                problem=f"path: {name} is the name of a device on Windows, so the canvas could not be "
                "exported there; choose another name."
            )
    return path


def check_path_conflicts(paths: Iterable[str]) -> None:
    """Raise `BadInput` if two paths differ only by case, or one is a folder of another."""
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        folded = path.casefold()
        if (other := seen.get(folded)) is not None:
            raise BadInput(problem=f"path: {path} and {other} differ only in upper and lower case.")
        seen[folded] = path
        names = folded.split("/")
        folders.update({"/".join(names[:depth]): path for depth in range(1, len(names))})
    for folded, path in seen.items():
        if folded in folders:
            raise BadInput(problem=f"path: {path} cannot be a file: {folders[folded]} uses it as a folder.")


def decode_base64(encoded: str, at: str) -> bytes:
    """Decode padded Base64 of the standard alphabet. Raises `BadInput` for anything else."""
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        raise BadInput(problem=f"{at}: must be Base64.") from None


def asset_content(path: str, asset: str | Mapping[str, str]) -> bytes:
    """Return the bytes of an asset from a request, where it is text or `{"base64": …}`."""
    return (
        asset.encode()
        if isinstance(asset, str)
        else decode_base64(asset["base64"], f"assets.{path[:200]}.base64")
    )


def asset_key(account_id: AccountId, agent_id: str, canvas_id: CanvasId, name: str, path: str) -> str:
    """Return the blob key of one version of an asset.

    `name` is new for every version, so that removing an old version never removes a new one. RS-10
    """
    folder = f"accounts/{account_id}/agents/{agent_id}/canvases/{canvas_id}/{FOLDER}"
    return f"{folder}{name}/{path.removeprefix(FOLDER)}"


def version_name(name: str, content: bytes) -> str:
    """Return the name of a version for its blob key: a unique name, and the digest of the content.

    A blob is never overwritten, so the digest in its key is always that of its content.
    """
    digest = hashlib.sha256(content).digest()
    return f"{name}-{base64.b32encode(digest).decode().rstrip('=').lower()}"


def _decode_digest(letters: str) -> str:
    return base64.b32decode(letters.upper() + "====").hex()


def asset_created_at(key: str) -> datetime | None:
    """Return the creation time in the blob key of an asset, or None if this is not the key of an asset."""
    match = _KEY.fullmatch(key)
    return timestamp_of(match[1]) if match else None
