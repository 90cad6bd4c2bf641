"""Canvas folders on disk: find them, detect changes, read and write their files.

Owns the safety of folders that another person may have packed: below the folder that the user named no link
is followed, only regular files are opened, no file is read beyond its limit, and only paths of the layout are
read. A folder with a file that breaks this is refused. Does not know servers, nor the content of the files.
"""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from easel import fs
from easel.core.canvas.assets import ENTRY, FOLDER, MAX_NAMES
from easel.core.canvas.folder import (
    AGENTS,
    CANVASES,
    DESCRIPTOR,
    SPEC,
    STATE,
    escape_unprintable,
    identify_canvas,
)
from easel.errors import BadInput
from easel.ids import CanvasId

MAX_JSON_BYTES = 8_388_608  # of one JSON file; more than any server accepts
MAX_TOTAL_BYTES = 268_435_456  # of one canvas, which is kept in memory
MAX_FILES = 5_000  # of one canvas; more than any server accepts
MAX_READ_ATTEMPTS = 25  # of a folder that is being written to
RETRY_SECONDS = 0.2

_READ_FILE = os.O_RDONLY | os.O_NONBLOCK  # opening a pipe must not wait for its other end
_NOT_A_DIRECTORY = frozenset({errno.ELOOP, errno.ENOTDIR})  # a link, or a file

FileStamp = tuple[int, int, int, int]  # inode, size, time of modification, time of change


@dataclass(frozen=True, slots=True)
class CanvasDir:
    """The folder of one canvas."""

    folder: Path
    agent_id: str
    canvas_id: CanvasId


# --- find ---------------------------------------------------------------------------------------------------


def find_canvases(folder: Path, agent_id: str | None = None) -> list[CanvasDir]:
    """Return the canvas folders: the folder itself, or those below its `agents/`. Raises `BadInput`."""
    if not folder.is_dir():
        raise BadInput(problem=f"{_display(folder)} is not a folder.")
    found = [identify(canvas, agent_id) for canvas in find_folders(folder, agent_id)]
    if not found:
        owner = "" if agent_id is None else f" of agent {escape_unprintable(agent_id)}"
        raise BadInput(
            problem=f"{_display(folder)} contains no canvas{owner}: neither {DESCRIPTOR}, {SPEC} or {ENTRY}, "
            f"nor {AGENTS}/AGENT/{CANVASES}/CANVAS with one of them."
        )
    return found


def find_folders(folder: Path, agent_id: str | None = None) -> list[Path]:
    """Return the canvas folders by the names of their files, without reading a file."""
    if _is_canvas(folder):
        return [folder]
    return [
        canvas
        for agent in _subfolders(folder / AGENTS)
        if agent_id in (None, agent.name)
        for canvas in _subfolders(agent / CANVASES)
        if _is_canvas(canvas)
    ]


def identify(folder: Path, agent_id: str | None = None) -> CanvasDir:
    """Return the agent and the id of a canvas folder: from its location, its descriptor or its name."""
    resolved = folder.resolve()
    parts, descriptor = resolved.parts[-4:], None
    location = (parts[1], parts[3]) if len(parts) == 4 and parts[::2] == (AGENTS, CANVASES) else None
    try:
        with contextlib.suppress(FileNotFoundError), _open_folder(folder) as root:
            descriptor = _read_file(root, DESCRIPTOR, MAX_JSON_BYTES)
        found = identify_canvas(descriptor, folder=resolved.name, location=location, agent_id=agent_id)
    except BadInput as problem:
        raise BadInput(problem=f"{_display(folder)}: {problem.message}") from None
    return CanvasDir(folder, *found)


def _is_canvas(folder: Path) -> bool:
    return any((folder / name).exists() or (folder / name).is_symlink() for name in (DESCRIPTOR, SPEC, ENTRY))


