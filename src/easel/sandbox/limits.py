"""Limits on the resources of one command. SB-06"""

from dataclasses import dataclass
from enum import StrEnum

MB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    cpu_seconds: float = 600.0  # of all its processes together
    memory_bytes: int = 1024 * MB  # of all its processes together
    processes: int = 128  # including threads
    output_bytes: int = 10 * MB
    file_bytes: int = 1024 * MB  # of one file that it writes
    free_bytes: int = 500 * MB  # on the disk; with less a command is stopped, and none is started


class Stopped(StrEnum):
    """The limit because of which a command was stopped."""

    TIME = "time"
    CPU = "cpu"
    MEMORY = "memory"
    PROCESSES = "processes"
    OUTPUT = "output"
    DISK = "disk"
