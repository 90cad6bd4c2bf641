"""`easel canvas watch`: a folder served live while its author edits it, as editors really save. RS-11"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from easel.canvas_folder import files
from easel.canvas_folder import watcher as watching
from easel.canvas_folder.api_client import Server
from easel.canvas_folder.watcher import FolderWatcher, Watch, WatchLimits
from tests.edges.http.live import new_session
from tests.requirements import rule
from tests.support.canvas_folders import (
    PAGE,
    PICTURE,
    SPEC,
    content,
    done,
    easel_at,
    easel_on,
    is_there,
    refusal,
    rpc,
    written,
)
from tests.support.gateway import GatewayClient, Refused
from tests.support.processes import EASEL, EaselProcess, Launcher, wait_until
from tests.support.standstill import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECOND = 1.0
FOR_EVER = 60.0  # seconds; who waits longer has found a hang
TRIES = 10  # on a machine that does other things too, a promise that can be kept is kept now and then
LIMITS = WatchLimits(asset_bytes=1_000_000, request_bytes=1_000_000)


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    with Launcher(tmp_path_factory.mktemp("easel"), settings={"DRAIN_SECONDS": "0.2"}) as started:
        yield started


@pytest.fixture(scope="module")
def server(launcher: Launcher) -> EaselProcess:
    (started,) = launcher.ready(launcher.up())
    return started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What an author begins with: a folder that has the canvas's name."""
    return written(
        tmp_path / new_session(),
        {
            "spec.json": SPEC,
            "state/latest.json": {"service": "api"},
            "assets/index.html": PAGE,
            "assets/index.js": b"1",
        },
    )


class Author:
    """A watched folder whose looks the test makes itself, one by one, with a clock of its own."""

    def __init__(
        self, server: EaselProcess, folder: Path, limits: WatchLimits = LIMITS, *, is_accepted: bool = True
    ) -> None:
        self.said: list[str] = []
        self.clock = 0.0
        self.folder = folder
        [place] = files.find(folder)
        there = Server(server.base_url, server.token)
        self.watch = Watch(
            place, there, limits, self.said.append, is_accepted=is_accepted, now=lambda: self.clock
        )

    def look(self) -> bool:
        self.clock += watching.LOOK_SECONDS
        return self.watch.once()

    def settle(self) -> list[str]:
        """Looks until nothing is left to do; what was said meanwhile."""
        before = len(self.said)
        for _ in range(10):
            self.look()
        return self.said[before:]


@pytest.fixture
def author(server: EaselProcess, folder: Path) -> Author:
    started = Author(server, folder)
    started.watch.start()
    assert started.settle() == []
    started.said.clear()
    return started


def revision(server: EaselProcess, folder: Path) -> int:
    return rpc(server, "canvas.get", canvasId=folder.name)["revision"]


# --- as its users run it --------------------------------------------------------------------------------------------------


def by_renaming(path: Path, text: bytes) -> None:
    """As vim, and what is careful."""
    draft = path.with_name(f".{path.name}.swp")
    draft.write_bytes(text)
    draft.replace(path)


def by_moving_away(path: Path, text: bytes) -> None:
    """As editors that keep a backup: for a moment there is no such file."""
    path.replace(path.with_name(path.name + "~"))
    path.write_bytes(text)


def in_place(path: Path, text: bytes) -> None:
    """Emptied, and filled bit by bit."""
    with path.open("wb", buffering=0) as file:
        for start in range(0, len(text), 7):
            file.write(text[start : start + 7])


