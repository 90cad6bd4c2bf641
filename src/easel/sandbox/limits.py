"""Limits on the resources of one command. SB-06"""

from dataclasses import dataclass
from enum import StrEnum

MB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    cpu_seconds: float = 600.0  # of all processes of the command together
    memory_bytes: int = 1024 * MB  # of all processes of the command together
    processes: int = 128  # including threads
    output_bytes: int = 10 * MB
    file_bytes: int = 1024 * MB  # of each file that the command writes
    free_bytes: int = 500 * MB  # minimum on the disk; below it, commands are stopped and not started


class Stopped(StrEnum):
    """The limit that a stopped command had exceeded."""

    TIME = "time"
    CPU = "cpu"
    MEMORY = "memory"
    PROCESSES = "processes"
    OUTPUT = "output"
    DISK = "disk"