def _subfolders(folder: Path) -> list[Path]:
    """Return the visible folders in a folder, sorted; links are not followed."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(
        path
        for path in folder.iterdir()
        if not path.name.startswith(".") and not path.is_symlink() and path.is_dir()
    )


def _display(folder: Path) -> str:
    return escape_unprintable(str(folder))


# --- read ---------------------------------------------------------------------------------------------------


def scan(folder: Path) -> dict[str, FileStamp]:
    """Return a stamp of each file of a canvas. Equal stamps mean that nothing was written.

    Cheap enough for several calls a second. Raises `BadInput` if an entry is not a regular file.
    """
    stamps: dict[str, FileStamp] = {}
    with _open_folder(folder) as root:
        for path in (DESCRIPTOR, SPEC, STATE):
            with contextlib.suppress(FileNotFoundError), _open_parent(root, path) as parent:
                name = PurePosixPath(path).name
                stamps[path] = _stamp(path, os.stat(name, dir_fd=parent, follow_symlinks=False))
        with contextlib.suppress(FileNotFoundError):
            _scan_assets(root, FOLDER, stamps)
    return stamps


def _scan_assets(root: int, path: str, stamps: dict[str, FileStamp]) -> None:
    """Add all files below the folder. Names that start with a dot are skipped: they are not assets."""
    with _open_parent(root, f"{path}*") as folder, os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            below = path + entry.name
            if entry.name.startswith("."):
                continue
            if len(stamps) >= MAX_FILES:
                raise BadInput(problem=f"{FOLDER}: must contain at most {MAX_FILES} files.")
            with contextlib.suppress(FileNotFoundError):  # the entry was removed during the scan
                if not entry.is_dir(follow_symlinks=False):
                    stamps[below] = _stamp(below, entry.stat(follow_symlinks=False))
                elif path.count("/") > MAX_NAMES:
                    raise BadInput(problem=f"{escape_unprintable(below)}: is nested too deeply.")
                else:
                    _scan_assets(root, f"{below}/", stamps)


def _stamp(path: str, status: os.stat_result) -> FileStamp:
    if not stat.S_ISREG(status.st_mode):
        kinds = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder"}
        kind = kinds.get(stat.S_IFMT(status.st_mode), "a special file")
        raise BadInput(problem=f"{escape_unprintable(path)}: must be a regular file, not {kind}.")
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read(folder: Path, *, max_bytes: int) -> dict[str, bytes]:
    """Return the content of all files at a moment when none was being written. Raises `BadInput`.

    An asset must have at most `max_bytes`.
    """
    for _ in range(MAX_READ_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):  # a file was removed after the scan
            scanned = scan(folder)
            found = _read_files(folder, scanned, max_bytes)
            if scan(folder) == scanned:
                return found
        time.sleep(RETRY_SECONDS)
    raise BadInput(
        problem=f"{_display(folder)} is being written to all the time; try again when the writing has ended."
    )


def _read_files(folder: Path, paths: Iterable[str], max_bytes: int) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    left_bytes = MAX_TOTAL_BYTES
    with _open_folder(folder) as root:
        for path in paths:
            files[path] = _read_file(root, path, max_bytes if path.startswith(FOLDER) else MAX_JSON_BYTES)
            left_bytes -= len(files[path])
            if left_bytes < 0:
                raise BadInput(problem=f"{FOLDER}: must contain at most {MAX_TOTAL_BYTES} bytes.")
    return files


def _open_folder(folder: Path) -> contextlib.AbstractContextManager[int]:
    """Open the folder that the user named, which may be a link."""
    return fs.closing(os.open(folder, fs.READ_DIRECTORY))


@contextlib.contextmanager
def _open_parent(root: int, path: str, *, create: bool = False) -> Generator[int]:
    """Open the folder of a file, following no link. Raises `BadInput` at a link or a file."""
    names = PurePosixPath(path).parts[:-1]
    try:
        parent = fs.open_directories(root, names, create_mode=0o777 if create else None)
    except OSError as problem:
        if problem.errno not in _NOT_A_DIRECTORY:
            raise
        name = escape_unprintable(f"{'/'.join(names)}: {problem.filename}")
        raise BadInput(problem=f"{name} must be a folder, not a link or a file.") from None
    with fs.closing(parent):
        yield parent


def _read_file(root: int, path: str, limit: int) -> bytes:
    """Return the content of a regular file. Raises `BadInput` for anything else, or if it is too large."""
    not_regular = BadInput(problem=f"{escape_unprintable(path)}: must be a regular file.")
    with _open_parent(root, path) as parent:
        try:
            descriptor = fs.open_entry(parent, PurePosixPath(path).name, _READ_FILE)
        except OSError as problem:
            if problem.errno not in _NOT_A_DIRECTORY | {errno.ENXIO}:
                raise
            raise not_regular from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise not_regular
        content = file.read(limit + 1) if status.st_size <= limit else b""
        if max(status.st_size, len(content)) > limit:
            raise BadInput(
                problem=f"{escape_unprintable(path)}: has {status.st_size} bytes; the limit is {limit}."
            )
        return content


# --- write --------------------------------------------------------------------------------------------------


def write(base: Path, directory: str, files: Mapping[str, bytes]) -> None:
    """Write the files whose content changes below base/directory, each atomically."""
    base.mkdir(parents=True, exist_ok=True)
    with _open_folder(base) as root:
        for path, content in files.items():
            full_path = f"{directory}/{path}"
            with _open_parent(root, full_path, create=True) as parent:
                if _has_content(root, full_path, content):
                    continue
                name = PurePosixPath(full_path).name
                with fs.write_atomically(parent, name, mode=0o644, sync=False) as file:
                    file.write(content)


def remove(base: Path, directory: str, paths: Iterable[str]) -> None:
    """Remove files, and the folders that are empty without them."""
    with _open_folder(base) as root:
        for path in paths:
            full_path = f"{directory}/{path}"
            with _open_parent(root, full_path) as parent:
                os.unlink(PurePosixPath(full_path).name, dir_fd=parent)
            for emptied in PurePosixPath(full_path).parents[:-1]:
                with contextlib.suppress(OSError), _open_parent(root, str(emptied)) as parent:
                    os.rmdir(emptied.name, dir_fd=parent)  # fails unless the folder is empty


def find_overwritten(base: Path, directory: str, files: Mapping[str, bytes]) -> tuple[list[str], list[str]]:
    """Return the existing files that writing `files` would change, and existing assets not in `files`."""
    folder = base / directory
    if not folder.is_dir():
        return [], []
    with _open_folder(base) as root, _open_parent(root, f"{directory}/{SPEC}") as parent:  # raises at a link
        existing = scan(folder)
        kept = [path for path in existing if path in files and path != DESCRIPTOR]
        changed = [path for path in kept if not _has_content(parent, path, files[path])]
    return changed, [path for path in existing if path.startswith(FOLDER) and path not in files]


def _has_content(root: int, path: str, content: bytes) -> bool:
    try:
        return _read_file(root, path, len(content)) == content
    except (OSError, BadInput):
        return False
