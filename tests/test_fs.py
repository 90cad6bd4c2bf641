"""The path walk that cannot leave a directory, and the atomic write."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from easel import fs
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["openat2", "no openat2", "openat2 forbidden"])
def path_walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Walk paths with `openat2`, and with the fallback for old kernels and for containers that forbid the
    call.
    """
    if request.param == "no openat2":
        monkeypatch.setattr(fs, "_syscall", None)
    if request.param == "openat2 forbidden":
        monkeypatch.setattr(fs, "_syscall", forbidden_syscall)
    return request.param


def forbidden_syscall(*_: object) -> int:
    ctypes.set_errno(errno.EPERM)
    return -1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with files and links, next to a secret that no path may reach."""
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("inside")
    (root / "inner_link").symlink_to("a/b")
    (root / "outer_link").symlink_to("..")
    (root / "absolute_link").symlink_to(tmp_path)
    (root / "magic_link").symlink_to("/proc/self/root")
    return root


@pytest.fixture
def directory(root: Path) -> Iterator[int]:
    with fs.closing(os.open(root, fs.READ_DIRECTORY)) as descriptor:
        yield descriptor


def read(directory: int, path: str, *, follow_symlinks: bool = False) -> bytes:
    with fs.closing(fs.open_beneath(directory, path, os.O_RDONLY, follow_symlinks=follow_symlinks)) as file:
        return os.read(file, 100)


# --- paths --------------------------------------------------------------------------------------------------


@rule("SB-19")
@pytest.mark.usefixtures("path_walk")
def test_path_inside_the_directory_is_opened(directory: int) -> None:
    assert read(directory, "a/b/file") == b"inside"
    with pytest.raises(FileNotFoundError):
        read(directory, "a/missing")
    with pytest.raises(NotADirectoryError):
        read(directory, "a/b/file/below")


@rule("SB-19")
@pytest.mark.usefixtures("path_walk")
@pytest.mark.parametrize("follow_symlinks", [False, True])
@pytest.mark.parametrize(
    "path",
    ["../secret", "a/../../secret", "outer_link/secret", "absolute_link/secret", "magic_link/etc/passwd"],
)
def test_path_out_of_the_directory_is_not_opened(directory: int, path: str, *, follow_symlinks: bool) -> None:
    with pytest.raises((fs.OutsideDirectory, OSError)) as problem:
        read(directory, path, follow_symlinks=follow_symlinks)
    if isinstance(problem.value, OSError):
        assert problem.value.errno == errno.ELOOP


@rule("SB-19")
def test_link_inside_the_directory_is_followed_only_on_request(directory: int, path_walk: str) -> None:
    with pytest.raises(OSError, match="symbolic links"):
        read(directory, "inner_link/file")
    if path_walk == "openat2":
        assert read(directory, "inner_link/file", follow_symlinks=True) == b"inside"
    else:
        with pytest.raises(fs.OutsideDirectory):
            read(directory, "inner_link/file", follow_symlinks=True)


@pytest.mark.usefixtures("path_walk")
def test_descriptors_are_closed_in_a_child_process(directory: int) -> None:
    with fs.closing(fs.open_beneath(directory, "a/b/file", os.O_RDONLY)) as file:
        assert not os.get_inheritable(file)


def test_directories_are_created_with_their_mode(root: Path, directory: int) -> None:
    os.close(fs.open_directories(directory, ["a", "new", "deep"], create_mode=0o700, sync=True))
    assert stat.S_IMODE((root / "a" / "new" / "deep").stat().st_mode) == 0o700


@pytest.mark.parametrize("names", [["a", ".."], ["/"], ["a/b"]])
@pytest.mark.parametrize("create_mode", [None, 0o700])
def test_name_that_is_a_path_is_refused(directory: int, names: list[str], create_mode: int | None) -> None:
    with pytest.raises(fs.OutsideDirectory):
        fs.open_directories(directory, names, create_mode=create_mode)


@pytest.mark.parametrize("name, problem", [("inner_link", errno.ELOOP), ("file", errno.ENOTDIR)])
def test_error_names_the_entry_that_is_not_a_directory(
    root: Path, directory: int, name: str, problem: int
) -> None:
    (root / "file").touch()
    with pytest.raises(OSError, match=name) as error:
        fs.open_directories(directory, [name, "below"])
    assert (error.value.errno, error.value.filename) == (problem, name)


# --- atomic writes ------------------------------------------------------------------------------------------


def test_written_file_is_private_and_durable(
    root: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        assert (root / "new").exists() == synced[-1], "the content must be durable before the name exists"
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with fs.write_atomically(directory, "new") as file:
        file.write(b"content")
    assert (root / "new").read_bytes() == b"content"
    assert stat.S_IMODE((root / "new").stat().st_mode) == 0o600
    assert synced == [False, True]


def test_existing_file_is_replaced_or_kept(root: Path, directory: int) -> None:
    (root / "file").write_text("old")
    with pytest.raises(FileExistsError), fs.write_atomically(directory, "file", replace=False) as file:
        file.write(b"new")
    assert (root / "file").read_text() == "old"
    with fs.write_atomically(directory, "file", sync=False) as file:
        file.write(b"new")
    assert (root / "file").read_text() == "new"
    assert drafts(root) == []


def test_error_while_writing_leaves_the_directory_unchanged(root: Path, directory: int) -> None:
    (root / "file").write_text("old")

    def write_half() -> None:
        with fs.write_atomically(directory, "file") as file:
            file.write(b"half")
            assert drafts(root) != []
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        write_half()
    assert (root / "file").read_text() == "old"
    assert drafts(root) == []


def test_link_is_replaced_and_not_written_through(root: Path, directory: int) -> None:
    (root / "link").symlink_to("../secret")
    with fs.write_atomically(directory, "link") as file:
        file.write(b"new")
    assert not (root / "link").is_symlink()
    assert (root.parent / "secret").read_text() == "secret"


def drafts(root: Path) -> list[str]:
    return [path.name for path in root.iterdir() if path.name.startswith(fs.DRAFT_PREFIX)]
