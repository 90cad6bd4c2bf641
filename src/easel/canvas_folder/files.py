"""Folders of canvases on disk: finding them, seeing what has changed, reading and writing their files.

Owns what makes that safe in a folder that somebody else has packed: below the folder that the user named no link is followed,
nothing but plain files is opened, no file is read beyond its limit, and only what belongs to the layout is looked at. Knows no
server, and of what is in the files only their paths.
"""

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from easel.core.canvas.assets import ENTRY, FOLDER, MAX_NAMES
from easel.core.canvas.folder import AGENTS, CANVASES, DESCRIPTOR, SPEC, STATE, Problem, identity, plain
from easel.errors import BadInput
from easel.ids import CanvasId

MAX_JSON_BYTES = 8_388_608  # of one JSON file: beyond any spec or state that a server takes, spaces and all
MAX_TOTAL_BYTES = 268_435_456  # of one canvas: it is held in memory
MAX_FILES = 5_000  # of one canvas, beyond any server's limit
MAX_CANVASES = 1_000
MAX_SCAN_ATTEMPTS = 25  # at a folder that is being written to
LOOK_AGAIN_SECONDS = 0.2

_FILE = (
    os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)  # a pipe is opened without waiting for its other end
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKED = frozenset(
    {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}
)  # what systems say of a link where none may be

Mark = tuple[int, int, int, int]  # of a file: inode, size, modified, changed


class Moving(Exception):
    """A file changed while it was read: what was read is nobody's version."""


@dataclass(frozen=True, slots=True)
class CanvasDir:
    """The folder of one canvas."""

    folder: Path
    agent_id: str
    canvas_id: CanvasId


@dataclass(frozen=True, slots=True)
class Scan:
    """What lies in a canvas's folder, by its path there, without a look inside. Two equal scans in a row: nobody is writing."""

    marks: Mapping[str, Mark] = field(default_factory=dict[str, Mark])
    problems: tuple[Problem, ...] = ()


# --- finding ------------------------------------------------------------------------------------------------------------


def find(folder: Path, agent_id: str | None = None) -> list[CanvasDir]:
    """The canvases in this folder: it is a canvas's own, or the one above `agents/`."""
    if not folder.is_dir():
        raise BadInput(problem=f"{plain(str(folder))} is no folder.")
    found = [placed(one, agent_id) for one in folders(folder, agent_id)]
    if not found:
        whose = "" if agent_id is None else f" of agent {plain(agent_id)}"
        raise BadInput(
            problem=f"{plain(str(folder))} holds no canvas{whose}: neither {DESCRIPTOR}, {SPEC} or {ENTRY}, "
            f"nor {AGENTS}/AGENT/{CANVASES}/CANVAS with one of them."
        )
    return found


def folders(folder: Path, agent_id: str | None = None) -> list[Path]:
    """The folders of these canvases, found by their names alone."""
    if _is_canvas(folder):
        return [folder]
    found = [
        canvas
        for agent in _inside(folder / AGENTS)
        if agent_id in (None, agent.name)
        for canvas in _inside(agent / CANVASES)
        if _is_canvas(canvas)
    ]
    if len(found) > MAX_CANVASES:
        raise BadInput(
            problem=f"{plain(str(folder))} holds more than {MAX_CANVASES} canvases; take them one by one."
        )
    return found


def placed(folder: Path, agent_id: str | None = None) -> CanvasDir:
    """Whose canvas this folder is and which, as its place says, or its descriptor, or its name."""
    whole = folder.resolve()
    try:
        agent, canvas = identity(
            _read_one(folder, DESCRIPTOR), folder=whole.name, place=_in_layout(whole), agent_id=agent_id
        )
    except BadInput as problem:
        raise BadInput(problem=f"{plain(str(folder))}: {problem.message}") from None
    return CanvasDir(folder, agent, canvas)


def _is_canvas(folder: Path) -> bool:
    return any((folder / name).exists() or (folder / name).is_symlink() for name in (DESCRIPTOR, SPEC, ENTRY))


