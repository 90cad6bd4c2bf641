"""Resource usage of a command and all its descendants, read from /proc.

The kernel's limits apply to single processes. Without a cgroup, the sum over all processes of a command must
be computed here. `command` compares it with the limits.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    pid: int
    threads: int
    cpu_seconds: float  # including children that have ended
    resident_bytes: int  # including shared pages


def measure_tree(pid: int) -> list[ProcessUsage]:
    """Measure a process and its descendants. Returns an empty list if the process has ended.

    Orphaned processes are included if `pid` is the first process of a namespace or a subreaper.
    """
    usages: list[ProcessUsage] = []
    pending = [pid]
    while pending:
        current = pending.pop()
        if (usage := _measure(current)) is not None:
            usages.append(usage)
            pending += _children(current)
    return usages


def proportional_bytes(processes: Sequence[ProcessUsage]) -> int:
    """Sum the memory of these processes, counting shared pages once. Slower than `measure_tree`."""
    return sum(map(_proportional_bytes, processes))


def _measure(pid: int) -> ProcessUsage | None:
    with suppress(OSError, ValueError, IndexError):
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        ticks = sum(int(fields[at]) for at in (11, 12, 13, 14))  # own and ended children's CPU time
        resident = 0 if fields[0] in b"ZX" else int(fields[21]) * _PAGE_BYTES
        return ProcessUsage(pid, int(fields[17]), ticks / _TICKS_PER_SECOND, resident)
    return None


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - called often
            with suppress(OSError):
                yield from map(int, _read(f"/proc/{pid}/task/{thread}/children").split())


def _proportional_bytes(process: ProcessUsage) -> int:
    try:
        lines = _read(f"/proc/{process.pid}/smaps_rollup").splitlines()
    except OSError:  # the process has ended or belongs to another user
        return process.resident_bytes
    sizes = {
        name: int(rest.split()[0]) * 1024
        for name, _, rest in (line.partition(b":") for line in lines)
        if rest.endswith(b" kB")
    }
    if b"Pss_Anon" not in sizes:  # Linux before 5.9
        return sizes.get(b"Pss", process.resident_bytes)
    return sizes[b"Pss_Anon"] + sizes.get(b"Pss_Shmem", 0) + sizes.get(b"SwapPss", 0)


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.read()
