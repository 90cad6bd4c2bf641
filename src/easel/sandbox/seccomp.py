"""A seccomp filter, loaded by bubblewrap, that blocks system calls of a sandboxed command.

Namespaces hide files, processes and the network. The filter blocks access that namespaces leave open: the
host's keyring, the memory of other processes, memory that no limit counts (`memfd_create`, System V
segments), networks without a namespace (vsock), and rarely used calls with a history of kernel bugs. A
blocked call fails with an error such as EPERM, so that programs can fall back or report it.

Filters exist for x86-64 and 64-bit ARM. On other machines the namespaces are the only protection.
"""

import struct
from collections.abc import Mapping

# Numbers of each call on x86-64 and aarch64; None: the architecture does not have the call.
BLOCKED_SYSCALLS: Mapping[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # the kernel's keyrings, which are not separated by namespaces
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # memory that is not counted as memory of a process
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    # large attack surfaces that commands do not need
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "syslog": (103, 116),
    "acct": (163, 89),
    "quotactl": (179, 60),
    # mounts and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "unshare": (272, 97),
    # the machine itself
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "iopl": (172, None),
    "ioperm": (173, None),
}
SOCKET = (41, 198)
FAMILIES = (1, 2, 10, 16)  # allowed: unix, IPv4, IPv6 and netlink sockets, which a network namespace confines

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32 = 0x40000000  # bit of call numbers in the x32 ABI, which would bypass the filter

_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data, little endian
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _DENY, _NO_SUCH_FAMILY, _NO_SUCH_CALL = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 97, 0x00050000 | 38


def program(machine: str) -> bytes | None:
    """Return the filter for a machine named by `platform.machine()`, None if there is no filter for it."""
    if machine not in _ARCHITECTURES:
        return None
    column, architecture = _ARCHITECTURES[machine]
    blocked = [number for numbers in BLOCKED_SYSCALLS.values() if (number := numbers[column]) is not None]
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_IF_EQUAL, architecture, then=1),
        _step(_RETURN, _NO_SUCH_CALL),
        _step(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        steps += [_step(_IF_AT_LEAST, _X32, otherwise=1), _step(_RETURN, _NO_SUCH_CALL)]
    for number in blocked:
        steps += [_step(_IF_EQUAL, number, otherwise=1), _step(_RETURN, _DENY)]
    steps += [_step(_IF_EQUAL, SOCKET[column], then=1), _step(_RETURN, _ALLOW), _step(_LOAD, _FIRST_ARGUMENT)]
    for family in FAMILIES:
        steps += [_step(_IF_EQUAL, family, otherwise=1), _step(_RETURN, _ALLOW)]
    return b"".join([*steps, _step(_RETURN, _NO_SUCH_FAMILY)])


def _step(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    """Encode one classic BPF instruction; `then` and `otherwise` count the instructions to skip."""
    return struct.pack("<HBBI", code, then, otherwise, value)
