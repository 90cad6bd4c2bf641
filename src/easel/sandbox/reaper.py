"""A program that starts a command without a namespace and kills all processes of the command at its end.

Run as `python -I -S reaper.py LIFELINE NAME=VALUE… NAME… PROGRAM ARGUMENT…`; the variables are the complete
environment of the program. The value of a NAME alone is that of the reaper's own environment. Orphaned
processes of the command become children of the reaper (PR_SET_CHILD_SUBREAPER), even if they changed their
group, session or environment. The reaper kills them when the command has ended, or when the other end of the
pipe LIFELINE is closed: by Easel, or because Easel ended. The exit code is the one of the command.

The reaper is started for every command, so it imports only a few modules of the standard library.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress

CHILD_SUBREAPER = 36
# Some processes cannot be killed, such as those of another user. Must be less than `command.END_SECONDS`.
MAX_KILL_SECONDS = 4.0
POLL_SECONDS = 0.005


def run(lifeline: int, arguments: list[str]) -> int:
    """Start the command, wait until it ends or the lifeline is closed, and kill its processes.

    Returns the exit code of the command, or that of SIGKILL.
    """
    with suppress(AttributeError):  # not Linux: only the process group is killed
        ctypes.CDLL(None).prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
    os.set_inheritable(lifeline, False)
    wake_up, signalled = os.pipe()
    os.set_blocking(signalled, False)
    signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _, __: None)
    child = os.fork()
    if child == 0:
        execute(arguments)
    code: int | None = None
    while code is None and lifeline not in select.select([lifeline, wake_up], [], [])[0]:
        os.read(wake_up, 4096)
        code = reap(child)
    kill_all(child, has_ended=code is not None)
    return 128 + signal.SIGKILL if code is None else code


def execute(arguments: list[str]) -> None:
    """Run the command in place of this process, in its own session: signals to its group miss the reaper."""
    start = next(number for number, argument in enumerate(arguments) if argument.startswith("/"))
    variables = (item.partition("=") for item in arguments[:start])
    environment = {name: value if sign else os.environ[name] for name, sign, value in variables}
    argv = arguments[start:]
    try:
        os.setsid()
        # Python ignores these signals, and the command would inherit that.
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored, signal.SIG_DFL)
        os.execve(argv[0], argv, environment)  # noqa: S606
    finally:
        os._exit(127)


def reap(child: int) -> int | None:
    """Reap all ended children. Returns the command's exit code if the command is among them."""
    code = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                status = os.waitstatus_to_exitcode(ended[1])
                code = status if status >= 0 else 128 - status
    return code


def kill_all(child: int, *, has_ended: bool) -> None:
    deadline = time.monotonic() + MAX_KILL_SECONDS
    # The pid of an ended child may have been reused, so its group is killed only without /proc, where
    # descendants cannot be listed.
    if not has_ended or not os.path.isdir("/proc/self"):  # noqa: PTH112
        with suppress(OSError):
            os.killpg(child, signal.SIGKILL)
    with suppress(ChildProcessError):  # no process is left
        while time.monotonic() < deadline:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            for pid in descendants():
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_SECONDS)


def descendants() -> list[int]:
    """Scan /proc and return the pids of all descendants of this process."""
    parents: dict[int, list[int]] = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208
            if name.isdigit():
                with suppress(OSError, ValueError, IndexError):
                    with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                        parent = int(file.read().rpartition(b")")[2].split()[1])
                    parents.setdefault(parent, []).append(int(name))
    found, pending = list[int](), [os.getpid()]
    while pending:
        children = parents.get(pending.pop(), [])
        found += children
        pending += children
    return found


if __name__ == "__main__":
    os._exit(run(int(sys.argv[1]), sys.argv[2:]))
