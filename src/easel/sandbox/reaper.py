"""A program of its own, which starts a command where no namespace holds it together, and ends all of it.

Run as `python -I -S keeper.py LIFELINE NAME=VALUE… PROGRAM ARGUMENT…`, with all that the program is to have in its environment. Orphans of the command become its children (PR_SET_CHILD_SUBREAPER), whatever they
did to their group, their session and their environment. It ends them when the command has ended, and when nobody holds the
other end of the pipe LIFELINE any more: Easel lets go of it, or has died. Its own exit code is the command's.

Uses nothing but the standard library, and little of that: it is started for every command.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress

CHILD_SUBREAPER = 36
ENDING_SECONDS = 4.0  # for what cannot be killed, such as another user's; less than whoever waits for us has
PAUSE_SECONDS = 0.005


def keep(lifeline: int, given: list[str]) -> int:
    with suppress(AttributeError):  # not Linux: the group has to do
        ctypes.CDLL(None).prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
    os.set_inheritable(lifeline, False)
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _, __: None)
    child = os.fork()
    if child == 0:
        become(given)
    code: int | None = None
    while code is None and lifeline not in select.select([lifeline, told], [], [])[0]:
        os.read(told, 4096)
        code = reaped(child)
    end_all(child, has_ended=code is not None)
    return 128 + signal.SIGKILL if code is None else code


def become(given: list[str]) -> None:
    """In a group of its own: what it does to its group is not done to us."""
    begin = next(number for number, one in enumerate(given) if one.startswith("/"))
    environment, argv = dict(one.split("=", 1) for one in given[:begin]), given[begin:]
    try:
        os.setsid()
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and so by whatever it becomes
            signal.signal(ignored, signal.SIG_DFL)
        os.execve(argv[0], argv, environment)  # noqa: S606
    finally:
        os._exit(127)


def reaped(child: int) -> int | None:
    """Whoever has ended; the command's exit code, if it is among them."""
    code = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                status = os.waitstatus_to_exitcode(ended[1])
                code = status if status >= 0 else 128 - status
    return code


def end_all(child: int, *, has_ended: bool) -> None:
    until = time.monotonic() + ENDING_SECONDS
    if not has_ended or not os.path.isdir("/proc/self"):  # noqa: PTH112 - its number may be somebody else's by now, unless nothing else helps
        with suppress(OSError):
            os.killpg(child, signal.SIGKILL)
    while has_children() and time.monotonic() < until:
        for one in descendants():
            with suppress(OSError):
                os.kill(one, signal.SIGKILL)
        time.sleep(PAUSE_SECONDS)
        reaped(child)


def has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def descendants() -> list[int]:
    """All of them, from one look at the machine."""
    parents: dict[int, list[int]] = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208
            if name.isdigit():
                with suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    parents.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(name))
    found, ahead = list[int](), [os.getpid()]
    while ahead:
        below = parents.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


if __name__ == "__main__":
    os._exit(keep(int(sys.argv[1]), sys.argv[2:]))
