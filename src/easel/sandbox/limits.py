"""How much one command may use before it is stopped. SB-06"""

from dataclasses import dataclass
from enum import StrEnum

MB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    cpu_seconds: float = 600.0  # of all its processes together
    memory_bytes: int = 1024 * MB  # of all its processes together
    processes: int = 128  # threads among them
    output_bytes: int = 10 * MB
    file_bytes: int = 1024 * MB  # largest file that it may write
    free_bytes: int = 500 * MB  # left on the disk; a command that leaves less is stopped, and none is started


class Stopped(StrEnum):
    """Why we ended a command that had not ended by itself."""

    TIME = "time"
    CPU = "cpu"
    MEMORY = "memory"
    PROCESSES = "processes"
    OUTPUT = "output"
    DISK = "disk"
