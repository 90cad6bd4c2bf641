"""The stopwatch counts elapsed time without pauses of the machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil

from tests.support.processes import ROOT
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for_sync

STOPPED_SECONDS = 2.0
TRIES = 20

TIMED = """
import sys, time
from tests.support.standstill import Stopwatch
watch, began = Stopwatch(), time.monotonic()
print("begun", flush=True)
sys.stdin.readline()
print(time.monotonic() - began, watch.seconds, flush=True)
"""


def test_ordinary_wait_is_counted() -> None:
    for _ in range(TRIES):
        began, watch = time.monotonic(), Stopwatch()
        time.sleep(0.3)
        shown, stood_still = watch.seconds, watch.stood_still
        if stood_still == 0:
            assert 0.3 <= shown <= time.monotonic() - began
            return
    raise AssertionError(f"{TRIES} times in a row the machine is said to have stood still")


def test_cpu_time_of_this_process_is_not_a_pause() -> None:
    """The busy loop also keeps the measuring thread from running."""
    began, watch = time.process_time(), Stopwatch()
    sum(range(20_000_000))
    worked = time.process_time() - began
    assert watch.seconds > 0.8 * worked


def test_pause_of_the_machine_is_not_counted() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command, pipe = [sys.executable, "-c", TIMED], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True) as timed:
        assert timed.stdin is not None
        assert timed.stdout is not None
        assert timed.stdout.readline() == "begun\n"
        timed.send_signal(signal.SIGSTOP)
        watched = psutil.Process(timed.pid)
        wait_for_sync(lambda: watched.status() == psutil.STATUS_STOPPED, within=30, what="it is stopped")
        time.sleep(STOPPED_SECONDS)
        timed.send_signal(signal.SIGCONT)
        timed.stdin.write("go on\n")
        timed.stdin.flush()
        went_by, shown = map(float, timed.stdout.readline().split())
    assert went_by > STOPPED_SECONDS
    assert shown < went_by - STOPPED_SECONDS * 0.9
