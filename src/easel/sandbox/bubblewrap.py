"""Start a command under bubblewrap: what it sees, what it may do, and its limits. SB-13

Owns the arguments of `bwrap` and the descriptors that belong to them. The command sees a read-only `/usr`, a
generated `/etc`, its own processes in `/proc`, five devices and its workspace; its environment is `PATH`
alone. Waiting for it and ending it is the job of `command`.

Where Easel runs as root, the command runs as `uid` on the host, which owns only the folders of sessions. That
also makes the kernel enforce the limit on processes, which it does not for root.
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
INNER_UID = 1000  # the uid and gid of the command as it sees them, whatever they are on the host
DEVICES = ("null", "zero", "full", "random", "urandom")
TEMPORARY_BYTES = 64 * 1024 * 1024  # of a /tmp that is removed with its command
MAX_OPEN_FILES = 256
PROBE_SECONDS = 10.0
LOW_PRIORITY, LOWEST_PRIORITY = 10, 19
VISIBLE_PROC = frozenset({"self", "thread-self", "mounts", "net"})
# Parts of the runtime that Debian keeps outside of /usr: the choice between awks, the cache of libraries.
VISIBLE_ETC = ("/etc/alternatives", "/etc/ld.so.cache")
VISIBLE_WITH_NETWORK = (
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/etc/ssl/certs",
    "/etc/ca-certificates",
    "/etc/pki",
)

# Runs first inside the sandbox: sets the limits, unless stricter ones are set already, and a lower priority,
# then runs the command.
LIMIT_SCRIPT = """
lower() {{ ulimit "$1" "$2" 2>/dev/null || [ "$(ulimit -H "$1")" != unlimited ]; }}
lower -c 0 && lower -n {files} && lower -f {file_kib} && lower -d {memory_kib} && lower -t {cpu} &&
  {processes} &&
  exec nice -n {nice} /bin/bash --noprofile --norc -c "$1"
