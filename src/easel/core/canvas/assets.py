"""The assets of a canvas: what their paths may look like, where their bytes lie, and what type they are served as.

Owns the one law of asset paths, which holds on reading as on writing: a path that could mean another place than the one it spells
out (up a folder, by an escape, by a look-alike, by letter case) is refused before anything is looked up. CV-47
"""

import base64
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

from easel.errors import BadInput
from easel.ids import CanvasId, UserId
from easel.ids import made_at as name_made_at

FOLDER = "assets/"
ENTRY = "assets/index.html"
MAX_PATH_LENGTH = 512  # bytes, so that a whole blob key has room for it
MAX_NAME_LENGTH = 200  # bytes of one name in it, less than any file system allows
MAX_NAMES = 16

# Signs that some reader of a path (a shell, a browser, another file system) takes for something else than themselves.
_UNSAFE = frozenset(
    '\\%:*?"<>|#;&' + "\u2044\u2215\u2216\u29f8\u29f9\u2571\u2572"
)  # the latter look like slashes
_KEY = re.compile(r"users/[^/]+/agents/[^/]+/canvases/[^/]+/assets/([0-9a-hjkmnp-tv-z]{26})/.+")

_TYPES = {
    ".html": "text/html", ".htm": "text/html", ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript",
    ".json": "application/json", ".map": "application/json", ".txt": "text/plain", ".md": "text/markdown", ".csv": "text/csv",
    ".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
    ".avif": "image/avif", ".ico": "image/x-icon", ".woff": "font/woff", ".woff2": "font/woff2", ".ttf": "font/ttf",
    ".wasm": "application/wasm", ".mp3": "audio/mpeg", ".mp4": "video/mp4", ".webm": "video/webm", ".pdf": "application/pdf",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of a canvas. Its blob has a key of its own for every version, since blobs are never written over."""

    path: str
    blob_key: str
    size: int

    @property
    def media_type(self) -> str:
        """By its name alone: what is inside decides nothing."""
        return _TYPES.get(PurePosixPath(self.path).suffix.lower(), "application/octet-stream")


def checked_asset_path(path: str) -> str:
    """The path itself, if it names one file below `assets/` to every reader."""
    if not path.startswith(FOLDER):
        raise BadInput(problem=f"path: an asset lies in {FOLDER}, such as {ENTRY}.")
    if len(path.encode("utf-8", "surrogatepass")) > MAX_PATH_LENGTH or path.count("/") > MAX_NAMES:
        raise BadInput(problem=f"path: at most {MAX_PATH_LENGTH} bytes and {MAX_NAMES} names.")
    if not path.isprintable() or not _UNSAFE.isdisjoint(path):
        raise BadInput(
            problem=f"path: printable characters without {' '.join(sorted(_UNSAFE)[:11])} and look-alikes of slashes; no escapes are understood."
        )
    if ".." in path:
        raise BadInput(problem="path: two dots have no place in it.")
    if unicodedata.normalize("NFKC", path) != path:
        raise BadInput(problem="path: it has characters that stand for others; write them plainly.")
    for name in path.split("/"):
        if not name or name[0] in ". ~-" or name[-1] in ". ":
            raise BadInput(
                problem="path: a name in it is not empty, does not begin with a dot, `~`, `-` or space, and does not end with a dot or space."
            )
        if len(name.encode()) > MAX_NAME_LENGTH:
            raise BadInput(problem=f"path: a name in it has at most {MAX_NAME_LENGTH} bytes.")
    return path


def check_together(paths: Iterable[str]) -> None:
    """The paths of one canvas can lie in one folder of any file system: no two differ by case only, none is a folder of another."""
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
            raise BadInput(problem=f"path: {path} cannot be a file, for {folders[folded]} lies in it.")


def decoded(encoded: str, place: str) -> bytes:
    """The bytes that this Base64 says, which is the plain alphabet, padded, and nothing beside it."""
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        raise BadInput(problem=f"{place}: is not Base64.") from None


def content_of(path: str, asset: str | Mapping[str, str]) -> bytes:
    """One of several assets as its author sends it: its text, or `{"base64": …}`."""
    return (
        asset.encode() if isinstance(asset, str) else decoded(asset["base64"], f"assets.{path[:200]}.base64")
    )


def asset_key(user_id: UserId, agent_id: str, canvas_id: CanvasId, name: str, path: str) -> str:
    """Below the canvas's own folder, under a new name for every version: what is removed for an old one is never a new one's. RS-10"""
    return (
        f"users/{user_id}/agents/{agent_id}/canvases/{canvas_id}/{FOLDER}{name}/{path.removeprefix(FOLDER)}"
    )


def asset_made_at(key: str) -> datetime | None:
    """When the name in the key was made; None if this is no key of an asset."""
    found = _KEY.fullmatch(key)
    return name_made_at(found[1]) if found else None
