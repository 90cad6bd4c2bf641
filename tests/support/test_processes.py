"""Processes of a test are watched, signalled and always cleared away."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.processes import READY_SECONDS, EaselProcess, Launcher, NotReady, free_port
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAKE_SERVER = """
import http.server, os, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404); self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Answer)
print(f"Easel is at http://127.0.0.1:{server.server_port}/?token=x with {os.environ['EASEL_TOKEN']}", flush=True)
server.serve_forever()
"""
PARENT_OF_A_SLEEPER = "import subprocess; child = subprocess.Popen(['sleep', '600']); print('child', child.pid, flush=True); child.wait()"


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    with Launcher(tmp_path) as launcher:
        yield launcher


def fake_server(launcher: Launcher) -> EaselProcess:
    return launcher.worker(command=(sys.executable, "-c", FAKE_SERVER, "--port", "0"))


def test_ready_means_that_it_said_where_it_listens_and_answers(launcher: Launcher) -> None:
    one = fake_server(launcher)
    one.wait_ready()
    assert one.base_url.startswith("http://127.0.0.1:")
    assert launcher.token in one.said()
    assert one.answers("/elsewhere") == 404


def test_a_process_that_dies_before_it_is_ready_shows_its_log(launcher: Launcher) -> None:
    one = launcher.worker(command=(sys.executable, "-c", "raise SystemExit('no such setting')"))
    with pytest.raises(NotReady, match="no such setting"):
        one.wait_ready()


def test_a_killed_server_comes_back_on_its_port(launcher: Launcher) -> None:
    one = fake_server(launcher)
    one.wait_ready()
    one.kill()
    assert one.answers("/readyz") is None
    again = launcher.again(one)
    again.wait_ready()
    assert again.base_url == one.base_url


def test_a_frozen_process_stands_still_until_thawed(launcher: Launcher) -> None:
    one = fake_server(launcher)
    one.wait_ready()
    one.freeze()
    assert one.answers("/readyz", seconds=0.2) is None
    one.thaw()
    assert one.answers("/readyz") == 200


def test_nothing_outlives_the_launcher(tmp_path: Path) -> None:
    with Launcher(tmp_path) as launcher:
        parent = launcher.worker(command=(sys.executable, "-c", PARENT_OF_A_SLEEPER))
        wait_for_sync(
            lambda: parent.said().endswith("\n"), within=READY_SECONDS, what="the child's number, all of it"
        )
        child = psutil.Process(int(parent.said().split()[-1]))
        parent.freeze()
    assert not parent.is_alive
    wait_for_sync(
        lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE,
        within=20,
        what="the child is gone",
    )


def test_settings_reach_the_process_and_strangers_do_not(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EASEL_PORT", "1")
    launcher.settings["CLAIM_SECONDS"] = "1"
    show = "import os; print(sorted((k, v) for k, v in os.environ.items() if k.startswith('EASEL_')))"
    one = launcher.worker(command=(sys.executable, "-c", show), POLL_SECONDS="2")
    wait_for_sync(lambda: not one.is_alive, within=READY_SECONDS, what="it ended")
    assert "('EASEL_CLAIM_SECONDS', '1')" in one.said()
    assert "('EASEL_POLL_SECONDS', '2')" in one.said()
    assert "EASEL_PORT" not in one.said()


def test_a_free_port_is_free() -> None:
    assert 0 < free_port() < 65536


def test_waiting_ends_with_what_was_waited_for() -> None:
    with pytest.raises(AssertionError, match="pigs fly"):
        wait_for_sync(lambda: False, within=0.05, what="pigs fly")
