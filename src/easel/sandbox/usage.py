"""What a command and all that it started use right now, as /proc tells it.

Looks, and decides nothing. The kernel's own limits hold for each process; this adds up what they come to together, which
without a cgroup of one's own nobody else does.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGESIZE")


@dataclass(frozen=True, slots=True)
class Seen:
    pid: int
    threads: int
    cpu_seconds: float  # its children's too, once they have ended
    resident_bytes: int  # shared pages among them


def look_below(pid: int) -> list[Seen]:
    """A process and its descendants; empty when it is gone. In a namespace of their own, orphans are its first process's children."""
    found: list[Seen] = []
    ahead = [pid]
    while ahead:
        one = ahead.pop()
        if (seen := _seen(one)) is not None:
            found.append(seen)
            ahead += _children(one)
    return found


def proportional_bytes(seen: list[Seen]) -> int:
    """Memory that these processes alone stand for: pages that several share are counted once. Costs more than a look."""
    return sum(_proportional(one) for one in seen)


def look_for(mark: bytes) -> list[Seen]:
    """Where there is no namespace: orphans too. Costs as much as there are processes on the machine."""
    return [seen for pid in marked(mark) if (seen := _seen(pid)) is not None]


def marked(mark: bytes) -> list[int]:
    """Processes on this machine that were started with this word in their environment, and have not ended."""
    found: list[int] = []
    with suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208
            with suppress(OSError):
                if name.isdigit() and mark in _read(f"/proc/{name}/environ"):
                    found.append(int(name))
    return found


def _seen(pid: int) -> Seen | None:
    with suppress(OSError, ValueError, IndexError):
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        ticks = sum(int(fields[at]) for at in (11, 12, 13, 14))  # user, system, and both of ended children
        resident = 0 if fields[0] in b"ZX" else int(fields[21]) * _PAGE
        return Seen(pid, int(fields[17]), ticks / _TICKS, resident)
    return None


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - looked at often: no more than needed
            with suppress(OSError):
                yield from map(int, _read(f"/proc/{pid}/task/{thread}/children").split())


def _proportional(one: Seen) -> int:
    try:
        lines = _read(f"/proc/{one.pid}/smaps_rollup").splitlines()
    except OSError:  # gone, or not ours to look into
        return one.resident_bytes
    sizes = {
        name: int(rest.split()[0]) * 1024
        for name, _, rest in (line.partition(b":") for line in lines)
        if rest.endswith(b" kB")
    }
    if b"Pss_Anon" not in sizes:  # before Linux 5.9
        return sizes.get(b"Pss", one.resident_bytes)
    return sizes[b"Pss_Anon"] + sizes.get(b"Pss_Shmem", 0) + sizes.get(b"SwapPss", 0)


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.read()