"""
# Runs outside: makes the command the first victim if the machine runs out of memory.
OOM_SCRIPT = """
{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null
exec "$@"
"""
# As root: mounts the folder where `uid` can reach it, in a mount namespace of its own, and drops root.
DROP_ROOT_SCRIPT = """
mount=$1 setpriv=$2 folder=$3 uid=$4
shift 4
"$mount" --bind "$folder" /tmp &&
  exec "$setpriv" --reuid "$uid" --regid "$uid" --clear-groups --no-new-privs -- "$@"
"""


def limit_script(limits: CommandLimits, *, processes: bool) -> str:
    """Return the script that sets the limits and runs the command.

    Without `processes` the kernel does not limit their number: it has no limit for root, and would count all
    processes of another user. Then only the watch does, and the command has the lowest priority so that the
    watch still gets CPU time.
    """
    return LIMIT_SCRIPT.format(
        files=MAX_OPEN_FILES,
        file_kib=max(1, limits.file_bytes // 1024),
        # Address space of one process; the watch stops the command when all together use half of it.
        memory_kib=2 * limits.memory_bytes // 1024,
        cpu=ceil(limits.cpu_seconds),
        processes=f"lower -u {limits.processes}" if processes else ":",
        nice=LOW_PRIORITY if processes else LOWEST_PRIORITY,
    )


class Launch:
    """A program to start, with the descriptors that it inherits; they are closed when the block ends.

    `status` is the pipe on which bubblewrap reports its child, and `lifeline` the pipe whose end makes the
    reaper kill everything; the caller closes both.
    """

    def __init__(
        self,
        argv: Sequence[str],
        descriptors: Sequence[int] = (),
        status: int | None = None,
        *,
        cwd: str = "/",
        lifeline: int | None = None,
    ) -> None:
        self.argv = argv
        self.descriptors = descriptors
        self.status = status
        self.cwd = cwd
        self.lifeline = lifeline

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
    uid: int | None  # the uid of commands on the host; None: that of this process
    unshare: str = ""
    mount: str = ""
    setpriv: str = ""

    name = "bwrap"

    def launch(
        self, command: str, workspace: Workspace, cwd: str, limits: CommandLimits, *, network: bool
    ) -> Launch:
        roots = workspace.roots
        prefix = ["/bin/sh", "-c", OOM_SCRIPT, "sh"]
        limits_processes = os.geteuid() != 0
        if self.uid is not None and workspace.owner == self.uid:
            limits_processes = True
            [root] = roots
            # /tmp of a mount namespace that only this command has.
            roots = (Root(root.visible_path, Path("/tmp")),)  # noqa: S108
            prefix += [self.unshare, "--mount", "--propagation", "private", "--"]
            prefix += ["/bin/sh", "-c", DROP_ROOT_SCRIPT, "sh"]
            prefix += [self.mount, self.setpriv, str(root.folder), str(self.uid)]
        with ExitStack() as undo:
            inherited: list[int] = []

            def data(content: bytes) -> str:
                descriptor = os.memfd_create("easel")
                undo.callback(os.close, descriptor)
                inherited.append(descriptor)
                os.write(descriptor, content)
                os.lseek(descriptor, 0, os.SEEK_SET)
                return str(descriptor)

            status, status_writer = os.pipe()
            undo.callback(os.close, status)
            undo.callback(os.close, status_writer)
            inherited.append(status_writer)
            binds = [("--bind", str(root.folder), root.visible_path) for root in outer_first(roots)]
            arguments = [
                *_namespaces(network=network),
                *("--json-status-fd", str(status_writer)),
                *_system(network=network),
                *_etc({name: data(text) for name, text in ETC.items()}),
                *_proc({name: data(text) for name, text in fake_proc_files(limits).items()}),
                *_devices(),
                *_temporary(workspace),
                *(part for bind in binds for part in bind),
                *("--remount-ro", "/", "--chdir", cwd),
            ]
            if (filtered := seccomp.program(platform.machine())) is not None:
                arguments += ["--seccomp", data(filtered)]
            # In a file that only bubblewrap reads: its command line is visible inside, and names folders of
            # the host.
            argv = [*prefix, self.program, "--args", data(_encode_arguments(arguments)), "--"]
            script = limit_script(limits, processes=limits_processes)
            argv += ["/bin/bash", "--noprofile", "--norc", "-c", script, "bash", command]
            undo.pop_all()
            return Launch(argv, inherited, status)


def probe(uid: int) -> Bubblewrap | str:
    """Run a command under bubblewrap. Returns the launcher, or the reason why it does not work. RS-61"""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed; install the package `bubblewrap`"
    if os.geteuid() != 0:
        return _probe(Bubblewrap(program, None))
    tools = {name: shutil.which(name) for name in ("unshare", "mount", "setpriv")}
    missing = [name for name, path in tools.items() if path is None]
    if missing:
        return f"{', '.join(missing)} not found; install the package `util-linux`"
    return _probe(Bubblewrap(program, uid, **{name: path for name, path in tools.items() if path}))


def _probe(launcher: Bubblewrap) -> Bubblewrap | str:
    with tempfile.TemporaryDirectory(prefix="easel-probe-") as folder:
        if launcher.uid is not None:
            os.chown(folder, launcher.uid, launcher.uid)
        workspace = Workspace((Root(WORKSPACE, Path(folder)),), "probe", owner=launcher.uid)
        with launcher.launch(
            "echo works > probe && cat probe", workspace, WORKSPACE, CommandLimits(), network=False
        ) as launch:
            assert launch.status is not None
            try:
                completed = subprocess.run(  # noqa: S603 - our own arguments
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
    if completed.returncode or completed.stdout != b"works\n":
        message = (completed.stderr or completed.stdout).decode(errors="replace").strip()[:300]
        return f"bubblewrap does not work here ({message or f'exit code {completed.returncode}'})"
    return launcher


# --- what a command sees ------------------------------------------------------------------------------------


def _namespaces(*, network: bool) -> list[str]:
    identity = ["--uid", str(INNER_UID), "--gid", str(INNER_UID), "--hostname", "sandbox"]
    return [
        *("--die-with-parent", "--new-session", "--unshare-all", "--unshare-user", "--disable-userns"),
        *(["--share-net"] if network else []),
        *identity,
        *("--cap-drop", "ALL", "--clearenv", "--setenv", "PATH", PATH),
    ]


def _system(*, network: bool) -> list[str]:
    """Show the runtime read-only, without the packages of Easel."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        if Path(name).is_symlink():
            arguments += ["--symlink", str(Path(name).readlink()), name]
        elif Path(name).is_dir():
            arguments += ["--ro-bind", name, name]
    for path in (*VISIBLE_ETC, *(VISIBLE_WITH_NETWORK if network else ())):
        arguments += ["--ro-bind-try", path, path]
    for folder in own_code_folders():
        arguments += ["--tmpfs", folder, "--remount-ro", folder]
    return arguments


def own_code_folders() -> list[str]:
    """Return the folders of the runtime that hold Easel and its packages; commands must not see them."""
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(Path(__file__).parents[2])}
    if sys.prefix != sys.base_prefix:
        folders.add(sys.prefix)
    real = sorted({os.path.realpath(path) for path in folders})
    return [
        path
        for path in real
        if path.startswith(("/usr/", "/lib", "/bin/"))
        and not any(path.startswith(other + "/") for other in real)
    ]