def _inside(folder: Path) -> list[Path]:
    """Those with plain names, links not followed."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(
        one
        for one in folder.iterdir()
        if not one.name.startswith(".") and not one.is_symlink() and one.is_dir()
    )


def _in_layout(folder: Path) -> tuple[str, str] | None:
    match folder.parts[-4:]:
        case (first, agent, third, canvas) if (first, third) == (AGENTS, CANVASES):
            return agent, canvas
        case _:
            return None


def _read_one(folder: Path, path: str) -> bytes | None:
    """One file by itself; None if there is none."""
    with _opened(folder) as root:
        try:
            return _read_below(root, path, MAX_JSON_BYTES)[0]
        except FileNotFoundError:
            return None


# --- seeing -------------------------------------------------------------------------------------------------------------


def scan(folder: Path) -> Scan:
    """Cheap enough to be done all the time: names and times of what the layout knows, and nothing else is looked at."""
    marks: dict[str, Mark] = {}
    problems: list[Problem] = []
    with _opened(folder) as root:
        for path in (DESCRIPTOR, SPEC, STATE):
            try:
                _note(path, _stat_below(root, path), marks, problems)
            except FileNotFoundError:
                continue
            except BadInput as problem:
                problems.append(Problem(path, problem.message.removeprefix(f"{path}: ")))
        with contextlib.suppress(FileNotFoundError):
            _walk(root, FOLDER.rstrip("/"), FOLDER, marks, problems)
    return Scan(marks, tuple(problems))


def _walk(above: int, name: str, path: str, marks: dict[str, Mark], problems: list[Problem]) -> None:
    """All files below; names that begin with a dot are an editor's or a system's own, and never an asset's."""
    try:
        here = os.open(name, _DIRECTORY, dir_fd=above)
    except OSError as problem:
        if problem.errno not in _LINKED | {errno.EACCES}:
            raise
        says = (
            "may not be read."
            if problem.errno == errno.EACCES
            else "is no folder but a link or a file; it is not followed."
        )
        problems.append(Problem(path.rstrip("/"), says))
        return
    try:
        with os.scandir(here) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name.startswith("."):
                    continue
                _check_room(len(marks) + len(problems))
                if not entry.is_dir(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):  # gone already
                        _note(path + entry.name, entry.stat(follow_symlinks=False), marks, problems)
                elif path.count("/") > MAX_NAMES:
                    problems.append(Problem(path + entry.name, "lies too deep."))
                else:
                    with contextlib.suppress(FileNotFoundError):
                        _walk(here, entry.name, f"{path}{entry.name}/", marks, problems)
    finally:
        os.close(here)


def _note(path: str, found: os.stat_result, marks: dict[str, Mark], problems: list[Problem]) -> None:
    if stat.S_ISREG(found.st_mode):
        marks[path] = _mark(found)
    else:
        what = (
            "a link"
            if stat.S_ISLNK(found.st_mode)
            else "a folder"
            if stat.S_ISDIR(found.st_mode)
            else "something else"
        )
        problems.append(Problem(path, f"is no plain file but {what}."))


def _check_room(count: int) -> None:
    if count >= MAX_FILES:
        raise BadInput(problem=f"There are more than {MAX_FILES} files in {FOLDER}; no canvas has so many.")


def _mark(found: os.stat_result) -> Mark:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


# --- reading ------------------------------------------------------------------------------------------------------------


def read(folder: Path, seen: Scan, *, most_bytes: int) -> tuple[dict[str, bytes], list[Problem]]:
    """What these files hold, all of the moment of the scan; `Moving` if that moment has passed. What is too large is not read."""
    files: dict[str, bytes] = {}
    problems = list(seen.problems)
    room = MAX_TOTAL_BYTES
    with _opened(folder) as root:
        for path, mark in seen.marks.items():
            limit = most_bytes if path.startswith(FOLDER) else MAX_JSON_BYTES
            if mark[1] > limit:
                problems.append(Problem(path, f"has {mark[1]} bytes; the limit is {limit}."))
                continue
            room -= mark[1]
            if room < 0:
                raise BadInput(problem=f"{plain(str(folder))} holds more than {MAX_TOTAL_BYTES} bytes.")
            try:
                files[path], found = _read_below(root, path, limit)
            except (FileNotFoundError, BadInput):
                raise Moving from None
            except PermissionError:
                problems.append(Problem(path, "may not be read."))
                continue
            if found != mark:
                raise Moving
    return files, problems


def read_settled(folder: Path, *, most_bytes: int) -> tuple[dict[str, bytes], list[Problem]]:
    """The same, of a moment at which nobody was writing."""
    for _ in range(MAX_SCAN_ATTEMPTS):
        seen = scan(folder)
        try:
            found = read(folder, seen, most_bytes=most_bytes)
        except Moving:
            time.sleep(LOOK_AGAIN_SECONDS)
            continue
        if scan(folder) == seen:
            return found
        time.sleep(LOOK_AGAIN_SECONDS)
    raise BadInput(
        problem=f"{plain(str(folder))} is being written to all the time; try again when it is quiet."
    )


