"""A stopwatch shows the time that went by, and not the time in which nobody had any."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from tests.support.processes import ROOT
from tests.support.standstill import Stopwatch

STOPPED_SECONDS = 2.0

TIMED = """
import sys, time
from tests.support.standstill import Stopwatch
watch, began = Stopwatch(), time.monotonic()
print("begun", flush=True)
sys.stdin.readline()
print(time.monotonic() - began, watch.seconds, flush=True)
"""


def test_an_ordinary_wait_is_shown_as_any_clock_shows_it() -> None:
    began, watch = time.monotonic(), Stopwatch()
    time.sleep(0.3)
    went_by = time.monotonic() - began
    assert watch.seconds <= went_by
    assert watch.seconds > 0.2 or went_by > 0.35, "unless the machine stood still just now"


def test_a_standstill_is_not_counted() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command, pipe = [sys.executable, "-c", TIMED], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True) as timed:
        assert timed.stdin is not None
        assert timed.stdout is not None
        assert timed.stdout.readline() == "begun\n"
        timed.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        timed.send_signal(signal.SIGCONT)
        timed.stdin.write("go on\n")
        timed.stdin.flush()
        went_by, shown = map(float, timed.stdout.readline().split())
    assert went_by > STOPPED_SECONDS
    assert shown < went_by - STOPPED_SECONDS * 0.9
