"""`easel up`, `easel api` and `easel worker` as processes: what they print, how they start and stop."""

from __future__ import annotations

import contextlib
import queue
import re
import signal
import socket
import sqlite3
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx2
import psutil
import pytest

from easel.cli import terminal
from easel.cli.serve import print_banner
from easel.settings import Settings
from tests.cli.commands import (
    SECRET,
    TIMEOUT_SECONDS,
    assert_refused,
    invoke_easel,
    run_easel,
    started_easel,
    wait_for_output,
)
from tests.requirements import rule
from tests.support.processes import EaselProcess, Launcher
from tests.support.sse import Event, Parser
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST_PAGE_SECONDS = 3.0
MAX_RSS_BYTES = 150 * 1024 * 1024
STOP_SECONDS = 30.0
UNREACHABLE = f"postgresql://u:{SECRET}@127.0.0.1:1/d"  # no process listens on port 1


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    with Launcher(tmp_path / "easel", token="", settings={"DRAIN_SECONDS": "0.2"}) as launcher:
        yield launcher


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Launcher, EaselProcess]]:
    """An `easel up` that generated its token, shared by all tests that do not stop it."""
    with Launcher(tmp_path_factory.mktemp("easel"), token="") as launcher:
        server = launcher.up()
        server.wait_ready()
        yield launcher, server


def link_of(server: EaselProcess) -> str:
    found = re.search(r"^Open (http\S+)$", server.output(), re.MULTILINE)
    assert found, server.output()
    return found[1]


def token_of(server: EaselProcess) -> str:
    return link_of(server).partition("token=")[2]


# --- starting -----------------------------------------------------------------------------------------------


def load_first_page(launcher: Launcher) -> tuple[float, EaselProcess, httpx2.Response]:
    """Start a server and load its page. Returns the seconds from the command to the page."""
    watch = Stopwatch()
    server = launcher.up()
    wait_for_sync(
        lambda: "Open http" in server.output(), within=TIMEOUT_SECONDS, what="the banner is printed"
    )
    page = httpx2.get(link_of(server), follow_redirects=True, timeout=TIMEOUT_SECONDS)
    return watch.seconds, server, page


def test_up_serves_its_first_page_in_time_and_uses_little_memory(launcher: Launcher) -> None:
    seconds, server, page = load_first_page(launcher)
    for _ in range(5):
        if seconds < FIRST_PAGE_SECONDS:
            break
        # The machine may be busy with other tests: one start within the limit is enough.
        server.terminate(STOP_SECONDS)
        seconds, server, page = load_first_page(launcher)
    assert seconds < FIRST_PAGE_SECONDS
    assert "Start a run" in page.text
    server.wait_ready()
    cookies = page.history[0].cookies
    with httpx2.Client(base_url=server.base_url, cookies=cookies, timeout=TIMEOUT_SECONDS) as http:
        for _ in range(20):
            run_id = http.post("/api/runs", json={"session_id": "s", "message": "hello"}).json()["run_id"]
            http.get(f"/api/runs/{run_id}/events")
    rss = psutil.Process(server.pid).memory_info().rss
    assert rss < MAX_RSS_BYTES, f"{rss / 2**20:.0f} MB"


def test_up_prints_its_address_data_folder_and_link(running: tuple[Launcher, EaselProcess]) -> None:
    launcher, server = running
    folder = launcher.folder / "data"
    assert f"listens on {server.base_url}" in server.output()
    assert str(folder) in server.output()
    token = (folder / "owner-token").read_text().strip()
    assert link_of(server) == f"{server.base_url}/?token={token}"
    assert len(token) >= 32
    assert (folder / "owner-token").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o077 == 0, "other users must not read the data folder"


@rule("RS-50")
def test_second_up_on_the_same_folder_is_refused(running: tuple[Launcher, EaselProcess]) -> None:
    launcher, server = running
    folder = str(launcher.folder / "data")
    done = run_easel("up", "--port", "0", DATA=folder)
    assert_refused(done, folder, "EASEL_DATABASE_URL", str(server.pid))
    assert server.answers("/readyz") == 200


def test_demo_for_a_server_on_another_port_asks_for_the_port(
    running: tuple[Launcher, EaselProcess],
) -> None:
    launcher, server = running
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound and not listening: no other program can take the port
        port = str(reserved.getsockname()[1])
        done = run_easel("demo", "--port", port, DATA=str(launcher.folder / "data"))
    sentence = assert_refused(done, "--port", port, str(server.pid))
    assert "Postgres" not in sentence


