"""Where a tool works: the folders that it may touch, and the names by which a command knows them.

A session's tools have one folder, which they call `/workspace`. A node's have the roots that its user gave, under their own
names. Owns the way from a path as it was written to a folder and a path beneath it; what lies there is `beneath`'s business.
"""

import posixpath
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from easel.core.tool.context import ToolContext
from easel.errors import BadSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

WORKSPACE = "/workspace"
TEMPORARY = ".tmp"  # in a session's folder: what its commands call /tmp
MAX_PATH_LENGTH = 4_096


class Outside(Exception):
    """A path leads out of every folder that a tool may touch."""


@dataclass(frozen=True, slots=True)
class Root:
    at: str  # as tools and commands name it
    folder: Path  # where it is on this machine


@dataclass(frozen=True, slots=True)
class Workspace:
    roots: tuple[Root, ...]  # the first is where a relative path begins
    name: str  # whose it is: a session's key, or a node's root
    temporary: str | None = (
        None  # the folder that commands call /tmp; None: one of their own that goes with them
    )
    owner: int | None = None  # whom files belong to that are made here; None: whoever makes them
    network: bool = False  # whether whoever works here may use it at all; the tool has to say so too. RS-54

    def find(self, path: str) -> tuple[Root, str]:
        """The root that a path lies in, and the way from there. Links are not looked at here."""
        if "\0" in path or len(path) > MAX_PATH_LENGTH:
            raise Outside
        whole = posixpath.normpath(posixpath.join(self.roots[0].at, path))
        if self.temporary and (whole == "/tmp" or whole.startswith("/tmp/")):  # noqa: S108 - the name inside, not a place here
            whole = self.temporary + whole.removeprefix("/tmp")  # noqa: S108
        for root in self.roots:
            if whole == root.at:
                return root, "."
            if whole.startswith(root.at.rstrip("/") + "/"):
                return root, whole[len(root.at.rstrip("/")) + 1 :]
        raise Outside


class WorkspaceProvider(Protocol):
    """Knows where whoever calls a tool works."""

    def enter(self, context: ToolContext | None) -> AbstractAsyncContextManager[Workspace]:
        """The place is there, and stays there until the block ends."""
        ...


def _checked(root: Path) -> Path:
    try:
        found = root.resolve(strict=True)
    except OSError as problem:
        raise BadSettings(problem=f"{root} cannot be a root ({problem.strerror}).") from None
    if not found.is_dir() or found == Path("/") or found.parts[1] in ("proc", "sys", "dev"):
        raise BadSettings(
            problem=f"{root} cannot be a root; it is a folder that is neither / nor one of the system's own."
        )
    return found


class FixedRoots:
    """A node's workplace: the same folders for every call, under their own names."""

    def __init__(self, roots: Sequence[Path], *, network: bool = False) -> None:
        found = [_checked(root) for root in roots]
        self._place = Workspace(
            tuple(Root(str(root), root) for root in found), str(found[0]), network=network
        )

    @asynccontextmanager
    async def enter(self, context: ToolContext | None) -> "AsyncGenerator[Workspace]":  # noqa: ARG002 - whoever calls
        yield self._place
