"""Canvas folders on disk: find them, detect changes, read and write their files.

Owns the safety of folders that another person may have packed: below the folder that the user named no link
is followed, only regular files are opened, no file is read beyond its limit, and only paths of the layout are
read. Does not know servers, nor the content of the files.
"""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from easel import fs
from easel.core.canvas.assets import ENTRY, FOLDER, MAX_NAMES
from easel.core.canvas.folder import (
    AGENTS,
    CANVASES,
    DESCRIPTOR,
    SPEC,
    STATE,
    Problem,
    escape_unprintable,
    identify_canvas,
)
from easel.errors import BadInput
from easel.ids import CanvasId

MAX_JSON_BYTES = 8_388_608  # of one JSON file; more than any server accepts
MAX_TOTAL_BYTES = 268_435_456  # of one canvas, which is kept in memory
MAX_FILES = 5_000  # of one canvas; more than any server accepts
MAX_CANVASES = 1_000
MAX_READ_ATTEMPTS = 25  # of a folder that is being written to
RETRY_SECONDS = 0.2
EDITOR_SUFFIXES = ("~", "___jb_tmp___", "___jb_old___")  # of temporary files that editors create

_READ_FILE = os.O_RDONLY | os.O_NONBLOCK  # opening a pipe must not wait for its other end
_NOT_A_DIRECTORY = frozenset({errno.ELOOP, errno.ENOTDIR})  # a link, or a file

FileStamp = tuple[int, int, int, int]  # inode, size, time of modification, time of change


class FileChanging(Exception):
    """A file changed while it was read, so that its content is no consistent version."""


@dataclass(frozen=True, slots=True)
class CanvasDir:
    """The folder of one canvas."""

    folder: Path
    agent_id: str
    canvas_id: CanvasId


@dataclass(frozen=True, slots=True)
class Scan:
    """The files of a canvas folder by path, without content. Equal scans mean that nothing was written."""

    stamps: Mapping[str, FileStamp] = field(default_factory=dict[str, FileStamp])
    problems: tuple[Problem, ...] = ()


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
    found = [
        canvas
        for agent in _subfolders(folder / AGENTS)
        if agent_id in (None, agent.name)
        for canvas in _subfolders(agent / CANVASES)
        if _is_canvas(canvas)
    ]
    if len(found) > MAX_CANVASES:
        raise BadInput(
            problem=f"{_display(folder)} must contain at most {MAX_CANVASES} canvases; "
            "name the folder of one canvas."
        )
    return found


def identify(folder: Path, agent_id: str | None = None) -> CanvasDir:
    """Return the agent and the id of a canvas folder: from its location, its descriptor or its name."""
    resolved = folder.resolve()
    try:
        agent, canvas_id = identify_canvas(
            _read_optional(folder, DESCRIPTOR),
            folder=resolved.name,
            location=_location_in_layout(resolved),
            agent_id=agent_id,
        )
    except BadInput as problem:
        raise BadInput(problem=f"{_display(folder)}: {problem.message}") from None
    return CanvasDir(folder, agent, canvas_id)


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


def _location_in_layout(folder: Path) -> tuple[str, str] | None:
    match folder.parts[-4:]:
        case (first, agent, third, canvas) if (first, third) == (AGENTS, CANVASES):
            return agent, canvas
        case _:
            return None


def _read_optional(folder: Path, path: str) -> bytes | None:
    with _open_folder(folder) as root:
        try:
            return _read_file(root, path, MAX_JSON_BYTES)[0]
        except FileNotFoundError:
            return None


def is_editor_file(path: str) -> bool:
    """Return whether an editor created this file beside an asset; it is neither sent nor removed."""
    return path.startswith(FOLDER) and path.endswith(EDITOR_SUFFIXES)


def _display(folder: Path) -> str:
    return escape_unprintable(str(folder))


# --- scan ---------------------------------------------------------------------------------------------------