@contextlib.contextmanager
def _opened(folder: Path) -> Generator[int]:
    """The folder that the user named, which may be a link: it is the user's."""
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield root
    finally:
        os.close(root)


@contextlib.contextmanager
def _parent(root: int, path: str, *, make: bool = False) -> Generator[int]:
    """The folder that a path ends in, reached name by name, so that no link on the way is followed."""
    here = os.dup(root)
    try:
        for name in PurePosixPath(path).parts[:-1]:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=here)
            try:
                below = os.open(name, _DIRECTORY, dir_fd=here)
            except OSError as problem:
                if problem.errno not in _LINKED:
                    raise
                raise BadInput(
                    problem=f"{plain(path)}: {plain(name)} is no folder but a link or a file; it is not followed."
                ) from None
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _stat_below(root: int, path: str) -> os.stat_result:
    with _parent(root, path) as folder:
        return os.stat(PurePosixPath(path).name, dir_fd=folder, follow_symlinks=False)


def _read_below(root: int, path: str, limit: int) -> tuple[bytes, Mark]:
    """A plain file's content and its mark, which was the same before and after."""
    with _parent(root, path) as folder:
        try:
            number = os.open(PurePosixPath(path).name, _FILE, dir_fd=folder)
        except OSError as problem:
            if problem.errno not in _LINKED | {errno.ENXIO}:
                raise
            raise BadInput(problem=f"{plain(path)}: is no plain file.") from None
    with open(number, "rb", buffering=0) as file:  # noqa: PTH123 - by its number: Path knows none
        before = os.fstat(number)
        if not stat.S_ISREG(before.st_mode):
            raise BadInput(problem=f"{plain(path)}: is no plain file.")
        if before.st_size > limit:
            raise BadInput(problem=f"{plain(path)}: has {before.st_size} bytes; the limit is {limit}.")
        content = bytearray()
        while chunk := file.read(limit + 1 - len(content)):
            content += chunk
            if len(content) > limit:
                raise Moving
        if _mark(before) != _mark(os.fstat(number)):
            raise Moving
        return bytes(content), _mark(before)


# --- writing ------------------------------------------------------------------------------------------------------------


def write(base: Path, place: str, files: Mapping[str, bytes]) -> list[str]:
    """These files below base/place, each whole or not at all; those that are so already are left alone. The paths of the others."""
    base.mkdir(parents=True, exist_ok=True)
    written: list[str] = []
    with _opened(base) as root:
        for path, content in files.items():
            full = f"{place}/{path}"
            with _parent(root, full, make=True) as folder:
                name = PurePosixPath(full).name
                if _holds(root, full, content):
                    continue
                draft = f".easel-{secrets.token_hex(8)}"
                try:
                    number = os.open(
                        draft,
                        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                        0o644,
                        dir_fd=folder,
                    )
                    with open(number, "wb") as file:  # noqa: PTH123
                        file.write(content)
                    os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
                except BaseException:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(draft, dir_fd=folder)
                    raise
                written.append(path)
    return written


def remove(base: Path, place: str, paths: Iterable[str]) -> None:
    """These files, and the folders that are empty without them."""
    with _opened(base) as root:
        for path in paths:
            full = f"{place}/{path}"
            with _parent(root, full) as folder:
                os.unlink(PurePosixPath(full).name, dir_fd=folder)
            for depth in range(len(PurePosixPath(path).parts) - 1, 0, -1):
                emptied = f"{place}/" + "/".join(PurePosixPath(path).parts[:depth])
                try:
                    with _parent(root, emptied) as folder:
                        os.rmdir(PurePosixPath(emptied).name, dir_fd=folder)
                except OSError:
                    break  # something else lies in it


def _holds(root: int, path: str, content: bytes) -> bool:
    try:
        return _read_below(root, path, len(content))[0] == content
    except (OSError, BadInput, Moving):
        return False


def replaced(base: Path, place: str, files: Mapping[str, bytes]) -> tuple[list[str], list[str]]:
    """What writing these would cost: files of the author's that hold something else now, and assets that are not among them."""
    folder = base / place
    if not folder.is_dir():
        return [], []
    with _opened(base) as root, _parent(root, f"{place}/{SPEC}"):  # no link on the way
        there = scan(folder)
        other = [
            path
            for path in there.marks
            if path in files and path != DESCRIPTOR and not _holds(root, f"{place}/{path}", files[path])
        ]
    return other, [path for path in there.marks if path.startswith(FOLDER) and path not in files]