@pytest.mark.parametrize("save", [by_renaming, by_moving_away, in_place])
@rule("RS-11", "CV-50")
async def test_a_save_is_heard_in_an_open_canvas_within_a_second(
    launcher: Launcher, server: EaselProcess, folder: Path, save: Callable[[Path, bytes], None]
) -> None:
    watched = launcher.start("watch", (*EASEL, "canvas", "watch", str(folder), "--url", server.base_url), {})
    wait_until(lambda: "Ctrl-C stops it" in watched.said(), within=FOR_EVER, what="it watches")
    assert f"open {server.base_url}/canvas/main/{folder.name}" in watched.said()
    async with GatewayClient.connected(server.base_url, server.token, new_session()) as viewer:
        whole = await viewer.call("canvas.get", canvasId=folder.name)
        await viewer.call("canvas.subscribe", canvasId=folder.name, afterSeq=whole["descriptor"]["lastSeq"])
        took: list[float] = []
        for number in range(TRIES):
            page = f"<h1>{number}</h1>".encode() * 20
            began, watch = time.monotonic(), Stopwatch()
            save(folder / "assets" / "index.html", page)
            saving = time.monotonic() - began
            heard = await viewer.event()
            took.append(watch.seconds)
            assert (heard.event, heard.payload["changedPaths"]) == ("canvas.updated", ["$assets/index.html"])
            shown = await shown_page(viewer, folder)
            if (
                saving > watching.LOOK_SECONDS
            ):  # something held us up in the middle of it, and what lay there was at rest
                while shown != page or heard.payload["revision"] < revision(server, folder):
                    heard = await viewer.event()
                    shown = await shown_page(viewer, folder)
            assert shown == page, "the whole of it, and nothing from in between"
            if took[-1] < SECOND:
                break
        assert took[-1] < SECOND, took
        save(folder / "spec.json", json.dumps({**SPEC, "description": "New"}).encode())
        assert (await viewer.event()).payload["changedPaths"] == ["$spec"]
    wait_until(
        lambda: "spec.json saved; revision" in watched.said(), within=FOR_EVER, what="it says what it did"
    )
    watched.process.send_signal(signal.SIGINT)
    assert watched.process.wait(FOR_EVER) == 0
    assert "Stopped." in watched.said()
    assert "Traceback" not in watched.said()


async def shown_page(viewer: GatewayClient, folder: Path) -> bytes | None:
    """None: there is none just now."""
    with contextlib.suppress(Refused):
        return (await viewer.call("canvas.asset.get", canvasId=folder.name, path="assets/index.html"))[
            "text"
        ].encode()
    return None


def test_a_server_that_is_started_anew_gets_what_was_saved_meanwhile(tmp_path: Path, folder: Path) -> None:
    with Launcher(tmp_path / "easel", settings={"DRAIN_SECONDS": "0.2"}) as launcher:
        (first,) = launcher.ready(launcher.up())
        watched = launcher.start(
            "watch", (*EASEL, "canvas", "watch", str(folder), "--url", first.base_url), {}
        )
        wait_until(lambda: "Ctrl-C stops it" in watched.said(), within=FOR_EVER, what="it watches")
        first.kill()
        written(folder, {"assets/index.html": b"saved while it was away"})
        wait_until(lambda: "is sent when it answers" in watched.said(), within=FOR_EVER, what="it tells")
        (again,) = launcher.ready(launcher.again(first))
        wait_until(lambda: "answers again" in watched.said(), within=FOR_EVER, what="it has sent it")
        assert content(again, folder.name)["assets"]["assets/index.html"] == "saved while it was away"
        assert watched.said().count("is sent when it answers") == 1
        watched.process.terminate()
        assert watched.process.wait(FOR_EVER) == 0
        assert "Traceback" not in watched.said()


def test_what_cannot_be_watched_is_refused_in_one_sentence(
    server: EaselProcess, tmp_path: Path, folder: Path
) -> None:
    assert "is no folder" in refusal(easel_on(server, "canvas", "watch", tmp_path / "nowhere"))
    assert "holds no canvas" in refusal(
        easel_on(server, "canvas", "watch", written(tmp_path / "empty", {"x": b""}))
    )
    assert "easel up" in refusal(easel_at("http://127.0.0.1:1", "token", "canvas", "watch", folder))
    assert "does not know this token" in refusal(
        easel_on(server, "canvas", "watch", folder, "--token", "wrong")
    )
    assert not is_there(server, folder.name)


