"""A small program that starts a command where no namespace contains it, and ends all of its processes.

Run as `python -I -S reaper.py LIFELINE NAME=VALUE… PROGRAM ARGUMENT…`; the variables are the program's whole
environment. Orphans of the command become children of this process (PR_SET_CHILD_SUBREAPER), whatever they
did to their group, session and environment. It kills them when the command has ended, and when the other end
of the pipe LIFELINE is closed, by Easel or because Easel has ended. The exit code is the command's.

Imports little, and from the standard library only: it is started for every command.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress

CHILD_SUBREAPER = 36
MAX_KILL_SECONDS = (
    4.0  # some processes cannot be killed, such as another user's; less than command.END_SECONDS
)
POLL_SECONDS = 0.005


def run(lifeline: int, arguments: list[str]) -> int:
    """Start the command, wait for its end or the lifeline's, and kill its processes. Returns the
    exit code.
    """
    with suppress(AttributeError):  # not Linux: killing the process group must do
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
    """Become the command, in a session of its own, so that signals to its group spare the reaper."""
    start = next(number for number, argument in enumerate(arguments) if argument.startswith("/"))
    environment, argv = dict(item.split("=", 1) for item in arguments[:start]), arguments[start:]
    try:
        os.setsid()
        for ignored in (
            signal.SIGPIPE,
            signal.SIGXFSZ,
        ):  # Python ignores them, and the command would inherit that
            signal.signal(ignored, signal.SIG_DFL)
        os.execve(argv[0], argv, environment)  # noqa: S606
    finally:
        os._exit(127)


def reap(child: int) -> int | None:
    """Collect the children that have ended. Returns the command's exit code if it is among them."""
    code = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                status = os.waitstatus_to_exitcode(ended[1])
                code = status if status >= 0 else 128 - status
    return code


def kill_all(child: int, *, has_ended: bool) -> None:
    deadline = time.monotonic() + MAX_KILL_SECONDS
    # The pid of an ended child may have been reused, so its group is killed only where /proc is missing.
    if not has_ended or not os.path.isdir("/proc/self"):  # noqa: PTH112
        with suppress(OSError):
            os.killpg(child, signal.SIGKILL)
    while has_children() and time.monotonic() < deadline:
        for pid in descendants():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
        reap(child)


def has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def descendants() -> list[int]:
    """Return the pids of all descendants of this process, from one scan of /proc."""
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
