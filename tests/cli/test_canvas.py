"""`easel canvas export` and `import` with a real server and real folders, hostile ones too. CV-12, RS-10,
RS-11
"""

from __future__ import annotations

import base64
import http.server
import json
import os
import pty
import re
import select
import shlex
import stat
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest

from easel.canvas_folder import files
from tests.cli.commands import TIMEOUT_SECONDS, assert_refused, help_of, invoke_easel
from tests.edges.http.live import new_session
from tests.requirements import case, rule
from tests.support.canvas_folders import (
    PAGE,
    PICTURE,
    SPEC,
    canvas_content,
    canvas_exists,
    output_of,
    read_tree,
    refusal,
    rpc,
    run_at,
    run_on,
    write_files,
)
from tests.support.postgres import create_database, drop_database
from tests.support.processes import EASEL, ROOT, EaselProcess, Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNUSED_ADDRESS = "http://127.0.0.1:1"
BODY_BYTES = 65_536  # of the server here, so that small files are too large


def run_server(folder: Path, url: str = "") -> Iterator[EaselProcess]:
    with Launcher(folder, url, {"DRAIN_SECONDS": "0.2", "MAX_BODY_BYTES": str(BODY_BYTES)}) as launcher:
        (started,) = launcher.ready(launcher.up())
        yield started


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EaselProcess]:
    yield from run_server(tmp_path_factory.mktemp("easel"))


@pytest.fixture(scope="module")
def on_postgres(tmp_path_factory: pytest.TempPathFactory, postgres: str) -> Iterator[EaselProcess]:
    url = create_database(postgres)
    yield from run_server(tmp_path_factory.mktemp("easel"), url)
    drop_database(postgres, url.rpartition("/")[2])


@pytest.fixture(params=["server", "on_postgres"])
def any_server(request: pytest.FixtureRequest) -> EaselProcess:
    return request.getfixturevalue(request.param)


@pytest.fixture
def canvas(server: EaselProcess) -> str:
    return create_canvas(server)


def create_canvas(server: EaselProcess) -> str:
    """Create a canvas with a page, binary assets, a large value in its state and the record of an action."""
    name = new_session()
    large = base64.b64encode(PICTURE * 2).decode()
    rpc(
        server,
        "canvas.create",
        canvasId=name,
        title="Deploy cockpit",
        ownerSessionKey="agent:main:ops",
        spec=SPEC,
        state={"service": "api", "z": 1, "a": [1.5, True, None, "é"], "picture": large},
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


def canvas_folder(root: Path, canvas_id: str, agent_id: str = "main") -> Path:
    return root / "agents" / agent_id / "canvases" / canvas_id


def test_list_names_every_canvas_with_its_page(server: EaselProcess) -> None:
    first, second = create_canvas(server), create_canvas(server)
    lines = output_of(run_on(server, "canvas", "list")).splitlines()
    for name in (first, second):
        assert f"{name}  Deploy cockpit  {server.base_url}/canvas/main/{name}" in lines


# --- help and errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["export", "import", "watch"])
def test_help_of_each_command_has_an_example(verb: str) -> None:
    text = help_of("canvas", verb)
    assert re.search(rf"Example: .*easel canvas {verb}", text), text
    assert {"--agent", "--url", "--token", "--data"} <= set(text.split())
    assert verb in help_of("canvas")
    assert "canvas" in help_of()


def test_error_without_a_server_names_easel_up(tmp_path: Path) -> None:
    sentence = assert_refused(
        invoke_easel("canvas", "export", "x", str(tmp_path), PORT="1", TOKEN="t"), "easel up", "--url"
    )
    assert "No Easel is running" in sentence


def test_wrong_token_is_refused(server: EaselProcess, tmp_path: Path, canvas: str) -> None:
    outcome = run_on(server, "canvas", "export", canvas, tmp_path, "--token", "wrong-token")
    assert "does not accept this token" in refusal(outcome)
    assert list(tmp_path.iterdir()) == []


def test_token_of_the_data_folder_is_used(server: EaselProcess, tmp_path: Path, canvas: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "owner-token").write_text(server.token + "\n")
    options = ("--url", server.base_url, "--data", str(tmp_path / "data"))
    assert invoke_easel("canvas", "export", canvas, str(tmp_path / "out"), *options).returncode == 0
    assert_refused(
        invoke_easel(
            "canvas", "export", canvas, str(tmp_path / "out"), "--url", server.base_url, DATA=str(tmp_path)
        ),
        "owner-token",
        "EASEL_TOKEN",
    )


def test_token_of_the_data_folder_is_not_sent_to_another_machine(tmp_path: Path) -> None:
    (tmp_path / "owner-token").write_text("the-owner-s-own-token\n")
    for url in ("http://easel.example.org", "https://10.1.2.3:8800", "http://127.0.0.1.example.org"):
        assert_refused(
            invoke_easel("canvas", "export", "x", str(tmp_path / "out"), "--url", url, DATA=str(tmp_path)),
            "EASEL_TOKEN",
            "another machine",
        )


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "127.0.0.1:8800", "http://x/path", "http://[", "http://u:p@x", "http://x:0"]
)
def test_invalid_url_is_refused(url: str, tmp_path: Path) -> None:
    assert "--url" in assert_refused(
        invoke_easel("canvas", "export", "x", str(tmp_path), "--url", url, TOKEN="t")
    )


