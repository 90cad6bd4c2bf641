"""Run `easel` commands: as processes of their own, or in this process where no signal or socket matters."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Any
from unittest import mock

import structlog
from typer.testing import CliRunner

from easel.cli.app import app
from tests.support.processes import EASEL, ROOT

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

TIMEOUT_SECONDS = 60.0  # a command that takes longer hangs
SECRET = "a-very-secret-word"
PLAIN_TERMINAL = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}

Completed = subprocess.CompletedProcess[str]


def environment_of(**variables: str) -> dict[str, str]:
    """Return the environment of a command. Settings are given without their prefix."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EASEL_")}
    paths = [str(ROOT / "src"), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return environment | {f"EASEL_{name}": value for name, value in variables.items()}


def run_easel(*arguments: str, **variables: str) -> Completed:
    """Run a command to its end, in a process of its own."""
    return subprocess.run(
        [*EASEL, *arguments],
        env=environment_of(**variables),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def invoke_easel(*arguments: str, **variables: str) -> Completed:
    """Run a command to its end, in this process: much faster."""
    unset = dict.fromkeys((name for name in os.environ if name.startswith("EASEL_")), None)
    settings = {f"EASEL_{name}": value for name, value in variables.items()}
    # A command that serves by mistake is stopped by the signal that it handles.
    watchdog = threading.Timer(TIMEOUT_SECONDS, os.kill, (os.getpid(), signal.SIGTERM))
    watchdog.start()
    try:
        with _restored_logging():
            result = CliRunner(env={**PLAIN_TERMINAL, **unset, **settings}).invoke(app, list(arguments))
    finally:
        watchdog.cancel()
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)


@contextlib.contextmanager
def _restored_logging() -> Iterator[None]:
    """Undo the logging set-up of a command, and keep loggers of modules from caching it."""
    configure, root = structlog.configure, logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def without_cache(**options: Any) -> None:
        configure(**{**options, "cache_logger_on_first_use": False})

    try:
        with mock.patch.object(structlog, "configure", without_cache):
            yield
    finally:
        structlog.reset_defaults()
        root.handlers[:] = handlers
        root.setLevel(level)


@contextlib.contextmanager
def started_easel(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command; stdout and stderr are one stream. It is killed at the end of the block."""
    with subprocess.Popen(
        [*EASEL, *arguments],
        env=environment_of(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as process:
        watchdog = threading.Timer(TIMEOUT_SECONDS, process.kill)  # ends a read of its output
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def wait_for_output(process: subprocess.Popen[str], text: str | re.Pattern[str]) -> str:
    """Read lines until one contains the text. Returns all output up to it."""
    output = ""
    assert process.stdout
    for line in process.stdout:
        output += line
        if text in line if isinstance(text, str) else text.search(line):
            return output
    raise AssertionError(f"The command ended, or was killed by the timeout, before {text!r}: {output}")


def assert_refused(done: Completed, *parts: str) -> str:
    """Check for exit code 2 and one sentence with these parts, without a traceback or a secret."""
    output = done.stdout + done.stderr
    assert SECRET not in output
    assert "Traceback" not in output
    assert done.returncode == 2, output
    sentence = done.stderr.strip().splitlines()[-1]
    assert sentence.startswith("easel: "), output
    for part in parts:
        assert part in sentence
    return sentence


def help_of(*arguments: str) -> str:
    result = CliRunner(env=PLAIN_TERMINAL).invoke(app, [*arguments, "--help"])
    assert result.exit_code == 0, result.output
    return result.output