# --- at the start ---------------------------------------------------------------------------------------------------------


def test_at_the_start_the_folder_becomes_the_canvas(server: EaselProcess, folder: Path) -> None:
    author = Author(server, folder)
    author.watch.start()
    [said] = author.said
    assert said.startswith(
        "made of spec.json, state/latest.json, assets/index.html, assets/index.js; revision 1"
    )
    assert content(server, folder.name) == {
        "title": folder.name,
        "spec": SPEC,
        "state": {"service": "api"},
        "assets": {"assets/index.html": PAGE.decode(), "assets/index.js": "1"},
    }
    again = Author(server, folder)
    again.watch.start()
    assert again.said == []
    assert revision(server, folder) == 1, "what is so already is no change"


def test_people_s_state_outlives_a_start(server: EaselProcess, folder: Path, author: Author) -> None:
    rpc(
        server,
        "canvas.patch",
        canvasId=folder.name,
        statePatch=[{"op": "add", "path": "/service", "value": "theirs"}],
    )
    rpc(server, "canvas.asset.put", canvasId=folder.name, path="assets/stale.css", text="x")
    written(folder, {"assets/index.html": b"new"})
    again = Author(server, folder)
    again.watch.start()
    assert "people's work stays" in again.said[0]
    assert "assets/index.html saved, assets/stale.css removed" in again.said[1]
    found = content(server, folder.name)
    assert found["state"] == {"service": "theirs"}
    assert found["assets"] == {"assets/index.html": "new", "assets/index.js": "1"}


# --- while it is edited ---------------------------------------------------------------------------------------------------