class OtherServer(http.server.BaseHTTPRequestHandler):
    """A web server that is not an Easel and redirects."""

    status = 302

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(self.status)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(b"<html>Moved</html>")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def test_redirect_of_another_server_is_refused_and_not_followed(tmp_path: Path) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), OtherServer) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{other.server_port}"
        assert_refused(
            invoke_easel("canvas", "export", "x", str(tmp_path), "--url", url, TOKEN="t"),
            "is not an Easel",
            "302",
        )
        other.shutdown()


def test_failure_of_the_server_is_no_reason_to_check_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OtherServer, "status", 502)
    with http.server.HTTPServer(("127.0.0.1", 0), OtherServer) as broken:
        threading.Thread(target=broken.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{broken.server_port}"
        outcome = invoke_easel("canvas", "export", "x", str(tmp_path), "--url", url, TOKEN="t")
        assert "--url" not in assert_refused(outcome, "failed (HTTP 502)", "proxy in front of it")
        broken.shutdown()


def test_export_of_a_missing_canvas_fails(server: EaselProcess, tmp_path: Path) -> None:
    assert "no canvas nothing-here" in refusal(run_on(server, "canvas", "export", "nothing-here", tmp_path))
    assert list(tmp_path.iterdir()) == []


# --- export -------------------------------------------------------------------------------------------------


@rule("CV-12", "RS-11", "CV-14", "CV-48")
def test_export_writes_exactly_the_files_of_the_layout(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    output = output_of(run_on(server, "canvas", "export", canvas, tmp_path))
    view = rpc(server, "canvas.get", canvasId=canvas)
    assert f"Wrote {canvas}, revision {view['revision']}" in output
    assert "3 assets, 1 record of actions" in output
    found = read_tree(tmp_path)
    [record] = rpc(server, "canvas.records", canvasId=canvas)["records"]
    event = f"events/{record['askedAt']}-{record['eventId']}.json"
    paths = {
        "descriptor.json",
        "spec.json",
        "state/latest.json",
        "assets/index.html",
        "assets/index.js",
        "assets/img/logo.png",
        event,
    }
    assert set(found) == {f"agents/main/canvases/{canvas}/{path}" for path in paths}
    here = read_tree(canvas_folder(tmp_path, canvas))
    assert here["assets/index.html"] == PAGE
    assert here["assets/img/logo.png"] == PICTURE
    assert json.loads(here["spec.json"]) == view["spec"]
    assert json.loads(here[event]) == record
    state = json.loads(here["state/latest.json"])
    assert state["picture"] == base64.b64encode(PICTURE * 2).decode(), (
        "the value itself, not a reference to this server"
    )
    assert {**view["state"], "picture": ""} == {**state, "picture": ""}
    assert json.loads(here["descriptor.json"]) == {
        name: value for name, value in view["descriptor"].items() if name != "lastSeq"
    }


def test_events_option_limits_the_records(server: EaselProcess, tmp_path: Path, canvas: str) -> None:
    for _ in range(3):
        rpc(server, "canvas.action", canvasId=canvas, actionId="look")
    assert "2 records of actions" in output_of(
        run_on(server, "canvas", "export", canvas, tmp_path, "--events", "2")
    )
    newest = [
        record["eventId"] for record in rpc(server, "canvas.records", canvasId=canvas, limit=2)["records"]
    ]
    assert sorted(
        path.stem.partition("-")[2] for path in (canvas_folder(tmp_path, canvas) / "events").iterdir()
    ) == sorted(newest)
    output_of(run_on(server, "canvas", "export", canvas, tmp_path / "none", "--events", "0"))
    assert not (canvas_folder(tmp_path / "none", canvas) / "events").exists()


def _version(path: Path) -> tuple[int, int]:
    """Return values that change when a file is write_files."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def test_second_export_updates_its_files_and_keeps_others(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    output_of(run_on(server, "canvas", "export", canvas, tmp_path))
    here = canvas_folder(tmp_path, canvas)
    write_files(here, {"README.md": b"mine", "assets/.notes": b"mine", ".git/config": b"mine"})
    unchanged = _version(here / "assets" / "index.html")
    rpc(server, "canvas.asset.delete", canvasId=canvas, path="assets/img/logo.png")
    rpc(server, "canvas.patch", canvasId=canvas, title="Another")
    output = output_of(run_on(server, "canvas", "export", canvas, tmp_path))
    assert "Removed assets/img/logo.png" in output
    assert not (here / "assets" / "img").exists()
    assert json.loads((here / "descriptor.json").read_bytes())["title"] == "Another"
    assert _version(here / "assets" / "index.html") == unchanged, "unchanged files are not write_files"
    assert all(
        (here / path).read_bytes() == b"mine" for path in ("README.md", "assets/.notes", ".git/config")
    )
    assert [path.name for path in here.rglob(".easel-*")] == []


@rule("CV-47")
def test_export_does_not_follow_links_out_of_its_folder(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    outside = write_files(tmp_path / "outside", {"victim": b"precious"})
    here = canvas_folder(tmp_path / "out", canvas)
    here.mkdir(parents=True)
    (here / "spec.json").symlink_to(outside / "victim")
    assert "spec.json: must be a regular file, not a link" in refusal(
        run_on(server, "canvas", "export", canvas, tmp_path / "out")
    )
    other = canvas_folder(tmp_path / "linked", canvas)
    other.mkdir(parents=True)
    (other / "assets").symlink_to(outside)
    assert "link" in refusal(run_on(server, "canvas", "export", canvas, tmp_path / "linked"))
    assert read_tree(outside) == {"victim": b"precious"}


def answer_at_terminal(server: EaselProcess, answer: str, *arguments: object) -> tuple[bytes, int]:
    """Run a command at a terminal and answer its question. Returns the output up to it and the exit code."""
    leader, follower = pty.openpty()
    options = ["--url", server.base_url, "--token", server.token]
    process = subprocess.Popen(
        [*EASEL, "canvas", *map(str, arguments), *options],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "dumb"},
        start_new_session=True,
    )
    os.close(follower)
    output = b""
    while b"[y/N]" not in output:
        assert select.select([leader], [], [], TIMEOUT_SECONDS)[0], f"no question after {output!r}"
        output += os.read(leader, 4096)
    os.write(leader, answer.encode())
    code = process.wait(TIMEOUT_SECONDS)
    os.close(leader)
    return output, code


def test_export_asks_before_it_overwrites_edited_files(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    output_of(run_on(server, "canvas", "export", canvas, tmp_path))
    write_files(canvas_folder(tmp_path, canvas), {"assets/index.html": b"hours of work"})
    for answer, is_kept in (("n\n", True), ("y\n", False)):
        output, code = answer_at_terminal(server, answer, "export", canvas, tmp_path)
        assert code == (1 if is_kept else 0)
        assert b"assets/index.html" in output
        assert (
            (canvas_folder(tmp_path, canvas) / "assets" / "index.html").read_bytes() == b"hours of work"
        ) is is_kept


def test_export_overwrites_without_a_question_if_stdin_is_closed(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    output_of(run_on(server, "canvas", "export", canvas, tmp_path))
    page = canvas_folder(tmp_path, canvas) / "assets" / "index.html"
    exported = page.read_bytes()
    page.write_bytes(b"hours of work")
    command = shlex.join(
        [*EASEL, "canvas", "export", canvas, str(tmp_path), "--url", server.base_url, "--token", server.token]
    )
    subprocess.run(
        ["sh", "-c", f"{command} <&-"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    assert page.read_bytes() == exported


# --- export and import --------------------------------------------------------------------------------------


@rule("RS-11", "CV-12")
def test_export_after_an_import_writes_the_same_bytes(any_server: EaselProcess, tmp_path: Path) -> None:
    canvas = create_canvas(any_server)
    output_of(run_on(any_server, "canvas", "export", canvas, tmp_path / "one"))
    revision = rpc(any_server, "canvas.get", canvasId=canvas)["revision"]
    assert "nothing to do" in output_of(run_on(any_server, "canvas", "import", tmp_path / "one"))
    assert rpc(any_server, "canvas.get", canvasId=canvas)["revision"] == revision, (
        "an equal folder is no change"
    )
    output_of(run_on(any_server, "canvas", "export", canvas, tmp_path / "two"))
    assert read_tree(tmp_path / "one") == read_tree(tmp_path / "two")


STORED_MEMBERS = ("createdAt", "updatedAt", "revision")  # new on each server. CV-15


@rule("RS-11", "CV-15", "CV-48")
def test_imported_canvas_equals_the_exported_one_except_stored_times(
    any_server: EaselProcess, tmp_path: Path
) -> None:
    canvas = create_canvas(any_server)
    output_of(run_on(any_server, "canvas", "export", canvas, tmp_path / "one"))
    rpc(any_server, "canvas.delete", canvasId=canvas)
    assert f"{canvas}: created from" in output_of(run_on(any_server, "canvas", "import", tmp_path / "one"))
    output_of(run_on(any_server, "canvas", "export", canvas, tmp_path / "two"))
    first, second = (read_tree(canvas_folder(tmp_path / name, canvas)) for name in ("one", "two"))
    before, after = json.loads(first.pop("descriptor.json")), json.loads(second.pop("descriptor.json"))
    assert {name: value for name, value in before.items() if name not in STORED_MEMBERS} == {
        name: value for name, value in after.items() if name not in STORED_MEMBERS
    }
    records = [path for path in first if path.startswith("events/")]
    assert len(records) == 1
    assert {path: value for path, value in first.items() if path not in records} == second, (
        "records are not imported"
    )


@rule("RS-10", "CV-12")
def test_server_stores_assets_in_the_same_layout(server: EaselProcess, canvas: str) -> None:
    blobs = server.log.parent / "data" / "blobs"
    stored = [
        path
        for path in blobs.rglob("*")
        if path.is_file() and f"/agents/main/canvases/{canvas}/assets/" in str(path)
    ]
    assert {path.name for path in stored} == {"index.html", "index.js", "logo.png"}


# --- import -------------------------------------------------------------------------------------------------


@rule("RS-59", "RS-13")
def test_imported_canvas_needs_confirmations_until_it_is_accepted(
    server: EaselProcess, tmp_path: Path
) -> None:
    name = new_session()
    folder = canvas_folder(tmp_path, name)
    (folder / "assets").mkdir(parents=True)
    write = {
        "kind": "tool.call",
        "tool": "local__Write",
        "args": {"path": "pwned", "content": "x"},
        "confirm": "never",
    }
    send = {"kind": "session.send", "message": "hi", "confirm": "never"}
    spec: dict[str, Any] = {
        "version": 1,
        "toolPolicy": {"allow": ["local__Write"]},
        "actions": {"go": write, "say": send},
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    (folder / "assets" / "index.html").write_text("<p>")

    def run_import(*options: str) -> str:
        return output_of(run_on(server, "canvas", "import", tmp_path, "--replace", *options))

    def statuses() -> list[str]:
        return [
            rpc(server, "canvas.action", canvasId=name, actionId=action)["status"]
            for action in spec["actions"]
        ]

    assert "accept it there" in run_import()
    assert not rpc(server, "canvas.get", canvasId=name)["accepted"]
    assert statuses() == ["needs_confirmation"] * 2
    rpc(server, "canvas.accept", canvasId=name, revision=rpc(server, "canvas.get", canvasId=name)["revision"])
    assert "nothing to do" in run_import(), "an equal folder does not remove the acceptance"
    assert statuses() == ["completed"] * 2
    (folder / "assets" / "index.html").write_text("<script>gsvCanvas.runAction('go')</script>")
    run_import()
    assert statuses() == ["needs_confirmation"] * 2, "a page can run actions too"
    (folder / "assets" / "index.html").write_text("<p>mine")
    assert "accept it there" not in run_import("--accept")
    assert statuses() == ["completed"] * 2


@rule("RS-11")
def test_import_accepts_a_canvas_folder_and_the_folder_of_agents(
    server: EaselProcess, tmp_path: Path
) -> None:
    first, second, third = new_session(), new_session(), new_session()
    for name, agent in ((first, "main"), (second, "main"), (third, "ops")):
        write_files(canvas_folder(tmp_path, name, agent), {"spec.json": SPEC, "assets/index.html": PAGE})
    assert f"{first}: created" in output_of(
        run_on(server, "canvas", "import", canvas_folder(tmp_path, first))
    )
    assert not canvas_exists(server, second)
    assert f"{third}: created" in output_of(run_on(server, "canvas", "import", tmp_path, "--agent", "ops"))
    assert not canvas_exists(server, second)
    output = output_of(run_on(server, "canvas", "import", tmp_path))
    assert f"{first}: is up to date" in output
    assert f"{second}: created" in output
    assert rpc(server, "canvas.get", canvasId=third)["descriptor"]["agentId"] == "ops"


def test_title_of_the_spec_names_the_canvas(server: EaselProcess, tmp_path: Path) -> None:
    name = new_session()
    folder = write_files(tmp_path / name, {"spec.json": {"version": 1, "title": "Operations"}})
    output_of(run_on(server, "canvas", "import", folder))
    assert canvas_content(server, name)["title"] == "Operations"


def test_folder_with_only_a_page_becomes_a_canvas_of_its_name(server: EaselProcess, tmp_path: Path) -> None:
    name = new_session()
    folder = write_files(tmp_path / name, {"assets/index.html": PAGE})
    output = output_of(run_on(server, "canvas", "import", folder, "--agent", "ops"))
    assert f"Open {server.base_url}/canvas/ops/{name}" in output
    assert canvas_content(server, name) == {
        "title": name,
        "spec": {"version": 1, "mode": "html"},
        "state": {},
        "assets": {"assets/index.html": PAGE.decode()},
    }


def test_import_replaces_assets_and_keeps_parts_without_a_file(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    before = canvas_content(server, canvas)
    folder = write_files(
        tmp_path / canvas, {"spec.json": {**SPEC, "description": "New"}, "assets/other.css": b"x"}
    )
    output = output_of(run_on(server, "canvas", "import", folder, "--replace"))
    assert "spec.json, assets/other.css saved" in output
    assert "assets/index.js" in output.partition("saved")[2]
    after = canvas_content(server, canvas)
    assert after == {**before, "spec": {**SPEC, "description": "New"}, "assets": {"assets/other.css": "x"}}


def test_import_replaces_the_state(server: EaselProcess, tmp_path: Path, canvas: str) -> None:
    output_of(run_on(server, "canvas", "export", canvas, tmp_path))
    rpc(
        server,
        "canvas.patch",
        canvasId=canvas,
        statePatch=[{"op": "add", "path": "/service", "value": "broken"}],
    )
    assert "state/latest.json saved" in output_of(run_on(server, "canvas", "import", tmp_path, "--replace"))
    assert canvas_content(server, canvas)["state"]["service"] == "api"


def test_import_does_not_change_the_agent(server: EaselProcess, tmp_path: Path, canvas: str) -> None:
    folder = write_files(tmp_path / canvas, {"spec.json": SPEC})
    assert "belongs to agent main, not to ops" in refusal(
        run_on(server, "canvas", "import", folder, "--agent", "ops")
    )


@rule("RS-11")
@pytest.mark.parametrize("is_new", [False, True], ids=["existing", "new"])
def test_repeated_import_completes_one_that_was_refused_in_the_middle(
    server: EaselProcess, tmp_path: Path, is_new: bool
) -> None:
    """Its assets do not fit into one request, and one of them not even into one of its own."""
    canvas = new_session() if is_new else create_canvas(server)
    files = {
        "spec.json": {**SPEC, "description": "New"},
        "assets/img/logo.png": b"\xff new",
        "assets/z.bin": b"\xff" * (BODY_BYTES * 40 if is_new else BODY_BYTES),
    }
    folder = write_files(tmp_path / canvas, files)
    sentence = refusal(run_on(server, "canvas", "import", folder, "--replace"))
    assert "assets/z.bin: " in sentence
    assert f"{BODY_BYTES} bytes. EASEL_MAX_BODY_BYTES" in sentence
    assert "repeat the command" in sentence
    assert not rpc(server, "canvas.get", canvasId=canvas)["accepted"]
    write_files(folder, {"assets/z.bin": b"small"})
    output_of(run_on(server, "canvas", "import", folder, "--replace"))
    found = canvas_content(server, canvas)
    assert found["spec"] == files["spec.json"]
    assert sorted(found["assets"]) == ["assets/img/logo.png", "assets/z.bin"]


@rule("RS-11")
def test_import_replaces_an_existing_canvas_only_with_consent(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    """A folder of another person may have the id of a canvas that exists."""
    before = canvas_content(server, canvas)
    write_files(
        canvas_folder(tmp_path, canvas), {"spec.json": {"version": 1}, "assets/index.html": b"theirs"}
    )
    other = new_session()
    write_files(canvas_folder(tmp_path, other), {"spec.json": SPEC})
    sentence = refusal(run_on(server, "canvas", "import", tmp_path))
    assert f"Canvas {canvas} exists already and differs (spec.json, assets/index.html" in sentence
    assert "--replace replaces it" in sentence
    assert canvas_content(server, canvas) == before
    assert not canvas_exists(server, other), "nothing was imported"
    for answer, is_replaced in (("n\n", False), ("y\n", True)):
        output, code = answer_at_terminal(server, answer, "import", tmp_path)
        assert code == (0 if is_replaced else 1)
        assert b"Replace it?" in output
        assert (canvas_content(server, canvas)["assets"] == {"assets/index.html": "theirs"}) is is_replaced


def test_refused_spec_changes_nothing(server: EaselProcess, tmp_path: Path, canvas: str) -> None:
    before = canvas_content(server, canvas)
    refused_spec = {
        **SPEC,
        "actions": {"look": {"kind": "tool.call", "tool": "gsv__Clock", "confirm": "always"}},
        "refresh": [{"id": "r", "everyMs": 5000, "action": "look"}],
    }
    folder = write_files(
        tmp_path / canvas,
        {"spec.json": refused_spec, "assets/index.html": b"never", "assets/x.bin": b"\xff"},
    )
    assert "spec.json" in refusal(run_on(server, "canvas", "import", folder, "--replace"))
    assert canvas_content(server, canvas) == before


def test_import_is_one_change_if_it_fits_in_one_request(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    """Also with binary assets."""
    revision = rpc(server, "canvas.get", canvasId=canvas)["revision"]
    pictures = {"assets/img/logo.png": PICTURE, "assets/img/more.png": PICTURE[::-1]}
    parts = {
        "spec.json": {**SPEC, "description": "x"},
        "state/latest.json": {"n": 1},
        "assets/index.html": b"new",
        **pictures,
    }
    output_of(run_on(server, "canvas", "import", write_files(tmp_path / canvas, parts), "--replace"))
    assert rpc(server, "canvas.get", canvasId=canvas)["revision"] == revision + 1
    assert canvas_content(server, canvas)["assets"] == {
        "assets/index.html": "new",
        **{p: base64.b64encode(b).decode() for p, b in pictures.items()},
    }


def test_import_uses_several_requests_if_one_is_too_large(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    """The limit of the server is lower than that of the command's own settings."""
    texts = {f"assets/{n}.txt": b"x" * (BODY_BYTES // 2) for n in range(4)}
    folder = write_files(tmp_path / canvas, {"spec.json": {**SPEC, "description": "Large"}, **texts})
    output_of(run_on(server, "canvas", "import", folder, "--replace"))
    found = canvas_content(server, canvas)
    assert found["spec"]["description"] == "Large"
    assert {path: text.encode() for path, text in found["assets"].items()} == texts


def test_path_may_change_its_case_or_become_a_folder(
    server: EaselProcess, tmp_path: Path, canvas: str
) -> None:
    rpc(
        server,
        "canvas.asset.put",
        canvasId=canvas,
        path="assets/menu",
        base64=base64.b64encode(PICTURE).decode(),
    )
    folder = write_files(
        tmp_path / canvas,
        {"assets/img/LOGO.png": PICTURE, "assets/menu/a.bin": PICTURE, "assets/index.html": PAGE},
    )
    output_of(run_on(server, "canvas", "import", folder, "--replace"))
    assert sorted(canvas_content(server, canvas)["assets"]) == [
        "assets/img/LOGO.png",
        "assets/index.html",
        "assets/menu/a.bin",
    ]


# --- hostile folders ----------------------------------------------------------------------------------------


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


def terminal_named(path: Path) -> None:
    write_files(path, {"assets/\x1b[2J\x07.js": b"x"})


HOSTILE = [
    # name, change, file, message
    (
        "a link to a secret",
        lambda to: link(to / "assets/passwd.txt", "/etc/passwd"),
        "assets/passwd.txt",
        "a link",
    ),
    ("a link within", lambda to: link(to / "assets/a.html", "index.html"), "assets/a.html", "a link"),
    ("assets is a link", lambda to: link(to / "assets", "/etc"), "assets", "link"),
    ("a linked folder", lambda to: link(to / "assets/more", "/etc"), "assets/more", "link"),
    ("a linked state", lambda to: link(to / "state", "/etc"), "state", "link"),
    (
        "a linked spec",
        lambda to: ((to / "spec.json").unlink(), link(to / "spec.json", "/etc/hostname")),
        "spec.json",
        "a link",
    ),
    ("a pipe", lambda to: pipe(to / "assets/index.html"), "assets/index.html", "must be a regular file"),
    ("a socket", lambda to: open_socket(to / "assets/s"), "assets/s", "must be a regular file"),
    (
        "a folder instead of a file",
        lambda to: (to / "state/latest.json").mkdir(parents=True),
        "state/latest.json",
        "a folder",
    ),
    (
        "a huge asset",
        lambda to: sparse(to / "assets/film.mp4", 2**36),
        "assets/film.mp4",
        "bytes; the limit is",
    ),
    (
        "a huge state",
        lambda to: sparse(to / "state/latest.json", 2**36),
        "state/latest.json",
        "bytes; the limit is",
    ),
    (
        "zeros instead of JSON",
        lambda to: sparse(to / "state/latest.json", 100),
        "state/latest.json",
        "must be JSON",
    ),
    (
        "half a spec",
        lambda to: write_files(to, {"spec.json": b'{"version": 1,'}),
        "spec.json",
        "must be JSON (line 1",
    ),
    ("an invalid spec", lambda to: write_files(to, {"spec.json": {"version": 9}}), "spec.json", "version"),
    (
        "another's descriptor",
        lambda to: write_files(to, {"descriptor.json": {"canvasId": "other"}}),
        "descriptor.json",
        "other",
    ),
    ("an invalid name", lambda to: write_files(to, {"assets/a%2e%2e.js": b"x"}), "assets/a%2e%2e.js", "path"),
    ("a name like an option", lambda to: write_files(to, {"assets/-rf": b"x"}), "assets/-rf", "path"),
    ("a name with control characters", terminal_named, "assets/\\x1b[2J\\x07.js", "path"),
    (
        "names that differ by case",
        lambda to: write_files(to, {"assets/a.js": b"", "assets/A.js": b""}),
        "assets/",
        "upper and lower case",
    ),
    ("a deep path", lambda to: write_files(to, {"assets/" + "d/" * 40 + "x": b""}), "assets/d/", "deep"),
]


@rule("CV-47", "RS-11")
@case("U4")
@pytest.mark.parametrize(
    "change, path, message", [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE]
)
def test_hostile_folder_is_refused_before_anything_is_sent(
    tmp_path: Path, change: Any, path: str, message: str
) -> None:
    folder = write_files(canvas_folder(tmp_path, "cockpit"), {"spec.json": SPEC})
    change(folder)
    sentence = refusal(run_at(UNUSED_ADDRESS, "token", "canvas", "import", tmp_path))
    assert f"cockpit/{path}" in sentence or (path == "descriptor.json" and path in sentence)
    assert message in sentence
    assert "No Easel is running" not in sentence, "it must be refused before a request is made"
    assert sentence.replace("\n", "").isprintable()


def test_folder_with_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 50)
    write_files(tmp_path / "cockpit", {f"assets/{n}": b"" for n in range(60)} | {"spec.json": SPEC})
    assert "at most 50 files" in refusal(
        run_at(UNUSED_ADDRESS, "token", "canvas", "import", tmp_path / "cockpit")
    )


def test_error_without_a_canvas_names_the_files_of_one(tmp_path: Path) -> None:
    write_files(tmp_path, {"notes.txt": b"x", "agents/main/canvases/empty/notes.txt": b"x"})
    sentence = refusal(run_at(UNUSED_ADDRESS, "token", "canvas", "import", tmp_path))
    assert "spec.json" in sentence
    assert "agents/AGENT/canvases/CANVAS" in sentence
    assert "is not a folder" in refusal(
        run_at(UNUSED_ADDRESS, "token", "canvas", "import", tmp_path / "nowhere")
    )
    assert "is not a folder" in refusal(
        run_at(UNUSED_ADDRESS, "token", "canvas", "import", tmp_path / "notes.txt")
    )


def test_no_canvas_is_imported_if_one_is_invalid(server: EaselProcess, tmp_path: Path) -> None:
    good, bad = sorted([new_session(), new_session()])
    write_files(canvas_folder(tmp_path, good), {"spec.json": SPEC})
    write_files(canvas_folder(tmp_path, bad), {"spec.json": b"{", "state/latest.json": b"["})
    sentence = refusal(run_on(server, "canvas", "import", tmp_path))
    assert sentence.count(bad) == 2, "both invalid files"
    assert "Nothing was imported" in sentence
    assert not canvas_exists(server, good)


def test_files_outside_of_the_layout_are_ignored(server: EaselProcess, tmp_path: Path) -> None:
    name = new_session()
    folder = write_files(
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
    output_of(run_on(server, "canvas", "import", folder))
    assert list(canvas_content(server, name)["assets"]) == ["assets/index.html"]
    assert rpc(server, "canvas.records", canvasId=name)["records"] == [], "records cannot be imported"


# --- versions -----------------------------------------------------------------------------------------------


def test_versions_are_listed_and_restored(server: EaselProcess) -> None:
    name = new_session()
    rpc(server, "canvas.create", canvasId=name, spec={"version": 1}, assets={"assets/a": "1"})
    rpc(server, "canvas.upsert", canvasId=name, spec={"version": 1, "description": "new"}, assets={})
    before = output_of(run_on(server, "canvas", "versions", name)).splitlines()
    assert [line.split()[0] for line in before] == ["2", "1"]
    assert before[0].endswith(
        "person owner  agent:main:main  spec.description added, assets/a removed (present)"
    )
    assert before[1].endswith("person owner  agent:main:main  first known version")
    said = output_of(run_on(server, "canvas", "restore", name, 1))
    assert said == f"Restored version 1 of {name}, which is now revision 3.\n"
    assert canvas_content(server, name)["assets"] == {"assets/a": "1"}
    after = output_of(run_on(server, "canvas", "versions", name, "--count", 1)).splitlines()
    assert len(after) == 2
    assert "restored version 1: spec.description removed, assets/a added" in after[0]


def test_reason_of_a_refused_restore_is_printed(server: EaselProcess) -> None:
    name = new_session()
    rpc(server, "canvas.create", canvasId=name)
    assert "version" in refusal(run_on(server, "canvas", "restore", name, 7))
    rpc(server, "canvas.patch", canvasId=name, spec={"version": 1, "description": "new"})
    stale = run_on(server, "canvas", "restore", name, 1, "--expected-revision", 1)
    assert "revision" in refusal(stale)
    assert "unknown" in refusal(run_on(server, "canvas", "versions", "unknown"))
