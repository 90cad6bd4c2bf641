"""The workspace of a tool: the folders that the tool may use, and their paths as tools and commands see them.

The tools of a session have one folder, visible as `/workspace`. The tools of a node have the folders that the
user of the node chose, under their real paths. Owns the translation of a tool's path argument to a root
folder and a path below it; `safe_open` opens that path.
"""

import posixpath
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from easel.core.tool.context import ToolContext
from easel.errors import BadSettings
from easel.fs import OutsideDirectory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

WORKSPACE = "/workspace"
TEMPORARY = ".tmp"  # the directory in a session's folder that its commands see as /tmp
MAX_PATH_LENGTH = 4_096


@dataclass(frozen=True, slots=True)
class Root:
    visible_path: str  # as tools and commands see it
    folder: Path  # the real path on this machine


@dataclass(frozen=True, slots=True)
class Workspace:
    """`temporary` is the folder that commands see as /tmp; None: each command has its own empty /tmp."""

    roots: tuple[Root, ...]  # relative paths start at the first root
    name: str  # a session's key, or a node's first root
    temporary: str | None = None
    owner: int | None = None  # the uid of new files; None: the uid of this process
    network: bool = False  # whether commands here may use the network; the tool must allow it too. RS-54

    def find(self, path: str) -> tuple[Root, str]:
        """Return the root that contains a path, and the path relative to that root.

        Does not resolve links. Raises `OutsideDirectory` if no root contains the path.
        """
        if "\0" in path or len(path) > MAX_PATH_LENGTH:
            raise OutsideDirectory(path)
        full = posixpath.normpath(posixpath.join(self.roots[0].visible_path, path))
        inner_tmp = "/tmp"  # noqa: S108 - the path inside the sandbox
        if self.temporary and (full == inner_tmp or full.startswith(f"{inner_tmp}/")):
            full = self.temporary + full.removeprefix(inner_tmp)
        for root in self.roots:
            if full == root.visible_path:
                return root, "."
            prefix = root.visible_path.rstrip("/") + "/"
            if full.startswith(prefix):
                return root, full[len(prefix) :]
        raise OutsideDirectory(path)


class WorkspaceProvider(Protocol):
    """Chooses the workspace of a tool call."""

    def enter(self, context: ToolContext | None) -> AbstractAsyncContextManager[Workspace]:
        """Create the workspace if needed, and protect it from removal until the block ends."""
        ...


class FixedRoots:
    """Provides the workspace of a node: the same folders for every call, under their real paths."""

    def __init__(self, roots: Sequence[Path], *, network: bool = False) -> None:
        folders = [_checked_root(root) for root in roots]
        self._workspace = Workspace(
            tuple(Root(str(folder), folder) for folder in folders), str(folders[0]), network=network
        )

    @asynccontextmanager
    async def enter(self, context: ToolContext | None) -> "AsyncGenerator[Workspace]":  # noqa: ARG002
        yield self._workspace


def _checked_root(root: Path) -> Path:
    try:
        folder = root.resolve(strict=True)
    except OSError as problem:
        raise BadSettings(problem=f"{root} cannot be a root ({problem.strerror}).") from None
    if not folder.is_dir() or folder == Path("/") or folder.parts[1] in ("proc", "sys", "dev"):
        raise BadSettings(
            problem=f"{root} cannot be a root; a root must be a folder, and not /, /proc, /sys or /dev."
        )
    return folder