def test_doctor_reports_a_running_server_as_ready(running: tuple[Launcher, EaselProcess]) -> None:
    launcher, server = running
    port = server.base_url.rpartition(":")[2]
    done = invoke_easel("doctor", DATA=str(launcher.folder / "data"), PORT=port)
    assert f"ok   Port: Easel is running on 127.0.0.1:{port} and is ready" in done.stdout
    assert "ok   Database: SQLite, in use by the running Easel" in done.stdout
    assert done.returncode == 0, done.stdout


def test_token_of_any_characters_makes_a_working_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    token = "a+b&c=d#e%f g, and more"
    with Launcher(tmp_path, token=token) as launcher:
        server = launcher.up()
        server.wait_ready()
        port = int(server.base_url.rpartition(":")[2])
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        print_banner(Settings(token=token), ("127.0.0.1", port), token, "on", with_demo=False)
        [link] = re.findall(r"^Open (http\S+)$", capsys.readouterr().out, re.MULTILINE)
        response = httpx2.get(link, timeout=TIMEOUT_SECONDS)
        assert response.status_code == 303, response.text
        assert quote(token, safe="") not in server.output()
        assert token not in server.output()


@pytest.mark.parametrize(
    "is_fixed, is_terminal, has_token", [(False, False, True), (True, False, False), (True, True, True)]
)
def test_fixed_token_is_printed_to_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_fixed: bool,
    is_terminal: bool,
    has_token: bool,
) -> None:
    token = "a-long-secret-that-all-of-them-share"
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    settings = Settings(token=token if is_fixed else "")
    print_banner(settings, ("127.0.0.1", 8800), token, "on", with_demo=False)
    output = capsys.readouterr().out
    assert (token in output) is has_token
    assert "Open http://127.0.0.1:8800/" in output
    assert ("sign in with your EASEL_TOKEN" in output) is not has_token


@pytest.mark.parametrize(
    "host, settings, expected, warnings",
    [
        ("127.0.0.1", {}, "listens on http://127.0.0.1:8800", set()),
        ("127.0.0.1", {"token": "abc"}, "listens on http://127.0.0.1:8800", {"EASEL_TOKEN"}),
        ("::1", {}, "listens on http://[::1]:8800", set()),
        ("0.0.0.0", {}, "listens on all addresses of this machine, port 8800", {"TLS"}),
        ("0.0.0.0", {"public_url": "https://e.example.org"}, "Open https://e.example.org/?token=", set()),
    ],
)
def test_banner_warns_about_a_short_token_and_about_a_public_address_without_tls(
    capsys: pytest.CaptureFixture[str],
    host: str,
    settings: dict[str, Any],
    expected: str,
    warnings: set[str],
) -> None:
    print_banner(Settings(**settings), (host, 8800), "secret", "on", with_demo=False)
    output = capsys.readouterr().out
    assert expected in output
    found = [line for line in output.splitlines() if line.startswith("WARNING")]
    assert len(found) == len(warnings)
    assert all(word in "".join(found) for word in warnings)


@pytest.mark.parametrize(
    "command, settings, reached",
    [
        ("up", {"HOST": "0.0.0.0"}, "0.0.0.0"),
        ("api", {"HOST": "10.1.2.3", "DATABASE_URL": UNREACHABLE}, "10.1.2.3"),
        ("up", {"PUBLIC_URL": "https://easel.example.org"}, "easel.example.org"),
        (
            "api",
            {"PUBLIC_URL": "https://easel.example.org", "DATABASE_URL": UNREACHABLE},
            "easel.example.org",
        ),
    ],
)
def test_weak_token_is_refused_if_other_machines_can_reach_the_server(
    tmp_path: Path, command: str, settings: dict[str, str], reached: str
) -> None:
    done = run_easel(command, "--port", "0", DATA=str(tmp_path), TOKEN="fifteen-letters", **settings)
    assert_refused(done, "EASEL_TOKEN must have at least 16 characters", reached)


# --- stopping -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_signal_stops_the_server_cleanly(launcher: Launcher, number: signal.Signals) -> None:
    server = launcher.up()
    server.wait_ready()
    server.process.send_signal(number)
    assert server.process.wait(STOP_SECONDS) == 0, server.output()
    assert "Traceback" not in server.output()
    assert "ERROR" not in server.output()
    assert "[error" not in server.output()