ETC: Mapping[str, bytes] = {
    "passwd": f"easel:x:{INNER_UID}:{INNER_UID}::{WORKSPACE}:/bin/bash\n".encode(),
    "group": f"easel:x:{INNER_UID}:\n".encode(),
}


def _etc(files: Mapping[str, str]) -> list[str]:
    return [
        part for name, descriptor in files.items() for part in ("--ro-bind-data", descriptor, f"/etc/{name}")
    ]


def fake_proc_files(limits: CommandLimits) -> Mapping[str, bytes]:
    """Return the files of /proc that `ps` and `free` read, without values of the host."""
    processors = os.cpu_count() or 1
    kib = limits.memory_bytes // 1024
    sizes = {
        "MemTotal": kib,
        "MemFree": kib,
        "MemAvailable": kib,
        "Buffers": 0,
        "Cached": 0,
        "SwapTotal": 0,
        "SwapFree": 0,
    }
    idle = "".join(f"cpu{number} 0 0 0 0 0 0 0 0 0 0\n" for number in range(processors))
    counters = "ctxt 0\nbtime 0\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n"
    return {
        "cpuinfo": "".join(f"processor\t: {number}\n\n" for number in range(processors)).encode(),
        "loadavg": b"0.00 0.00 0.00 1/1 1\n",
        "meminfo": "".join(f"{name}: {size} kB\n" for name, size in sizes.items()).encode(),
        "stat": f"cpu 0 0 0 0 0 0 0 0 0 0\n{idle}{counters}".encode(),
        "uptime": b"0.00 0.00\n",
    }


def _proc(fake_files: Mapping[str, str]) -> list[str]:
    """Show the command's own processes; cover the files about the machine, and make everything read-only.
    SB-05
    """
    arguments = ["--proc", "/proc"]
    for entry in sorted(Path("/proc").iterdir()):
        name, inside = entry.name, str(entry)
        if name.isdigit() or name in VISIBLE_PROC:
            continue
        if name in fake_files:
            arguments += ["--ro-bind-data", fake_files[name], inside]
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


def _temporary(workspace: Workspace) -> list[str]:
    """Link a session's /tmp into its folder, so that nothing else is writable and it outlasts the command."""
    if workspace.temporary is not None:
        return ["--symlink", workspace.temporary, "/tmp"]  # noqa: S108
    return ["--perms", "1777", "--size", str(TEMPORARY_BYTES), "--tmpfs", "/tmp"]  # noqa: S108


def outer_first(roots: Sequence[Root]) -> list[Root]:
    """Sort outer folders first: mounted later, they would hide the inner ones."""
    return sorted(roots, key=lambda root: len(Path(root.visible_path).parts))


def _encode_arguments(arguments: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