def test_nothing_is_done_while_nothing_changes(
    server: EaselProcess, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    author = Author(server, folder)
    author.watch.start()
    author.settle()

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("nothing changed, and nothing is to be read or asked")

    monkeypatch.setattr(files, "read", never)
    monkeypatch.setattr(Server, "call", never)
    assert [author.look() for _ in range(20)] == [False] * 20


def test_a_folder_is_taken_when_it_is_at_rest(server: EaselProcess, folder: Path, author: Author) -> None:
    before = revision(server, folder)
    for number in range(5):
        written(folder, {"assets/index.html": b"x" * (number + 1)})
        assert not author.look(), "it has changed since the last look"
    assert author.look()
    assert content(server, folder.name)["assets"]["assets/index.html"] == "xxxxx"
    assert revision(server, folder) == before + 1


def test_a_file_that_changes_while_it_is_read_is_nobody_s_version(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, real, page = files.scan(folder), os.fstat, folder / "assets" / "index.html"
    inode = page.stat().st_ino

    def fstat(number: int) -> os.stat_result:
        found = real(number)
        if found.st_ino == inode:
            page.write_bytes(b"written after the first look")
        return found

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(files.Moving):
        files.read(folder, seen, most_bytes=1_000_000)


def test_a_folder_that_changes_while_it_is_read_is_taken_when_it_is_at_rest(
    server: EaselProcess, folder: Path, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a page would be shown without what was saved with it."""
    before, real, reads = revision(server, folder), files.read, 0

    def read(*args: Any, **how: Any) -> Any:
        nonlocal reads
        reads += 1
        found = real(*args, **how)
        if reads == 1:
            written(folder, {"assets/late.js": b"late"})
        return found

    monkeypatch.setattr(files, "read", read)
    written(folder, {"assets/index.html": b"needs late.js"})
    assert not author.look()
    assert not author.look(), "it was read, and had changed"
    assert (reads, revision(server, folder)) == (1, before)
    assert author.settle() == [f"assets/index.html, assets/late.js saved; revision {before + 1}"]


def test_a_folder_that_is_never_at_rest_is_taken_all_the_same(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    looks = 0
    while looks < 30:
        looks += 1
        written(folder, {"assets/log.txt": b"x" * looks})
        if author.look():
            break
    assert looks * watching.LOOK_SECONDS == pytest.approx(
        watching.MAX_WAIT_SECONDS, abs=2 * watching.LOOK_SECONDS
    )
    assert content(server, folder.name)["assets"]["assets/log.txt"] == "x" * looks


def test_a_burst_is_one_change(server: EaselProcess, folder: Path, author: Author) -> None:
    before = revision(server, folder)
    written(
        folder,
        {f"assets/chunk-{n}.js": b"x" for n in range(40)}
        | {"spec.json": {**SPEC, "description": "New"}, "assets/index.html": b"y"},
    )
    [said] = author.settle()
    assert "and 38 more saved" in said
    assert revision(server, folder) == before + 1
    found = content(server, folder.name)
    assert len(found["assets"]) == 42
    assert found["spec"]["description"] == "New"


def test_what_is_deleted_goes(server: EaselProcess, folder: Path, author: Author) -> None:
    (folder / "assets" / "index.js").unlink()
    assert author.settle() == [f"assets/index.js removed; revision {revision(server, folder)}"]
    assert list(content(server, folder.name)["assets"]) == ["assets/index.html"]


def test_a_half_written_spec_is_told_once_and_the_last_good_one_stays(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    good = content(server, folder.name)["spec"]
    written(folder, {"spec.json": b'{"version": 1,\n "actions": {'})
    [said] = author.settle()
    assert said.startswith("spec.json: is not JSON (line 2")
    assert "keeps what it has" in said
    written(folder, {"assets/index.html": b"goes on"})
    [said] = author.settle()
    assert said.startswith("assets/index.html saved")
    assert content(server, folder.name)["spec"] == good
    written(folder, {"spec.json": {**SPEC, "description": "Fixed"}})
    [said] = author.settle()
    assert said.startswith("spec.json saved")
    written(folder, {"spec.json": b""})
    assert "it is empty" in author.settle()[0]
    assert content(server, folder.name)["spec"]["description"] == "Fixed"
    (folder / "spec.json").unlink()
    assert author.settle() == []
    assert content(server, folder.name)["spec"]["description"] == "Fixed"


REFRESH = {"refresh": [{"id": "r", "everyMs": 5000, "action": "look"}]}
ASKING = {
    **SPEC,
    **REFRESH,
    "actions": {"look": {"kind": "tool.call", "tool": "gsv__Clock", "confirm": "always"}},
}


def test_a_spec_that_the_server_refuses_holds_up_nothing_else(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    written(
        folder,
        {
            "spec.json": ASKING,
            "state/latest.json": {"n": 2},
            "assets/index.html": b"goes on",
            "assets/logo.png": PICTURE,
        },
    )
    (folder / "assets" / "index.js").unlink()
    said = author.settle()
    [refused] = [text for text in said if "refresh" in text]
    assert refused.startswith("spec.json: ")
    found = content(server, folder.name)
    assert found["spec"] == SPEC
    assert found["state"] == {"n": 2}
    assert sorted(found["assets"]) == ["assets/index.html", "assets/logo.png"]
    assert found["assets"]["assets/index.html"] == "goes on"
    written(folder, {"assets/index.html": b"and on"})
    [said] = author.settle()
    assert said.startswith("assets/index.html saved"), "what was refused is not told again"
    written(folder, {"spec.json": ASKING})
    assert [text for text in author.settle() if "refresh" in text], "but it is when it is saved again"


def test_an_asset_that_cannot_be_taken_holds_up_nothing_and_removes_nothing(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    (folder / "assets" / "index.js").unlink()
    (folder / "assets" / "index.js").symlink_to("/etc/hostname")
    written(
        folder,
        {
            "assets/index.html": b"goes on",
            "assets/big.bin": b"x" * (LIMITS.asset_bytes + 1),
            "assets/-rf": b"x",
        },
    )
    said = author.settle()
    assert [text.partition(":")[0] for text in said[:3]] == [
        "assets/-rf",
        "assets/big.bin",
        "assets/index.js",
    ]
    assert content(server, folder.name)["assets"] == {"assets/index.html": "goes on", "assets/index.js": "1"}
    for path in ("index.js", "big.bin", "-rf"):
        (folder / "assets" / path).unlink()
    assert "assets/index.js removed" in author.settle()[0]


TOO_LARGE = b"\xff" * 6_000_000  # for the server, and not for who watches
ABOVE = WatchLimits(asset_bytes=20_000_000, request_bytes=20_000_000)


def test_what_the_server_refuses_of_a_new_canvas_holds_up_nothing_else(
    server: EaselProcess, folder: Path
) -> None:
    written(folder, {"assets/big.bin": TOO_LARGE, "assets/logo.png": PICTURE})
    (folder / "state" / "latest.json").unlink()
    author = Author(server, folder, ABOVE)
    author.watch.start()
    [refused] = [text for text in author.said if text.startswith("assets/big.bin")]
    assert "EASEL_MAX_ASSET_BYTES" in refused
    found = content(server, folder.name)
    assert (found["spec"], found["state"]) == (SPEC, SPEC["state"]), (
        "and it begins with the state that its spec declares"
    )
    assert sorted(found["assets"]) == ["assets/index.html", "assets/index.js", "assets/logo.png"]
    author.said.clear()
    assert author.settle() == [], "what was refused is not told again"
    written(folder, {"assets/index.html": b"goes on", "assets/big.bin": b"small"})
    author.settle()
    assert {
        path: content(server, folder.name)["assets"][path] for path in ("assets/index.html", "assets/big.bin")
    } == {
        "assets/index.html": "goes on",
        "assets/big.bin": "small",
    }


def test_a_new_canvas_without_the_spec_that_the_server_refuses_has_all_the_rest(
    server: EaselProcess, folder: Path
) -> None:
    written(
        folder,
        {
            "spec.json": ASKING,
            "descriptor.json": {"canvasId": folder.name, "title": "Cockpit"},
            "assets/big.bin": TOO_LARGE,
        },
    )
    author = Author(server, folder, ABOVE)
    author.watch.start()
    refused = [text for text in author.said if "keeps what it has" in text]
    assert [
        text.startswith(path) for text, path in zip(refused, ("spec.json: ", "assets/big.bin "), strict=True)
    ] == [True, True]
    found = content(server, folder.name)
    assert (found["title"], found["state"]) == ("Cockpit", {"service": "api"})
    assert sorted(found["assets"]) == ["assets/index.html", "assets/index.js"]
    written(folder, {"spec.json": SPEC})
    assert [text for text in author.settle() if "spec.json saved" in text]
    assert content(server, folder.name)["spec"] == SPEC


def test_a_canvas_that_is_made_anew_has_all_but_what_the_server_refuses(
    server: EaselProcess, folder: Path
) -> None:
    author = Author(server, folder, ABOVE)
    author.watch.start()
    written(folder, {"assets/big.bin": TOO_LARGE})
    author.settle()
    rpc(server, "canvas.delete", canvasId=folder.name)
    written(folder, {"assets/index.html": b"new"})
    said = author.settle()
    assert said[0] == "The canvas was deleted; it is made anew."
    assert [text for text in said if text.startswith("assets/big.bin")]
    assert content(server, folder.name)["assets"] == {"assets/index.html": "new", "assets/index.js": "1"}


def test_of_many_canvases_one_with_a_file_too_many_keeps_no_other_from_being_watched(
    server: EaselProcess, tmp_path: Path
) -> None:
    one, two = sorted((new_session(), new_session()))
    for name, path, value in (
        (one, "index.html", PAGE),
        (one, "big.bin", TOO_LARGE),
        (two, "index.html", PAGE),
    ):
        written(tmp_path, {f"agents/main/canvases/{name}/assets/{path}": value})
    said: list[str] = []
    watches = FolderWatcher(
        tmp_path, None, Server(server.base_url, server.token), ABOVE, said.append, is_accepted=True
    )
    assert [place.canvas_id for place in watches.start()] == [one, two]
    assert is_there(server, one)
    assert is_there(server, two)


def test_people_s_state_stays_unless_the_folder_s_was_changed(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    rpc(
        server,
        "canvas.patch",
        canvasId=folder.name,
        statePatch=[{"op": "add", "path": "/typed", "value": "theirs"}],
    )
    written(folder, {"spec.json": {**SPEC, "description": "New"}, "assets/index.html": b"new"})
    author.settle()
    (folder / "state" / "latest.json").touch()
    author.settle()
    assert content(server, folder.name)["state"] == {"service": "api", "typed": "theirs"}
    written(folder, {"state/latest.json": {"service": "web"}})
    assert "state/latest.json saved" in author.settle()[0]
    assert content(server, folder.name)["state"] == {"service": "web"}


def test_assets_that_others_put_there_meanwhile_stay(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    rpc(server, "canvas.asset.put", canvasId=folder.name, path="assets/theirs.css", text="theirs")
    written(folder, {"assets/index.html": b"new", "assets/index.js": b"2"})
    author.settle()
    assert content(server, folder.name)["assets"] == {
        "assets/index.html": "new",
        "assets/index.js": "2",
        "assets/theirs.css": "theirs",
    }


TOGETHER: list[dict[str, Any]] = [
    {"assets/index.html": b"new", "assets/new.css": b"b{}"},
    {"assets/index.html": b"new", "spec.json": {**SPEC, "description": "New"}},
]


@pytest.mark.parametrize("saved", TOGETHER, ids=["two assets", "an asset and the spec"])
def test_an_asset_that_others_changed_meanwhile_is_theirs_until_the_author_saves_it(
    server: EaselProcess, folder: Path, author: Author, saved: dict[str, Any]
) -> None:
    def there() -> str:
        return content(server, folder.name)["assets"]["assets/index.js"]

    written(folder, {"assets/a.css": b"a", "assets/b.css": b"b"})
    author.settle()
    rpc(server, "canvas.asset.put", canvasId=folder.name, path="assets/index.js", text="theirs")
    written(folder, saved)
    said = author.settle()
    assert said[0] == "assets/index.js was changed on the canvas by others and stays so until you save it."
    assert "saved; revision" in said[1]
    assert (there(), content(server, folder.name)["assets"]["assets/index.html"]) == ("theirs", "new")
    written(folder, {"assets/a.css": b"aa", "assets/b.css": b"bb"})
    assert [line for line in author.settle() if "others" in line] == [], "that was told"
    assert there() == "theirs"
    written(folder, {"assets/index.js": b"mine", "assets/a.css": b"aaa"})
    author.settle()
    assert there() == "mine"
    before = revision(server, folder)
    written(folder, {"assets/b.css": b"bbb", "assets/a.css": b"aaaa"})
    assert author.settle() == [f"assets/a.css, assets/b.css saved; revision {before + 1}"], (
        "and all is one change again"
    )


def test_a_save_of_many_files_takes_nothing_back_that_came_in_at_the_last_moment(
    server: EaselProcess, folder: Path, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often: the last try goes file by file."""
    real, times = Server.call, 0

    def call(self: Server, method: str, **params: Any) -> Any:
        nonlocal times
        if method == "canvas.upsert" and "assets" in params:
            times += 1
            rpc(
                server,
                "canvas.asset.put",
                canvasId=folder.name,
                path="assets/index.js",
                text=f"theirs {times}",
            )
        return real(self, method, **params)

    written(folder, {"assets/a.css": b"a"})
    author.settle()
    monkeypatch.setattr(Server, "call", call)
    written(folder, {"assets/index.html": b"new", "assets/a.css": b"aa"})
    author.settle()
    assert times >= 1
    assert content(server, folder.name)["assets"] == {
        "assets/a.css": "aa",
        "assets/index.html": "new",
        "assets/index.js": f"theirs {times}",
    }


def test_whoever_works_alone_has_nothing_read_again(
    server: EaselProcess, folder: Path, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = Server.call, list[str]()

    def call(self: Server, method: str, **params: Any) -> Any:
        asked.append(method)
        return real(self, method, **params)

    written(folder, {"assets/index.html": b"0", "assets/a.css": b"0"})
    author.settle()
    written(folder, {"assets/index.html": b"00", "assets/a.css": b"00"})
    author.settle()
    monkeypatch.setattr(Server, "call", call)
    for number in (b"1", b"2"):
        written(folder, {"assets/index.html": number, "assets/a.css": number})
        author.settle()
    assert "canvas.asset.get" not in asked
    assert asked.count("canvas.upsert") == 2


def test_a_save_of_one_file_in_between_hides_nothing_that_others_changed(
    server: EaselProcess, folder: Path
) -> None:
    """Such a save is two calls, and one of them changes nothing: with somebody else's change the numbers would come out right."""
    author = Author(server, folder, is_accepted=False)
    author.watch.start()
    author.settle()
    for number in (b"0", b"1"):
        written(folder, {"assets/index.html": number, "assets/a.css": number})
        author.settle()
    rpc(server, "canvas.asset.put", canvasId=folder.name, path="assets/index.js", text="theirs")
    written(folder, {"assets/index.html": b"2"})
    author.settle()
    written(folder, {"assets/index.html": b"3", "assets/a.css": b"3"})
    author.settle()
    assert content(server, folder.name)["assets"]["assets/index.js"] == "theirs"


def test_a_title_is_saved_and_another_s_descriptor_is_not(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    written(folder, {"descriptor.json": {"canvasId": folder.name, "title": "Deploy cockpit"}})
    assert "descriptor.json saved" in author.settle()[0]
    assert content(server, folder.name)["title"] == "Deploy cockpit"
    written(folder, {"descriptor.json": {"canvasId": "somebody-else", "title": "No"}})
    assert "somebody-else" in author.settle()[0]
    assert content(server, folder.name)["title"] == "Deploy cockpit"


def test_what_editors_leave_behind_is_neither_sent_nor_removed(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    rpc(server, "canvas.asset.put", canvasId=folder.name, path="assets/notes~", text="an asset of that name")
    written(
        folder,
        {
            "assets/index.html~": b"x",
            "assets/index.html___jb_tmp___": b"x",
            "assets/.index.html.swp": b"x",
            "assets/4.txt": b"y",
        },
    )
    author.settle()
    again = Author(server, folder)
    again.watch.start()
    assert sorted(content(server, folder.name)["assets"]) == [
        "assets/4.txt",
        "assets/index.html",
        "assets/index.js",
        "assets/notes~",
    ]


def test_a_canvas_that_was_deleted_is_made_anew_with_the_next_save(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    rpc(server, "canvas.delete", canvasId=folder.name)
    assert author.settle() == []
    written(folder, {"assets/index.html": b"new"})
    said = author.settle()
    assert said[0] == "The canvas was deleted; it is made anew."
    assert content(server, folder.name)["assets"] == {"assets/index.html": "new", "assets/index.js": "1"}


def test_a_folder_that_goes_away_takes_nothing_with_it(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    before = content(server, folder.name)
    folder.rename(folder.with_name("elsewhere"))
    [said] = author.settle()
    assert "cannot be read" in said
    assert content(server, folder.name) == before
    folder.with_name("elsewhere").rename(folder)
    assert author.settle() == []
    written(folder, {"assets/index.html": b"back"})
    assert author.settle()[0].startswith("assets/index.html saved")


def test_canvases_that_are_made_in_a_watched_folder_are_served_too(
    server: EaselProcess, tmp_path: Path
) -> None:
    said: list[str] = []
    one, two = new_session(), new_session()
    written(tmp_path, {f"agents/main/canvases/{one}/spec.json": SPEC})
    watches = FolderWatcher(
        tmp_path, None, Server(server.base_url, server.token), LIMITS, said.append, is_accepted=True
    )
    assert [place.canvas_id for place in watches.start()] == [one]
    written(tmp_path, {f"agents/ops/canvases/{two}/assets/index.html": b"x"})
    wait_until(
        lambda: watches.once() is None and any(text.startswith(f"{two}: made") for text in said),
        within=FOR_EVER,
        what="it is served",
    )
    assert rpc(server, "canvas.get", canvasId=two)["descriptor"]["agentId"] == "ops"
    assert said[0].startswith(f"{one}: made")


async def test_many_saves_while_people_work_leave_both(
    server: EaselProcess, folder: Path, author: Author
) -> None:
    """Author and people at once: the last page of the one, and every word of the others."""

    async def type_words() -> None:
        async with GatewayClient.connected(server.base_url, server.token, new_session()) as person:
            for number in range(30):
                await person.call(
                    "canvas.patch",
                    canvasId=folder.name,
                    statePatch=[{"op": "add", "path": f"/w{number}", "value": number}],
                )

    typing = asyncio.create_task(type_words())
    for number in range(10):
        written(
            folder,
            {
                "assets/index.html": f"page {number}".encode(),
                "spec.json": {**SPEC, "description": str(number)},
            },
        )
        await asyncio.to_thread(author.settle)
    await typing
    found = content(server, folder.name)
    assert found["assets"]["assets/index.html"] == "page 9"
    assert found["spec"]["description"] == "9"
    assert found["state"] == {"service": "api"} | {f"w{number}": number for number in range(30)}


def test_an_export_into_a_watched_folder_changes_nothing(server: EaselProcess, tmp_path: Path) -> None:
    name = new_session()
    rpc(server, "canvas.create", canvasId=name, spec=SPEC, assets={"assets/index.html": "x"})
    done(easel_on(server, "canvas", "export", name, tmp_path))
    author = Author(server, tmp_path / "agents" / "main" / "canvases" / name)
    author.watch.start()
    rpc(
        server,
        "canvas.patch",
        canvasId=name,
        title="Another",
        statePatch=[{"op": "add", "path": "/n", "value": 1}],
    )
    done(easel_on(server, "canvas", "export", name, tmp_path))
    before = revision(server, author.folder)
    assert author.settle() == []
    assert revision(server, author.folder) == before


# --- who stands for it ----------------------------------------------------------------------------------------------------


def is_accepted(server: EaselProcess, folder: Path) -> bool:
    return rpc(server, "canvas.get", canvasId=folder.name)["accepted"]


@rule("RS-59")
@pytest.mark.parametrize("saved", ["spec.json", "assets/index.html"])
def test_what_is_saved_asks_until_somebody_accepts_it_there(
    server: EaselProcess, folder: Path, saved: str
) -> None:
    """Whoever can write into the folder could otherwise run commands in the name of whoever watches it: an agent with a file tool, too."""
    author = Author(server, folder, is_accepted=False)
    author.watch.start()
    assert not is_accepted(server, folder)
    rpc(server, "canvas.accept", canvasId=folder.name, revision=revision(server, folder))
    assert author.settle() == []
    assert is_accepted(server, folder), "nothing was saved since"
    (folder / saved).write_bytes((folder / saved).read_bytes() + b"\n ")
    if saved == "spec.json":
        (folder / saved).write_text(json.dumps({**SPEC, "title": "Anew"}))
    [said] = author.settle()
    assert f"{saved} saved" in said
    assert not is_accepted(server, folder)


@rule("RS-59")
def test_with_accept_whoever_watches_stands_for_what_is_there_and_what_comes(
    server: EaselProcess, folder: Path
) -> None:
    Author(server, folder, is_accepted=False).watch.start()
    author = Author(server, folder, is_accepted=True)
    author.watch.start()
    assert is_accepted(server, folder), "what lay there already, too"
    (folder / "assets/index.html").write_bytes(b"<p>another</p>")
    assert len(author.settle()) == 1
    assert is_accepted(server, folder)