@rule("RX-49")
def test_run_that_ctrl_c_interrupted_continues_after_the_next_start(launcher: Launcher) -> None:
    server = launcher.up()
    server.wait_ready()
    headers = {"Authorization": f"Bearer {token_of(server)}"}
    message = '{"script":[{"say":"one"},{"call":"gsv__Clock","args":{}},{"wait_ms":600000},{"say":"two"}]}'
    with httpx2.Client(base_url=server.base_url, headers=headers, timeout=TIMEOUT_SECONDS) as http:
        run_id = http.post("/api/runs", json={"session_id": "s", "message": message}).json()["run_id"]
        with http.stream("GET", f"/api/runs/{run_id}/events") as open_stream:
            lines = open_stream.iter_lines()
            assert any(line == "event: tool.result" for line in lines)
            server.process.send_signal(signal.SIGINT)
            assert not any(line == "event: done" for line in lines)
    assert server.process.wait(STOP_SECONDS) == 0
    # The rest of the script does not wait, so that the test ends soon.
    with contextlib.closing(sqlite3.connect(launcher.folder / "data" / "easel.db")) as database:
        database.execute("update runs set input_text = replace(input_text, '600000', '1')")
        database.commit()
    restarted = launcher.again(server)
    restarted.wait_ready()
    assert token_of(restarted) == token_of(server), "the generated token is kept"
    body = httpx2.get(
        f"{restarted.base_url}/api/runs/{run_id}/events", headers=headers, timeout=TIMEOUT_SECONDS
    ).content
    events = [item for item in Parser().feed(body) if isinstance(item, Event)]
    assert [event.type for event in events].count("tool.call") == 1, "the finished step is not repeated"
    assert events[-1].data["status"] == "completed"
    assert events[-3].data["text"] == "one\n\ntwo"


def test_second_signal_stops_without_draining(tmp_path: Path) -> None:
    with Launcher(tmp_path, settings={"DRAIN_SECONDS": "600"}) as launcher:
        server = launcher.up()
        server.wait_ready()
        headers = {"Authorization": f"Bearer {server.token}"}
        body = {"session_id": "s", "message": '{"script":[{"say":"x"},{"wait_ms":600000}]}'}
        with httpx2.Client(base_url=server.base_url, headers=headers, timeout=TIMEOUT_SECONDS) as http:
            run_id = http.post("/api/runs", json=body).json()["run_id"]
            wait_for_sync(
                lambda: http.get(f"/api/runs/{run_id}").json()["status"] == "running",
                within=TIMEOUT_SECONDS,
                what="the run is running",
            )
        server.process.send_signal(signal.SIGINT)
        wait_for_sync(
            lambda: "again to stop at once" in server.output(),
            within=STOP_SECONDS,
            what="the first signal is handled",
        )
        server.process.send_signal(signal.SIGINT)
        server.process.wait(STOP_SECONDS)


@pytest.mark.parametrize("command, number", [("up", signal.SIGINT), ("worker", signal.SIGTERM)])
def test_signal_stops_the_wait_for_a_database(tmp_path: Path, command: str, number: signal.Signals) -> None:
    with started_easel(command, DATABASE_URL=UNREACHABLE, DATA=str(tmp_path), PORT="0") as waiting:
        output = wait_for_output(waiting, "database.waiting")
        watch = Stopwatch()
        waiting.send_signal(number)
        assert waiting.wait(TIMEOUT_SECONDS) == 0
        assert watch.seconds < 15, "without the signal it waits for 30 s"
    assert SECRET not in output


def test_interrupted_short_command_exits_with_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts the connection and never answers
        url = f"postgresql://u:{SECRET}@127.0.0.1:{silent.getsockname()[1]}/d"
        variables = {"DATABASE_URL": url, "DATABASE_TIMEOUT_SECONDS": "600", "DATA": str(tmp_path)}
        silent.settimeout(TIMEOUT_SECONDS)
        with started_easel("migrate", **variables) as waiting:
            connection, _ = silent.accept()
            with connection:
                waiting.send_signal(signal.SIGTERM)
                assert waiting.wait(STOP_SECONDS) == 1
            assert waiting.stdout
            assert "Stopped before it was done." in waiting.stdout.read()


@pytest.mark.parametrize("module", ["typer", "easel.logs", "starlette"])
def test_ctrl_c_during_the_imports_prints_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # prints each module when it is imported
    with started_easel("up", DATA=str(tmp_path), PORT="0") as starting:
        wait_for_output(starting, re.compile(rf"\| +{re.escape(module)}$"))
        starting.send_signal(signal.SIGINT)
        assert starting.stdout
        assert "Traceback" not in starting.stdout.read()
        starting.wait(TIMEOUT_SECONDS)


def test_slow_start_is_announced_until_it_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    said: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(terminal, "SLOW_SECONDS", 0.01)
    monkeypatch.setattr(terminal.typer, "echo", lambda line, **_: said.put(line))
    started = terminal.announce_slow_start()
    lines = [said.get(timeout=TIMEOUT_SECONDS) for _ in range(2)]
    started.set()
    assert lines == ["easel: still starting…"] * 2