def scan(folder: Path) -> Scan:
    """Collect the paths and stamps of a canvas's files. Cheap enough for several calls a second."""
    stamps: dict[str, FileStamp] = {}
    problems: list[Problem] = []
    with _open_folder(folder) as root:
        for path in (DESCRIPTOR, SPEC, STATE):
            try:
                with _open_parent(root, path) as parent:
                    status = os.stat(PurePosixPath(path).name, dir_fd=parent, follow_symlinks=False)
                _add_entry(path, status, stamps, problems)
            except FileNotFoundError:
                continue
            except BadInput as problem:
                problems.append(Problem(path, problem.message.removeprefix(f"{path}: ")))
        with contextlib.suppress(FileNotFoundError):
            _scan_assets(root, FOLDER.rstrip("/"), FOLDER, stamps, problems)
    return Scan(stamps, tuple(problems))


def _scan_assets(
    parent: int, name: str, path: str, stamps: dict[str, FileStamp], problems: list[Problem]
) -> None:
    """Add all files below the folder. Names that start with a dot are skipped: they are not assets."""
    try:
        folder = fs.open_entry(parent, name, fs.READ_DIRECTORY)
    except OSError as problem:
        if problem.errno not in _NOT_A_DIRECTORY | {errno.EACCES}:
            raise
        message = (
            "cannot be read (permission denied)."
            if problem.errno == errno.EACCES
            else "must be a folder, not a link or a file."
        )
        problems.append(Problem(path.rstrip("/"), message))
        return
    with fs.closing(folder), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith("."):
                continue
            if len(stamps) + len(problems) >= MAX_FILES:
                raise BadInput(problem=f"{FOLDER} must contain at most {MAX_FILES} files.")
            with contextlib.suppress(FileNotFoundError):  # the entry was removed during the scan
                if not entry.is_dir(follow_symlinks=False):
                    _add_entry(path + entry.name, entry.stat(follow_symlinks=False), stamps, problems)
                elif path.count("/") > MAX_NAMES:
                    problems.append(Problem(path + entry.name, "is nested too deeply."))
                else:
                    _scan_assets(folder, entry.name, f"{path}{entry.name}/", stamps, problems)


def _add_entry(
    path: str, status: os.stat_result, stamps: dict[str, FileStamp], problems: list[Problem]
) -> None:
    if stat.S_ISREG(status.st_mode):
        stamps[path] = _stamp(status)
        return
    kind = (
        "a link"
        if stat.S_ISLNK(status.st_mode)
        else "a folder"
        if stat.S_ISDIR(status.st_mode)
        else "a special file"
    )
    problems.append(Problem(path, f"must be a regular file, not {kind}."))


def _stamp(status: os.stat_result) -> FileStamp:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


# --- read ---------------------------------------------------------------------------------------------------


def read(folder: Path, scanned: Scan, *, max_bytes: int) -> tuple[dict[str, bytes], list[Problem]]:
    """Return the content of the scanned files. Raises `FileChanging` if one has changed since the scan.

    Assets over `max_bytes` are reported as problems.
    """
    files: dict[str, bytes] = {}
    problems = list(scanned.problems)
    total_bytes = 0
    with _open_folder(folder) as root:
        for path, stamp in scanned.stamps.items():
            limit = max_bytes if path.startswith(FOLDER) else MAX_JSON_BYTES
            size = stamp[1]
            if size > limit:
                problems.append(Problem(path, f"has {size} bytes; the limit is {limit}."))
                continue
            total_bytes += size
            if total_bytes > MAX_TOTAL_BYTES:
                raise BadInput(problem=f"{_display(folder)} must contain at most {MAX_TOTAL_BYTES} bytes.")
            try:
                files[path], found = _read_file(root, path, limit)
            except (FileNotFoundError, BadInput):
                raise FileChanging from None
            except PermissionError:
                problems.append(Problem(path, "cannot be read (permission denied)."))
                continue
            if found != stamp:
                raise FileChanging
    return files, problems


def read_settled(folder: Path, *, max_bytes: int) -> tuple[dict[str, bytes], list[Problem]]:
    """Return the content of all files at a moment when none was being written. Raises `BadInput`."""
    for _ in range(MAX_READ_ATTEMPTS):
        scanned = scan(folder)
        with contextlib.suppress(FileChanging):
            found = read(folder, scanned, max_bytes=max_bytes)
            if scan(folder) == scanned:
                return found
        time.sleep(RETRY_SECONDS)
    raise BadInput(
        problem=f"{_display(folder)} is being written to all the time; try again when the writing has ended."
    )


