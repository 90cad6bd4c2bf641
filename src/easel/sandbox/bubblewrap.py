"""How a command is started under bubblewrap: what it sees, what it may do, and how it learns its limits. SB-13

Owns the arguments of `bwrap` and the descriptors that go with them. The command sees a read-only `/usr`, an `/etc` of our own
making, a `/proc` of its own processes and nothing else, five devices, and its place; the environment is `PATH` alone. Waiting for it and
ending it is `shell`'s business.

Where Easel runs as root, the command does not: it is started as `uid` on the host, which has nothing anywhere but its session's
folders. That is also what makes the kernel keep the limit on processes, which never binds root.
"""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from types import TracebackType

from easel.sandbox import seccomp
from easel.sandbox.limits import CommandLimits
from easel.sandbox.workspace import WORKSPACE, Root, Workspace

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
MARK = "EASEL_COMMAND"
INSIDE = 1000  # who the command is to itself, whoever it is on the host
DEVICES = ("null", "zero", "full", "random", "urandom")
TEMPORARY_BYTES = 64 * 1024 * 1024  # of a /tmp that goes with its command
OPEN_FILES = 256
PROBE_SECONDS = 10.0
NICE, NICEST = 10, 19
SEEN_OF_PROC = frozenset({"self", "thread-self", "mounts", "net"})
# Runtime that Debian keeps outside of /usr: the choice between awks, the cache of libraries.
SEEN_OF_ETC = ("/etc/alternatives", "/etc/ld.so.cache")
SEEN_WITH_NETWORK = (
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/etc/ssl/certs",
    "/etc/ca-certificates",
    "/etc/pki",
)

# What runs first inside. It takes on its limits, unless it has stricter ones, and a lower priority, and becomes the command.
LIMITED = """
lower() {{ ulimit "$1" "$2" 2>/dev/null || [ "$(ulimit -H "$1")" != unlimited ]; }}
lower -c 0 && lower -n {files} && lower -f {file_kib} && lower -d {memory_kib} && lower -t {cpu} && {processes} &&
  exec nice -n {nice} /bin/bash --noprofile --norc -c "$1"
"""
# What starts it outside: should the machine run out of memory all the same, it takes this before anyone else.
FIRST = """
{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null
exec "$@"
"""
# As root: the place is put where `uid` can reach it, in a mount namespace of its own, and then root is left behind.
LEAVING_ROOT = """
mount=$1 setpriv=$2 folder=$3 uid=$4
shift 4
"$mount" --bind "$folder" /tmp && exec "$setpriv" --reuid "$uid" --regid "$uid" --clear-groups --no-new-privs -- "$@"
"""


