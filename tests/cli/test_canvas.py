"""`easel canvas export | import` as their users meet them: a real server, real folders, hostile ones too. CV-12, RS-10, RS-11"""

from __future__ import annotations

import base64
import http.server
import json
import os
import pty
import re
import select
import stat
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest

from easel.canvas_folder import files
from easel.canvas_folder.sync import steps
from easel.core.canvas.folder import FolderCanvas
from easel.ids import CanvasId
from tests.cli.commands import TIMEOUT_SECONDS, assert_refused, help_of, run_easel
from tests.edges.http.live import new_session
from tests.requirements import case, rule
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
    tree,
    written,
)
from tests.support.postgres import create_database, drop_database
from tests.support.processes import EASEL, ROOT, EaselProcess, Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOBODY = "http://127.0.0.1:1"
BODY_BYTES = 65_536  # of the server here, so that "too large" is small


def launched(folder: Path, url: str = "") -> Iterator[EaselProcess]:
    with Launcher(folder, url, {"DRAIN_SECONDS": "0.2", "MAX_BODY_BYTES": str(BODY_BYTES)}) as launcher:
        (started,) = launcher.ready(launcher.up())
        yield started


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EaselProcess]:
    yield from launched(tmp_path_factory.mktemp("easel"))


@pytest.fixture(scope="module")
def on_postgres(tmp_path_factory: pytest.TempPathFactory, postgres: str) -> Iterator[EaselProcess]:
    url = create_database(postgres)
    yield from launched(tmp_path_factory.mktemp("easel"), url)
    drop_database(postgres, url.rpartition("/")[2])


@pytest.fixture(params=["server", "on_postgres"])
def either(request: pytest.FixtureRequest) -> EaselProcess:
    return request.getfixturevalue(request.param)


@pytest.fixture
def canvas(server: EaselProcess) -> str:
    return made(server)


def made(server: EaselProcess) -> str:
    """A canvas with a bit of everything: a page, bytes that are no text, something heavy in its state, and a pressed button."""
    name = new_session()
    heavy = base64.b64encode(PICTURE * 2).decode()
    rpc(
        server,
        "canvas.create",
        canvasId=name,
        title="Deploy cockpit",
        ownerSessionKey="agent:main:ops",
        spec=SPEC,
        state={"service": "api", "z": 1, "a": [1.5, True, None, "é"], "picture": heavy},
        assets={"assets/index.html": PAGE.decode(), "assets/index.js": ""},
    )
    rpc(
        server,
        "canvas.asset.put",
        canvasId=name,
        path="assets/img/logo.png",
        base64=base64.b64encode(PICTURE).decode(),
    )
    assert rpc(server, "canvas.action", canvasId=name, actionId="look")["status"] == "completed"
    return name


def place(root: Path, canvas_id: str, agent_id: str = "main") -> Path:
    return root / "agents" / agent_id / "canvases" / canvas_id


# --- help and refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["export", "import", "watch"])
def test_each_verb_explains_itself_with_an_example(verb: str) -> None:
    text = help_of("canvas", verb)
    assert re.search(rf"Example: .*easel canvas {verb}", text), text
    assert {"--agent", "--url", "--token", "--data"} <= set(text.split())
    assert verb in help_of("canvas")
    assert "canvas" in help_of()


def test_without_a_server_it_says_how_to_start_one(tmp_path: Path) -> None:
    sentence = assert_refused(
        run_easel("canvas", "export", "x", str(tmp_path), PORT="1", TOKEN="t"), "easel up", "--url"
    )
    assert "listens" in sentence


def test_a_wrong_token_is_told(server: EaselProcess, tmp_path: Path, canvas: str) -> None:
    outcome = easel_on(server, "canvas", "export", canvas, tmp_path, "--token", "wrong-token")
    assert "does not know this token" in refusal(outcome)
    assert list(tmp_path.iterdir()) == []