def _open_folder(folder: Path) -> contextlib.AbstractContextManager[int]:
    """Open the folder that the user named, which may be a link."""
    return fs.closing(os.open(folder, fs.READ_DIRECTORY))


@contextlib.contextmanager
def _open_parent(root: int, path: str, *, create: bool = False) -> Generator[int]:
    """Open the folder of a file, following no link. Raises `BadInput` at a link or a file."""
    try:
        parent = fs.open_directories(
            root, PurePosixPath(path).parts[:-1], create_mode=0o777 if create else None
        )
    except OSError as problem:
        if problem.errno not in _NOT_A_DIRECTORY:
            raise
        name = escape_unprintable(str(problem.filename))
        raise BadInput(
            problem=f"{escape_unprintable(path)}: {name} must be a folder, not a link or a file."
        ) from None
    with fs.closing(parent):
        yield parent


def _read_file(root: int, path: str, limit: int) -> tuple[bytes, FileStamp]:
    """Return the content and stamp of a regular file. Raises `FileChanging` if it changes during the read."""
    not_regular = BadInput(problem=f"{escape_unprintable(path)}: must be a regular file.")
    with _open_parent(root, path) as parent:
        try:
            descriptor = fs.open_entry(parent, PurePosixPath(path).name, _READ_FILE)
        except OSError as problem:
            if problem.errno not in _NOT_A_DIRECTORY | {errno.ENXIO}:
                raise
            raise not_regular from None
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise not_regular
        if before.st_size > limit:
            raise BadInput(
                problem=f"{escape_unprintable(path)}: has {before.st_size} bytes; the limit is {limit}."
            )
        content = bytearray()
        while chunk := file.read(limit + 1 - len(content)):
            content += chunk
            if len(content) > limit:
                raise FileChanging
        if _stamp(before) != _stamp(os.fstat(descriptor)):
            raise FileChanging
        return bytes(content), _stamp(before)


# --- write --------------------------------------------------------------------------------------------------


def write(base: Path, directory: str, files: Mapping[str, bytes]) -> list[str]:
    """Write files below base/directory, each atomically. Returns the paths whose content changed."""
    base.mkdir(parents=True, exist_ok=True)
    written: list[str] = []
    with _open_folder(base) as root:
        for path, content in files.items():
            full_path = f"{directory}/{path}"
            with _open_parent(root, full_path, create=True) as parent:
                if _has_content(root, full_path, content):
                    continue
                name = PurePosixPath(full_path).name
                with fs.write_atomically(parent, name, mode=0o644, sync=False) as file:
                    file.write(content)
                written.append(path)
    return written


def remove(base: Path, directory: str, paths: Iterable[str]) -> None:
    """Remove files, and the folders that are empty without them."""
    with _open_folder(base) as root:
        for path in paths:
            full_path = f"{directory}/{path}"
            with _open_parent(root, full_path) as parent:
                os.unlink(PurePosixPath(full_path).name, dir_fd=parent)
            for depth in range(len(PurePosixPath(path).parts) - 1, 0, -1):
                emptied = f"{directory}/" + "/".join(PurePosixPath(path).parts[:depth])
                try:
                    with _open_parent(root, emptied) as parent:
                        os.rmdir(PurePosixPath(emptied).name, dir_fd=parent)
                except OSError:
                    break  # the folder is not empty


def find_overwritten(base: Path, directory: str, files: Mapping[str, bytes]) -> tuple[list[str], list[str]]:
    """Return the existing files that writing `files` would change, and existing assets not in `files`."""
    folder = base / directory
    if not folder.is_dir():
        return [], []
    with _open_folder(base) as root, _open_parent(root, f"{directory}/{SPEC}"):  # raises at a link
        existing = scan(folder).stamps
        changed = [
            path
            for path in existing
            if path in files
            and path != DESCRIPTOR
            and not _has_content(root, f"{directory}/{path}", files[path])
        ]
    return changed, [path for path in existing if path.startswith(FOLDER) and path not in files]


def _has_content(root: int, path: str, content: bytes) -> bool:
    try:
        return _read_file(root, path, len(content))[0] == content
    except (OSError, BadInput, FileChanging):
        return False