def limited(limits: CommandLimits, *, processes: bool) -> str:
    """Without `processes` the kernel keeps no limit on them: it has none for root, and would count all that another user runs.

    Then only the watch does, and the command has the lowest priority, so that the watch comes to look before it is crowded out.
    """
    return LIMITED.format(
        files=OPEN_FILES,
        file_kib=max(1, limits.file_bytes // 1024),
        memory_kib=2
        * limits.memory_bytes
        // 1024,  # that it may ask for; what all use together is watched, and half of it
        cpu=ceil(limits.cpu_seconds),
        processes=f"lower -u {limits.processes}" if processes else ":",
        nice=NICE if processes else NICEST,
    )


class Launch:
    """What to start, with the descriptors it needs, which are closed when the block ends."""

    def __init__(
        self,
        argv: Sequence[str],
        descriptors: Sequence[int] = (),
        status: int | None = None,
        *,
        cwd: str = "/",
        mark: str = "",
        lifeline: int | None = None,
    ) -> None:
        self.argv = argv
        self.descriptors = descriptors  # handed to the child
        self.status = status  # where bubblewrap tells of its child; whoever reads it closes it
        self.cwd = cwd
        self.mark = mark  # in the environment of all its processes, where no namespace holds them together
        self.lifeline = (
            lifeline  # all of it ends when this is closed, as it is when we die; whoever runs it does that
        )

    def __enter__(self) -> "Launch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    program: str
    uid: int | None  # whom commands are on the host; None: whoever Easel is
    unshare: str = ""
    mount: str = ""
    setpriv: str = ""

    name = "bwrap"

    def launch(
        self, command: str, place: Workspace, cwd: str, limits: CommandLimits, *, network: bool
    ) -> Launch:
        roots = place.roots
        before = ["/bin/sh", "-c", FIRST, "sh"]
        is_bound = os.geteuid() != 0
        if self.uid is not None and place.owner == self.uid:
            is_bound = True
            [root] = roots
            roots = (Root(root.at, Path("/tmp")),)  # noqa: S108 - of a mount namespace that only this command has
            before += [
                self.unshare,
                "--mount",
                "--propagation",
                "private",
                "--",
                "/bin/sh",
                "-c",
                LEAVING_ROOT,
                "sh",
            ]
            before += [self.mount, self.setpriv, str(root.folder), str(self.uid)]
        with ExitStack() as undo:
            open_now: list[int] = []

            def data(content: bytes) -> str:
                descriptor = os.memfd_create("easel")
                undo.callback(os.close, descriptor)
                open_now.append(descriptor)
                os.write(descriptor, content)
                os.lseek(descriptor, 0, os.SEEK_SET)
                return str(descriptor)

            status, told = os.pipe()
            undo.callback(os.close, status)
            undo.callback(os.close, told)
            open_now.append(told)
            arguments = [
                *_namespaces(network=network),
                *("--json-status-fd", str(told)),
                *_system(network=network),
                *_etc({name: data(text) for name, text in ETC.items()}),
                *_proc({name: data(text) for name, text in stand_ins(limits).items()}),
                *_devices(),
                *_temporary(place),
                *(part for root in roots_in_order(roots) for part in ("--bind", str(root.folder), root.at)),
                *("--remount-ro", "/", "--chdir", cwd),
            ]
            if (filtered := seccomp.program(platform.machine())) is not None:
                arguments += ["--seccomp", data(filtered)]
            # In a file that only bubblewrap reads: its command line can be seen inside, and names folders of the host.
            argv = [*before, self.program, "--args", data(_joined(arguments)), "--"]
            argv += [
                "/bin/bash",
                "--noprofile",
                "--norc",
                "-c",
                limited(limits, processes=is_bound),
                "bash",
                command,
            ]
            undo.pop_all()
            return Launch(argv, open_now, status)


def find(uid: int) -> Bubblewrap | str:
    """Bubblewrap as it works here, found out by using it; or why it does not. RS-61"""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed; install the package `bubblewrap`"
    if os.geteuid() != 0:
        return _tried(Bubblewrap(program, None))
    tools = {name: shutil.which(name) for name in ("unshare", "mount", "setpriv")}
    missing = [name for name, path in tools.items() if path is None]
    if missing:
        return f"{', '.join(missing)} not found; install the package `util-linux`"
    return _tried(Bubblewrap(program, uid, **{name: path for name, path in tools.items() if path}))


def _tried(one: Bubblewrap) -> Bubblewrap | str:
    with tempfile.TemporaryDirectory(prefix="easel-probe-") as folder:
        if one.uid is not None:
            os.chown(folder, one.uid, one.uid)
        place = Workspace((Root(WORKSPACE, Path(folder)),), "probe", owner=one.uid)
        with one.launch(
            "echo works > probe && cat probe", place, WORKSPACE, CommandLimits(), network=False
        ) as launch:
            assert launch.status is not None
            try:
                done = subprocess.run(  # noqa: S603 - our own arguments
                    launch.argv,
                    pass_fds=launch.descriptors,
                    env={},
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=PROBE_SECONDS,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as problem:
                return f"bubblewrap does not work here ({problem})"
            finally:
                os.close(launch.status)
    if done.returncode or done.stdout != b"works\n":
        said = (done.stderr or done.stdout).decode(errors="replace").strip()[:300]
        return f"bubblewrap does not work here ({said or f'it ended with {done.returncode}'})"
    return one


# --- what a command sees ----------------------------------------------------------------------------------------------


def _namespaces(*, network: bool) -> list[str]:
    principal = ["--uid", str(INSIDE), "--gid", str(INSIDE), "--hostname", "sandbox"]
    return [
        *("--die-with-parent", "--new-session", "--unshare-all", "--unshare-user", "--disable-userns"),
        *(["--share-net"] if network else []),
        *principal,
        *("--cap-drop", "ALL", "--clearenv", "--setenv", "PATH", PATH),
    ]


def _system(*, network: bool) -> list[str]:
    """The runtime, read-only, without what Easel itself is installed from."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        if Path(name).is_symlink():
            arguments += ["--symlink", str(Path(name).readlink()), name]
        elif Path(name).is_dir():
            arguments += ["--ro-bind", name, name]
    for seen in (*SEEN_OF_ETC, *(SEEN_WITH_NETWORK if network else ())):
        arguments += ["--ro-bind-try", seen, seen]
    for folder in our_own_code():
        arguments += ["--tmpfs", folder, "--remount-ro", folder]
    return arguments


def our_own_code() -> list[str]:
    """Folders of the runtime that hold the packages Easel runs from: nobody's business inside."""
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(Path(__file__).parents[2])}
    if sys.prefix != sys.base_prefix:
        ours.add(sys.prefix)
    real = sorted({os.path.realpath(one) for one in ours})
    return [
        one
        for one in real
        if one.startswith(("/usr/", "/lib", "/bin/"))
        and not any(one.startswith(other + "/") for other in real)
    ]


ETC: Mapping[str, bytes] = {
    "passwd": f"easel:x:{INSIDE}:{INSIDE}::{WORKSPACE}:/bin/bash\n".encode(),
    "group": f"easel:x:{INSIDE}:\n".encode(),
}


def _etc(files: Mapping[str, str]) -> list[str]:
    return [
        part for name, descriptor in files.items() for part in ("--ro-bind-data", descriptor, f"/etc/{name}")
    ]


def stand_ins(limits: CommandLimits) -> Mapping[str, bytes]:
    """What `ps` and `free` read, saying nothing of the host."""
    processors = os.cpu_count() or 1
    kib = limits.memory_bytes // 1024
    idle = "".join(f"cpu{number} 0 0 0 0 0 0 0 0 0 0\n" for number in range(processors))
    return {
        "cpuinfo": "".join(f"processor\t: {number}\n\n" for number in range(processors)).encode(),
        "loadavg": b"0.00 0.00 0.00 1/1 1\n",
        "meminfo": f"MemTotal: {kib} kB\nMemFree: {kib} kB\nMemAvailable: {kib} kB\nBuffers: 0 kB\nCached: 0 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n".encode(),
        "stat": f"cpu 0 0 0 0 0 0 0 0 0 0\n{idle}ctxt 0\nbtime 0\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n".encode(),
        "uptime": b"0.00 0.00\n",
    }


def _proc(stand_in: Mapping[str, str]) -> list[str]:
    """The command's own processes; all that the kernel tells of the machine is covered, and nothing can be written. SB-05"""
    arguments = ["--proc", "/proc"]
    for entry in sorted(Path("/proc").iterdir()):
        name, inside = entry.name, str(entry)
        if name.isdigit() or name in SEEN_OF_PROC:
            continue
        if name in stand_in:
            arguments += ["--ro-bind-data", stand_in[name], inside]
        elif entry.is_dir():
            arguments += ["--tmpfs", inside, "--remount-ro", inside]
        else:
            arguments += ["--ro-bind", "/dev/null", inside]
    return [*arguments, "--remount-ro", "/proc"]


def _devices() -> list[str]:
    arguments = [part for name in DEVICES for part in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
    links = {
        "fd": "/proc/self/fd",
        "stdin": "/proc/self/fd/0",
        "stdout": "/proc/self/fd/1",
        "stderr": "/proc/self/fd/2",
        "shm": "/tmp",  # noqa: S108 - a path inside the sandbox
    }
    return [
        *arguments,
        *(part for name, target in links.items() for part in ("--symlink", target, f"/dev/{name}")),
    ]


def _temporary(place: Workspace) -> list[str]:
    """A session's /tmp lies in its folder: so that folder is the only thing to be written, and outlasts the command."""
    if place.temporary is not None:
        return ["--symlink", place.temporary, "/tmp"]  # noqa: S108
    return ["--perms", "1777", "--size", str(TEMPORARY_BYTES), "--tmpfs", "/tmp"]  # noqa: S108


def roots_in_order(roots: Sequence[Root]) -> list[Root]:
    """Outer folders first: mounting one over its inner one would hide it."""
    return sorted(roots, key=lambda root: len(Path(root.at).parts))


def _joined(arguments: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