def test_the_owner_needs_no_token_beside_their_data_folder(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "owner-token").write_text(server.token + "\n")
    where = ("--url", server.base_url, "--data", str(tmp_path / "data"))
    assert run_easel("canvas", "export", canvas, str(tmp_path / "out"), *where).returncode == 0
    assert_refused(
        run_easel(
            "canvas", "export", canvas, str(tmp_path / "out"), "--url", server.base_url, DATA=str(tmp_path)
        ),
        "owner-token",
        "EASEL_TOKEN",
    )


def test_the_owner_s_token_is_told_to_no_other_machine(tmp_path: Path) -> None:
    (tmp_path / "owner-token").write_text("the-owner-s-own-token\n")
    for url in ("http://easel.example.org", "https://10.1.2.3:8800", "http://127.0.0.1.example.org"):
        assert_refused(
            run_easel("canvas", "export", "x", str(tmp_path / "out"), "--url", url, DATA=str(tmp_path)),
            "EASEL_TOKEN",
            "another machine",
        )


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "127.0.0.1:8800", "http://x/path", "http://[", "http://u:p@x", "http://x:0"]
)
def test_an_address_that_is_none_is_told(url: str, tmp_path: Path) -> None:
    assert "--url" in assert_refused(
        run_easel("canvas", "export", "x", str(tmp_path), "--url", url, TOKEN="t")
    )


class Stranger(http.server.BaseHTTPRequestHandler):
    """A web server that is no Easel."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(302)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(b"<html>Moved</html>")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def test_a_server_that_is_no_easel_is_told_and_not_followed(tmp_path: Path) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{stranger.server_port}"
        assert_refused(
            run_easel("canvas", "export", "x", str(tmp_path), "--url", url, TOKEN="t"),
            "not as an Easel does",
            "302",
        )
        stranger.shutdown()


def test_a_canvas_that_is_not_there_is_told(server: EaselProcess, tmp_path: Path) -> None:
    assert "no canvas nothing-here" in refusal(easel_on(server, "canvas", "export", "nothing-here", tmp_path))
    assert list(tmp_path.iterdir()) == []


# --- export ---------------------------------------------------------------------------------------------------------------


@rule("CV-12", "RS-11", "CV-14", "CV-48")
def test_export_writes_exactly_the_layout(server: EaselProcess, tmp_path: Path, canvas: str) -> None:
    said = done(easel_on(server, "canvas", "export", canvas, tmp_path))
    whole = rpc(server, "canvas.get", canvasId=canvas)
    assert f"Wrote {canvas}, revision {whole['revision']}" in said
    assert "3 assets, 1 record of actions" in said
    found = tree(tmp_path)
    [record] = rpc(server, "canvas.records", canvasId=canvas)["records"]
    event = f"events/{record['askedAt']}-{record['eventId']}.json"
    mine = {
        "descriptor.json",
        "spec.json",
        "state/latest.json",
        "assets/index.html",
        "assets/index.js",
        "assets/img/logo.png",
        event,
    }
    assert set(found) == {f"agents/main/canvases/{canvas}/{path}" for path in mine}
    here = tree(place(tmp_path, canvas))
    assert here["assets/index.html"] == PAGE
    assert here["assets/img/logo.png"] == PICTURE
    assert json.loads(here["spec.json"]) == whole["spec"]
    assert json.loads(here[event]) == record
    state = json.loads(here["state/latest.json"])
    assert state["picture"] == base64.b64encode(PICTURE * 2).decode(), (
        "the value itself, not a mark that leads to this server"
    )
    assert {**whole["state"], "picture": ""} == {**state, "picture": ""}
    assert json.loads(here["descriptor.json"]) == {
        name: value for name, value in whole["descriptor"].items() if name != "lastSeq"
    }


def test_no_more_records_than_asked_for_are_written(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    for _ in range(3):
        rpc(server, "canvas.action", canvasId=canvas, actionId="look")
    assert "2 records of actions" in done(
        easel_on(server, "canvas", "export", canvas, tmp_path, "--events", "2")
    )
    newest = [one["eventId"] for one in rpc(server, "canvas.records", canvasId=canvas, limit=2)["records"]]
    assert sorted(
        path.stem.partition("-")[2] for path in (place(tmp_path, canvas) / "events").iterdir()
    ) == sorted(newest)
    done(easel_on(server, "canvas", "export", canvas, tmp_path / "none", "--events", "0"))
    assert not (place(tmp_path / "none", canvas) / "events").exists()


def _written_when(path: Path) -> tuple[int, int]:
    """Not when it was read last."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


