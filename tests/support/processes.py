"""Easel as its users run it: real processes, started by the command line, stopped by signals.

Owns starting `easel api | worker | up`, their log files, waiting until one is ready, the signals of the fault
drills, and the clean-up after each test. Uses the commands and settings of the outside contract only.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil

from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]

READY_SECONDS = 60.0
# Four processes starting together on two busy cores; alone a start is far below the promised 3 s.
GONE_SECONDS = 30.0
# A bound for the kernel, which first completes I/O of a killed process on a slow disk.
ANSWER_SECONDS = 20.0
STANDSTILL_SECONDS = 20.0
# More of it is not credible, and pytest's own limit would come before ours.
LOOK_AGAIN_SECONDS = 0.02
# Between two looks at something outside this process that cannot call us.
SHOWN_LINES = 60

EASEL = (sys.executable, "-m", "easel")
WORKER_WITH_TEST_TOOLS = (sys.executable, "-m", "tests.support.worker_with_test_tools")

_ADDRESS = re.compile(r"Open (http://[\w.\-\[\]:]+:\d+)/")


class NotReady(AssertionError):
    """The process did not become ready; its log is in the message."""


def wait_for_text(path: Path, *, within: float, what: str) -> None:
    """Wait until the file has content: it may exist and be empty."""
    wait_for_sync(lambda: path.exists() and path.stat().st_size > 0, within=within, what=what)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class EaselProcess:
    """One running Easel. `base_url` is set once it is ready, for those that listen."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes]
    token: str
    base_url: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def listens(self) -> bool:
        return "--port" in self.command

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def rss_bytes(self) -> int:
        return psutil.Process(self.pid).memory_info().rss

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def last_output(self) -> str:
        lines = self.output().splitlines()
        return "\n".join(
            [f"--- {self.name} (pid {self.pid}, exit {self.process.poll()}) ---", *lines[-SHOWN_LINES:]]
        )

    # -- readiness

    def wait_ready(self, within: float = READY_SECONDS) -> None:
        """Wait until the process has printed its address and `/readyz` answers 200."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            if not self.is_alive:
                raise NotReady(f"{self.name} ended\n{self.last_output()}")
            if not self.base_url and (found := _ADDRESS.search(self.output())):
                self.base_url = found[1]
            if self.base_url and self.answers("/readyz") == 200:
                return
            time.sleep(LOOK_AGAIN_SECONDS)
        raise NotReady(f"{self.name} is not ready after {within} s\n{self.last_output()}")

    def answers(self, path: str, seconds: float = ANSWER_SECONDS) -> int | None:
        """Return the status of a GET, or None without an answer."""
        parts = urlsplit(self.base_url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=seconds)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    # -- signals

    def kill(self) -> None:
        """Kill with SIGKILL."""
        self.process.kill()
        self.process.wait(GONE_SECONDS)

    def terminate(self, within: float) -> float:
        """Stop with SIGTERM. Returns the seconds until the process had ended."""
        self.process.terminate()
        try:
            return wait_for_sync(
                lambda: not self.is_alive, within=within, what=f"{self.name} has ended after SIGTERM"
            )
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.last_output()}") from None

    def freeze(self) -> None:
        """Stop with SIGSTOP. Returns when the kernel has stopped it."""
        self.process.send_signal(signal.SIGSTOP)
        watched = psutil.Process(self.pid)
        wait_for_sync(
            lambda: watched.status() == psutil.STATUS_STOPPED,
            within=GONE_SECONDS,
            what=f"{self.name} stopped",
        )

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def clear_away(self) -> None:
        """Kill the process and all its children, whatever their state."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(GONE_SECONDS)


@dataclass
class Launcher:
    """Starts Easel processes that share a database and a token, and ends all of them."""

    folder: Path
    """For logs and data; a folder of the test's own."""
    database_url: str = ""
    """Empty: SQLite in the data folder."""
    settings: dict[str, str] = field(default_factory=dict[str, str])
    """EASEL_* for all of them, without the prefix, such as CLAIM_SECONDS."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    started: list[EaselProcess] = field(default_factory=list[EaselProcess])

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.ExitStack() as everyone:  # a process that cannot be ended does not keep the others
            for one in self.started:
                everyone.callback(one.clear_away)

    def api(self, **settings: str) -> EaselProcess:
        return self.start("api", (*EASEL, "api", "--port", "0"), settings)

    def up(self, **settings: str) -> EaselProcess:
        return self.start("up", (*EASEL, "up", "--port", "0"), settings)

    def worker(
        self, *, command: Sequence[str] = (), environment: dict[str, str] | None = None, **settings: str
    ) -> EaselProcess:
        return self.start("worker", tuple(command) or (*EASEL, "worker"), settings, environment)

    def test_worker(self, environment: dict[str, str] | None = None, **settings: str) -> EaselProcess:
        """Start a worker with the tools and faults of `worker_with_test_tools.py`."""
        return self.worker(command=WORKER_WITH_TEST_TOOLS, environment=environment, **settings)

    def start(
        self,
        kind: str,
        command: Sequence[str],
        settings: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> EaselProcess:
        """Start any command with EASEL_* of the launcher, then of `settings` (without the prefix), then of
        `environment`.
        """
        given = (
            {"TOKEN": self.token, "DATA": str(self.folder / "data"), "DATABASE_URL": self.database_url}
            | self.settings
            | dict(settings)
        )
        around = {name: value for name, value in os.environ.items() if not name.startswith("EASEL_")}
        # The suite may run from a checkout that is not installed: child processes import the same code.
        around["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(ROOT / "src"), str(ROOT), around.get("PYTHONPATH")])
        )
        around |= {f"EASEL_{key}": value for key, value in given.items()} | dict(environment or {})
        return self._spawn(f"{kind}-{len(self.started) + 1}", tuple(command), around)

    def again(self, dead: EaselProcess) -> EaselProcess:
        """Start the same command with the same settings, as a supervisor does; an API reuses its port."""
        environment = dict(dead.environment)
        command = dead.command
        if dead.base_url:
            command = (*command[: command.index("--port")], "--port", str(urlsplit(dead.base_url).port))
        return self._spawn(dead.name, command, environment)

    def ready(self, *listening: EaselProcess) -> tuple[EaselProcess, ...]:
        for one in listening:
            one.wait_ready()
        return listening

    def last_output(self, only: Iterable[EaselProcess] | None = None) -> str:
        return "\n".join(one.last_output() for one in (self.started if only is None else only))

    def _spawn(self, name: str, command: tuple[str, ...], environment: dict[str, str]) -> EaselProcess:
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / f"{len(self.started) + 1:03}-{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # a process group of its own, so that its children can be ended with it
                start_new_session=True,
            )
        one = EaselProcess(name, command, environment, log, process, self.token)
        self.started.append(one)
        return one