def test_a_second_export_makes_the_folder_what_the_canvas_is_now_and_leaves_what_is_not_its_own(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    done(easel_on(server, "canvas", "export", canvas, tmp_path))
    here = place(tmp_path, canvas)
    written(here, {"README.md": b"mine", "assets/.notes": b"mine", ".git/config": b"mine"})
    unchanged = _written_when(here / "assets" / "index.html")
    rpc(server, "canvas.asset.delete", canvasId=canvas, path="assets/img/logo.png")
    rpc(server, "canvas.patch", canvasId=canvas, title="Another")
    said = done(easel_on(server, "canvas", "export", canvas, tmp_path))
    assert "Removed assets/img/logo.png" in said
    assert not (here / "assets" / "img").exists()
    assert json.loads((here / "descriptor.json").read_bytes())["title"] == "Another"
    assert _written_when(here / "assets" / "index.html") == unchanged, "what is so already is not written"
    assert all(
        (here / path).read_bytes() == b"mine" for path in ("README.md", "assets/.notes", ".git/config")
    )
    assert [path.name for path in here.rglob(".easel-*")] == []


@rule("CV-47")
def test_export_follows_no_link_out_of_its_folder(server: EaselProcess, tmp_path: Path, canvas: str) -> None:
    outside = written(tmp_path / "outside", {"victim": b"precious"})
    here = place(tmp_path / "out", canvas)
    (here / "state").mkdir(parents=True)
    (here / "spec.json").symlink_to(outside / "victim")
    done(easel_on(server, "canvas", "export", canvas, tmp_path / "out"))
    assert not (here / "spec.json").is_symlink()
    assert (outside / "victim").read_bytes() == b"precious"
    other = place(tmp_path / "linked", canvas)
    other.mkdir(parents=True)
    (other / "assets").symlink_to(outside)
    assert "link" in refusal(easel_on(server, "canvas", "export", canvas, tmp_path / "linked"))
    assert tree(outside) == {"victim": b"precious"}


def test_a_person_is_asked_before_their_work_is_written_over(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    done(easel_on(server, "canvas", "export", canvas, tmp_path))
    written(place(tmp_path, canvas), {"assets/index.html": b"hours of work"})
    for answer, is_kept in (("n\n", True), ("y\n", False)):
        leader, follower = pty.openpty()
        command = [
            *EASEL,
            "canvas",
            "export",
            canvas,
            str(tmp_path),
            "--url",
            server.base_url,
            "--token",
            server.token,
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "dumb"}
        asking = subprocess.Popen(
            command, stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True
        )
        os.close(follower)
        said = b""
        while b"[y/N]" not in said:
            assert select.select([leader], [], [], TIMEOUT_SECONDS)[0], f"it says nothing more than {said!r}"
            said += os.read(leader, 4096)
        os.write(leader, answer.encode())
        assert asking.wait(TIMEOUT_SECONDS) == (1 if is_kept else 0)
        os.close(leader)
        assert b"assets/index.html" in said
        assert (
            (place(tmp_path, canvas) / "assets" / "index.html").read_bytes() == b"hours of work"
        ) is is_kept


# --- there and back -------------------------------------------------------------------------------------------------------


@rule("RS-11", "CV-12")
def test_export_import_export_gives_the_same_bytes(either: EaselProcess, tmp_path: Path) -> None:
    canvas = made(either)
    done(easel_on(either, "canvas", "export", canvas, tmp_path / "one"))
    revision = rpc(either, "canvas.get", canvasId=canvas)["revision"]
    assert "nothing to do" in done(easel_on(either, "canvas", "import", tmp_path / "one"))
    assert rpc(either, "canvas.get", canvasId=canvas)["revision"] == revision, (
        "what is so already is no change"
    )
    done(easel_on(either, "canvas", "export", canvas, tmp_path / "two"))
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


OF_A_PLACE = ("createdAt", "updatedAt", "revision")  # of where it is stored: there it is new. CV-15


@rule("RS-11", "CV-15", "CV-48")
def test_in_another_place_it_is_the_same_but_for_when_it_was_stored_there(
    either: EaselProcess, tmp_path: Path
) -> None:
    canvas = made(either)
    done(easel_on(either, "canvas", "export", canvas, tmp_path / "one"))
    rpc(either, "canvas.delete", canvasId=canvas)
    assert f"{canvas}: made of" in done(easel_on(either, "canvas", "import", tmp_path / "one"))
    done(easel_on(either, "canvas", "export", canvas, tmp_path / "two"))
    one, two = tree(place(tmp_path / "one", canvas)), tree(place(tmp_path / "two", canvas))
    before, after = json.loads(one.pop("descriptor.json")), json.loads(two.pop("descriptor.json"))
    assert {name: value for name, value in before.items() if name not in OF_A_PLACE} == {
        name: value for name, value in after.items() if name not in OF_A_PLACE
    }
    records = [path for path in one if path.startswith("events/")]
    assert len(records) == 1
    assert {path: value for path, value in one.items() if path not in records} == two, (
        "records prove what happened elsewhere"
    )


@rule("RS-10", "CV-12")
def test_the_server_keeps_assets_under_the_same_layout(server: EaselProcess, canvas: str) -> None:
    blobs = server.log.parent / "data" / "blobs"
    mine = [
        path
        for path in blobs.rglob("*")
        if path.is_file() and f"/agents/main/canvases/{canvas}/assets/" in str(path)
    ]
    assert {path.name for path in mine} == {"index.html", "index.js", "logo.png"}


# --- import ---------------------------------------------------------------------------------------------------------------


@rule("RS-59", "RS-13")
def test_what_a_stranger_packed_stands_for_nobody_before_a_person_accepts_it(
    server: EaselProcess, tmp_path: Path
) -> None:
    name = new_session()
    folder = place(tmp_path, name)
    (folder / "assets").mkdir(parents=True)
    acts = {
        "kind": "tool.call",
        "tool": "local__Write",
        "args": {"path": "pwned", "content": "x"},
        "confirm": "never",
    }
    sends = {"kind": "session.send", "message": "hi", "confirm": "never"}
    spec: dict[str, Any] = {
        "version": 1,
        "toolPolicy": {"allow": ["local__Write"]},
        "actions": {"go": acts, "say": sends},
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    (folder / "assets" / "index.html").write_text("<p>")

    def imported(*more: str) -> str:
        return done(easel_on(server, "canvas", "import", tmp_path, *more))

    def asks() -> list[str]:
        return [
            rpc(server, "canvas.action", canvasId=name, actionId=action)["status"]
            for action in spec["actions"]
        ]

    assert "accept it there" in imported()
    assert not rpc(server, "canvas.get", canvasId=name)["accepted"]
    assert asks() == ["needs_confirmation"] * 2
    rpc(server, "canvas.accept", canvasId=name, revision=rpc(server, "canvas.get", canvasId=name)["revision"])
    assert "nothing to do" in imported(), "what is so already takes nothing away"
    assert asks() == ["completed"] * 2
    (folder / "assets" / "index.html").write_text("<script>gsvCanvas.runAction('go')</script>")
    imported()
    assert asks() == ["needs_confirmation"] * 2, "a page presses buttons too"
    (folder / "assets" / "index.html").write_text("<p>mine")
    assert "accept it there" not in imported("--accept")
    assert asks() == ["completed"] * 2


@rule("RS-11")
def test_import_takes_a_canvas_s_own_folder_and_the_one_above_agents(
    server: EaselProcess, tmp_path: Path
) -> None:
    one, two, three = new_session(), new_session(), new_session()
    for name, agent in ((one, "main"), (two, "main"), (three, "ops")):
        written(place(tmp_path, name, agent), {"spec.json": SPEC, "assets/index.html": PAGE})
    assert f"{one}: made" in done(easel_on(server, "canvas", "import", place(tmp_path, one)))
    assert not is_there(server, two)
    assert f"{three}: made" in done(easel_on(server, "canvas", "import", tmp_path, "--agent", "ops"))
    assert not is_there(server, two)
    said = done(easel_on(server, "canvas", "import", tmp_path))
    assert f"{one}: is up to date" in said
    assert f"{two}: made" in said
    assert rpc(server, "canvas.get", canvasId=three)["descriptor"]["agentId"] == "ops"


def test_a_folder_with_a_page_alone_becomes_a_canvas_of_its_name(
    server: EaselProcess, tmp_path: Path
) -> None:
    name = new_session()
    folder = written(tmp_path / name, {"assets/index.html": PAGE})
    said = done(easel_on(server, "canvas", "import", folder, "--agent", "ops"))
    assert f"Open {server.base_url}/canvas/ops/{name}" in said
    assert content(server, name) == {
        "title": name,
        "spec": {"version": 1, "mode": "html"},
        "state": {},
        "assets": {"assets/index.html": PAGE.decode()},
    }


def test_what_the_folder_does_not_speak_of_stays_and_assets_are_those_that_it_has(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    before = content(server, canvas)
    folder = written(
        tmp_path / canvas, {"spec.json": {**SPEC, "description": "New"}, "assets/other.css": b"x"}
    )
    said = done(easel_on(server, "canvas", "import", folder))
    assert "spec.json, assets/other.css saved" in said
    assert "assets/index.js" in said.partition("saved")[2]
    after = content(server, canvas)
    assert after == {**before, "spec": {**SPEC, "description": "New"}, "assets": {"assets/other.css": "x"}}


def test_the_state_of_the_folder_replaces_that_of_the_canvas(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    done(easel_on(server, "canvas", "export", canvas, tmp_path))
    rpc(
        server,
        "canvas.patch",
        canvasId=canvas,
        statePatch=[{"op": "add", "path": "/service", "value": "broken"}],
    )
    assert "state/latest.json saved" in done(easel_on(server, "canvas", "import", tmp_path))
    assert content(server, canvas)["state"]["service"] == "api"


def test_a_canvas_stays_its_agent_s(server: EaselProcess, tmp_path: Path, canvas: str) -> None:
    folder = written(tmp_path / canvas, {"spec.json": SPEC})
    assert "agent main's, and not ops's" in refusal(
        easel_on(server, "canvas", "import", folder, "--agent", "ops")
    )


@rule("RS-11")
@pytest.mark.parametrize("is_new", [False, True], ids=["there already", "new"])
def test_nothing_is_half_imported(server: EaselProcess, tmp_path: Path, is_new: bool) -> None:
    """The server refuses the last file, after others were sent: what they replaced is there again."""
    canvas = new_session() if is_new else made(server)
    before = None if is_new else content(server, canvas)
    folder = written(
        tmp_path / canvas,
        {
            "spec.json": {**SPEC, "description": "Never"},
            "state/latest.json": {"never": True},
            "assets/index.html": b"never",
            "assets/img/logo.png": b"\xff never",
            "assets/zz.bin": b"\xff" * (BODY_BYTES * 40 if is_new else BODY_BYTES),
        },
    )
    sentence = refusal(easel_on(server, "canvas", "import", folder))
    assert "assets/zz.bin: " in sentence
    assert str(BODY_BYTES) in sentence
    if before is None:
        assert not is_there(server, canvas)
    else:
        assert content(server, canvas) == before


def test_a_spec_that_the_server_refuses_leaves_everything_as_it_was(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    before = content(server, canvas)
    needs_consent = {
        **SPEC,
        "actions": {"look": {"kind": "tool.call", "tool": "gsv__Clock", "confirm": "always"}},
        "refresh": [{"id": "r", "everyMs": 5000, "action": "look"}],
    }
    folder = written(
        tmp_path / canvas,
        {"spec.json": needs_consent, "assets/index.html": b"never", "assets/x.bin": b"\xff"},
    )
    assert "spec.json" in refusal(easel_on(server, "canvas", "import", folder))
    assert content(server, canvas) == before


def test_what_fits_in_one_request_is_one_change(server: EaselProcess, tmp_path: Path, canvas: str) -> None:
    """Bytes that are no text, too."""
    revision = rpc(server, "canvas.get", canvasId=canvas)["revision"]
    pictures = {"assets/img/logo.png": PICTURE, "assets/img/more.png": PICTURE[::-1]}
    parts = {
        "spec.json": {**SPEC, "description": "x"},
        "state/latest.json": {"n": 1},
        "assets/index.html": b"new",
        **pictures,
    }
    done(easel_on(server, "canvas", "import", written(tmp_path / canvas, parts)))
    assert rpc(server, "canvas.get", canvasId=canvas)["revision"] == revision + 1
    assert content(server, canvas)["assets"] == {
        "assets/index.html": "new",
        **{p: base64.b64encode(b).decode() for p, b in pictures.items()},
    }


def test_what_does_not_fit_in_one_request_goes_in_several(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    """The server's requests hold less than the command's own settings say."""
    texts = {f"assets/{n}.txt": b"x" * (BODY_BYTES // 2) for n in range(4)}
    folder = written(tmp_path / canvas, {"spec.json": {**SPEC, "description": "Large"}, **texts})
    done(easel_on(server, "canvas", "import", folder))
    found = content(server, canvas)
    assert found["spec"]["description"] == "Large"
    assert {path: text.encode() for path, text in found["assets"].items()} == texts


def test_a_name_that_changed_its_case_and_one_that_became_a_folder_are_taken(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    rpc(
        server,
        "canvas.asset.put",
        canvasId=canvas,
        path="assets/menu",
        base64=base64.b64encode(PICTURE).decode(),
    )
    folder = written(
        tmp_path / canvas,
        {"assets/img/LOGO.png": PICTURE, "assets/menu/a.bin": PICTURE, "assets/index.html": PAGE},
    )
    done(easel_on(server, "canvas", "import", folder))
    assert sorted(content(server, canvas)["assets"]) == [
        "assets/img/LOGO.png",
        "assets/index.html",
        "assets/menu/a.bin",
    ]


# --- hostile folders ------------------------------------------------------------------------------------------------------


def pipe(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


def link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def sparse(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def open_socket(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, stat.S_IFSOCK | 0o600)


def shell_named(path: Path) -> None:
    written(path, {"assets/\x1b[2J\x07.js": b"x"})


HOSTILE = [
    # says                         makes                                                              the file                 and
    ("a link to a secret", lambda to: link(to / "assets/passwd.txt", "/etc/passwd"), "assets/passwd.txt", "a link"),
    ("a link within", lambda to: link(to / "assets/a.html", "index.html"), "assets/a.html", "a link"),
    ("a link in the place of assets", lambda to: link(to / "assets", "/etc"), "assets", "link"),
    ("a linked folder", lambda to: link(to / "assets/more", "/etc"), "assets/more", "link"),
    ("a linked state", lambda to: link(to / "state", "/etc"), "state/latest.json", "link"),
    ("a linked spec", lambda to: ((to / "spec.json").unlink(), link(to / "spec.json", "/etc/hostname")), "spec.json", "a link"),
    ("a pipe that never ends", lambda to: pipe(to / "assets/index.html"), "assets/index.html", "no plain file"),
    ("a socket", lambda to: open_socket(to / "assets/s"), "assets/s", "no plain file"),
    ("a folder in the place of a file", lambda to: (to / "state/latest.json").mkdir(parents=True), "state/latest.json", "a folder"),
    ("a huge asset", lambda to: sparse(to / "assets/film.mp4", 2**36), "assets/film.mp4", "bytes; the limit is"),
    ("a huge state", lambda to: sparse(to / "state/latest.json", 2**36), "state/latest.json", "bytes; the limit is"),
    ("zeros in the place of JSON", lambda to: sparse(to / "state/latest.json", 100), "state/latest.json", "is not JSON"),
    ("half a spec", lambda to: written(to, {"spec.json": b'{"version": 1,'}), "spec.json", "is not JSON (line 1"),
    ("a spec that is none", lambda to: written(to, {"spec.json": {"version": 9}}), "spec.json", "version"),
    ("another's descriptor", lambda to: written(to, {"descriptor.json": {"canvasId": "other"}}), "descriptor.json", "other"),
    ("a name that no asset has", lambda to: written(to, {"assets/a%2e%2e.js": b"x"}), "assets/a%2e%2e.js", "path"),
    ("a name that a shell would obey", lambda to: written(to, {"assets/-rf": b"x"}), "assets/-rf", "path"),
    ("a name that a terminal would obey", shell_named, "assets/\\x1b[2J\\x07.js", "path"),
    ("names that differ by case", lambda to: written(to, {"assets/a.js": b"", "assets/A.js": b""}), "assets/", "upper and lower case"),
    ("a deep tower", lambda to: written(to, {"assets/" + "d/" * 40 + "x": b""}), "assets/d/", "deep"),
]  # fmt: skip


@rule("CV-47", "RS-11")
@case("U4")
@pytest.mark.parametrize("makes, path, part", [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_a_hostile_folder_is_refused_with_the_file_s_name_and_nothing_is_sent(
    tmp_path: Path, makes: Any, path: str, part: str
) -> None:
    folder = written(place(tmp_path, "cockpit"), {"spec.json": SPEC})
    makes(folder)
    sentence = refusal(easel_at(NOBODY, "token", "canvas", "import", tmp_path))
    assert f"cockpit/{path}" in sentence or (path == "descriptor.json" and path in sentence)
    assert part in sentence
    assert "listens" not in sentence, "it was refused before anybody was asked"
    assert sentence.replace("\n", "").isprintable()


def test_a_folder_of_countless_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 50)
    written(tmp_path / "cockpit", {f"assets/{n}": b"" for n in range(60)} | {"spec.json": SPEC})
    assert "more than 50 files" in refusal(
        easel_at(NOBODY, "token", "canvas", "import", tmp_path / "cockpit")
    )


def test_a_folder_without_a_canvas_is_told_what_one_would_have(tmp_path: Path) -> None:
    written(tmp_path, {"notes.txt": b"x", "agents/main/canvases/empty/notes.txt": b"x"})
    sentence = refusal(easel_at(NOBODY, "token", "canvas", "import", tmp_path))
    assert "spec.json" in sentence
    assert "agents/AGENT/canvases/CANVAS" in sentence
    assert "is no folder" in refusal(easel_at(NOBODY, "token", "canvas", "import", tmp_path / "nowhere"))
    assert "is no folder" in refusal(easel_at(NOBODY, "token", "canvas", "import", tmp_path / "notes.txt"))


def test_of_several_canvases_none_is_imported_if_one_is_wrong(server: EaselProcess, tmp_path: Path) -> None:
    good, bad = sorted([new_session(), new_session()])
    written(place(tmp_path, good), {"spec.json": SPEC})
    written(place(tmp_path, bad), {"spec.json": b"{", "state/latest.json": b"["})
    sentence = refusal(easel_on(server, "canvas", "import", tmp_path))
    assert sentence.count(bad) == 2, "each file that is wrong"
    assert "Nothing was imported" in sentence
    assert not is_there(server, good)


def test_files_that_are_none_of_ours_are_left_alone(server: EaselProcess, tmp_path: Path) -> None:
    name = new_session()
    folder = written(
        tmp_path / name,
        {
            "spec.json": SPEC,
            "README.md": b"x",
            ".git/config": b"x",
            "node_modules/a/index.js": b"x",
            "assets/index.html": PAGE,
            "assets/.DS_Store": b"x",
            "assets/.cache/y": b"x",
            "events/1-evt_01m7fww9tm26mjv7zba8sndxg6.json": {"actionId": "forged"},
        },
    )
    link(folder / "assets/.#index.html", "ann@host.1234")  # an editor's lock
    link(folder / "current", "/etc")
    done(easel_on(server, "canvas", "import", folder))
    assert list(content(server, name)["assets"]) == ["assets/index.html"]
    assert rpc(server, "canvas.records", canvasId=name)["records"] == [], "nobody can write the past"


# --- which calls ----------------------------------------------------------------------------------------------------------


def a_canvas(**parts: Any) -> FolderCanvas:
    return FolderCanvas(**{"canvas_id": CanvasId("c"), "agent_id": "main", **parts})


OLD = a_canvas(
    title="T",
    spec={"version": 1},
    state={"n": 1},
    assets={"assets/index.html": b"1", "assets/b.png": b"\xff"},
)
CALLS = [
    # says                            new                                                                     calls
    ("nothing", OLD, []),
    ("one file", a_canvas(assets={**OLD.assets, "assets/index.html": b"2"}), ["canvas.asset.put"]),
    ("one file less", a_canvas(assets={"assets/index.html": b"1"}), ["canvas.asset.delete"]),
    ("a spec", a_canvas(spec={"version": 1, "title": "x"}, assets=OLD.assets), ["canvas.upsert"]),
    ("a spec and texts", a_canvas(spec={}, assets={"assets/index.html": b"2"}), ["canvas.upsert"]),
    ("with bytes that are no text", a_canvas(spec={}, assets={**OLD.assets, "assets/index.html": b"2"}), ["canvas.upsert"]),
    ("some files, some bytes, some gone", a_canvas(assets={"assets/index.html": b"2", "assets/c.png": b"\xff"}), ["canvas.upsert"]),
]  # fmt: skip


@pytest.mark.parametrize("new, calls", [row[1:] for row in CALLS], ids=[row[0] for row in CALLS])
def test_a_change_takes_as_few_calls_as_can_say_it(new: FolderCanvas, calls: list[str]) -> None:
    planned = steps(OLD, new, most_bytes=100_000)
    assert [step.method for step in planned] == calls


def test_in_steps_the_page_comes_last_and_what_is_gone_after_all() -> None:
    new = a_canvas(assets={"assets/index.html": b"2", "assets/c.png": b"\xff"})
    planned = steps(OLD, new, most_bytes=0)
    assert [step.method for step in planned] == [
        "canvas.asset.put",
        "canvas.asset.put",
        "canvas.asset.delete",
    ]
    assert planned[1].about == ["assets/index.html"]
    assert all(step.undo for step in planned)


def test_what_others_have_put_there_is_not_replaced_with_the_whole() -> None:
    new = a_canvas(assets={"assets/index.html": b"2", "assets/more": b"2"})
    old = a_canvas(assets={"assets/index.html": b"1"})
    assert [step.method for step in steps(old, new, most_bytes=100_000)] == ["canvas.upsert"]
    assert [step.method for step in steps(old, new, most_bytes=100_000, others=["assets/x"])] == [
        "canvas.asset.put",
        "canvas.asset.put",
    ]
