"""Start a command under bubblewrap, with restricted files, privileges and resources. SB-13

Owns the arguments of `bwrap` and the file descriptors that they refer to. The command sees a read-only
`/usr`, a generated `/etc`, its own processes in `/proc`, five devices and its workspace. Its environment is
`PATH` and the secrets of its action. `command` waits for the command and ends it.

Where Easel runs as root, the command runs as `uid` on the host. That user owns only the folders of sessions,
and the kernel enforces the limit on processes for that user, but not for root.
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
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from easel.sandbox import seccomp
from easel.sandbox.limits import CommandLimits
from easel.sandbox.workspace import WORKSPACE, Root, Workspace

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
INNER_UID = 1000  # uid and gid of the command inside the sandbox; they can differ from those on the host
DEVICES = ("null", "zero", "full", "random", "urandom")
TEMPORARY_BYTES = 64 * 1024 * 1024  # size of a /tmp that is removed when its command ends
MAX_OPEN_FILES = 256
PROBE_SECONDS = 10.0
LOW_PRIORITY, LOWEST_PRIORITY = 10, 19
VISIBLE_PROC = frozenset({"self", "thread-self", "mounts", "net"})
# Parts of the runtime that Debian keeps outside of /usr: links to the chosen alternatives (such as `awk`) and
# the cache of the dynamic linker.
VISIBLE_ETC = ("/etc/alternatives", "/etc/ld.so.cache")
VISIBLE_WITH_NETWORK = (
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/etc/ssl/certs",
    "/etc/ca-certificates",
    "/etc/pki",
)

# Runs inside the sandbox: sets the limits, unless stricter ones are already set, and runs the command with a
# lower priority.
LIMIT_SCRIPT = """
lower() {{ ulimit "$1" "$2" 2>/dev/null || [ "$(ulimit -H "$1")" != unlimited ]; }}
lower -c 0 && lower -n {files} && lower -f {file_kib} && lower -d {memory_kib} && lower -t {cpu} &&
  {processes} &&
  exec nice -n {nice} /bin/bash --noprofile --norc -c "$1"
"""
# Runs outside the sandbox, before `bwrap`: makes the kernel kill the command first if memory runs out.
OOM_SCRIPT = """
{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null
exec "$@"
"""
# Runs as root in a new mount namespace: mounts the session's folder at /tmp, where `uid` can reach it, and
# then runs `bwrap` as `uid`.
DROP_ROOT_SCRIPT = """
mount=$1 setpriv=$2 folder=$3 uid=$4
shift 4
"$mount" --bind "$folder" /tmp &&
  exec "$setpriv" --reuid "$uid" --regid "$uid" --clear-groups --no-new-privs -- "$@"
"""


def limit_script(limits: CommandLimits, *, processes: bool) -> str:
    """Return the script that sets the limits and runs the command.

    Without `processes` the script sets no kernel limit on processes: the kernel has none for root, and for
    another user it would count all processes of that user. Only the watch of `command` then limits them, and
    the command gets the lowest priority so that the watch still gets CPU time.
    """
    return LIMIT_SCRIPT.format(
        files=MAX_OPEN_FILES,
        file_kib=max(1, limits.file_bytes // 1024),
        # Memory that one process may allocate. The watch enforces half of that for all processes together.
        memory_kib=2 * limits.memory_bytes // 1024,
        cpu=ceil(limits.cpu_seconds),
        processes=f"lower -u {limits.processes}" if processes else ":",
        nice=LOW_PRIORITY if processes else LOWEST_PRIORITY,
    )


@dataclass(frozen=True, slots=True)
class Launch:
    """A program to start. Its `descriptors` are inherited by the program and closed when the block ends.

    `status` is the pipe on which bubblewrap reports its child. Closing the pipe `lifeline` makes the reaper
    kill all processes of the command. The caller must close both pipes.
    """

    argv: Sequence[str]
    descriptors: Sequence[int]
    status: int | None = None
    cwd: str = "/"
    lifeline: int | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])  # of the program in addition to PATH

    def __enter__(self) -> "Launch":
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    program: str
    uid: int | None  # the uid of commands on the host; None: the uid of this process
    unshare: str = ""
    mount: str = ""
    setpriv: str = ""

    name = "bwrap"

    def launch(
        self,
        command: str,
        workspace: Workspace,
        cwd: str,
        limits: CommandLimits,
        *,
        network: bool,
        env: Mapping[str, str],
    ) -> Launch:
        roots = workspace.roots
        prefix = ["/bin/sh", "-c", OOM_SCRIPT, "sh"]
        limits_processes = os.geteuid() != 0
        if self.uid is not None and workspace.owner == self.uid:
            limits_processes = True
            [root] = roots
            # DROP_ROOT_SCRIPT mounts the folder at /tmp in a mount namespace of this command.
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
            etc = [("--ro-bind-data", data(text), f"/etc/{name}") for name, text in ETC.items()]
            binds = [("--bind", str(root.folder), root.visible_path) for root in outer_first(roots)]
            arguments = [
                *_namespaces(network=network),
                *(part for name, value in env.items() for part in ("--setenv", name, value)),
                *("--json-status-fd", str(status_writer)),
                *_system(network=network),
                *(part for file in etc for part in file),
                *_proc({name: data(text) for name, text in fake_proc_files(limits).items()}),
                *_devices(),
                *_temporary(workspace),
                *(part for bind in binds for part in bind),
                *("--remount-ro", "/", "--chdir", cwd),
            ]
            if (filtered := seccomp.program(platform.machine())) is not None:
                arguments += ["--seccomp", data(filtered)]
            # The arguments name folders of the host and have the values of secrets, so they are passed in a
            # file that only bubblewrap reads: its command line is visible inside the sandbox.
            argv = [*prefix, self.program, "--args", data(_encode_arguments(arguments)), "--"]
            script = limit_script(limits, processes=limits_processes)
            argv += ["/bin/bash", "--noprofile", "--norc", "-c", script, "bash", command]
            undo.pop_all()
            return Launch(argv, inherited, status)


def probe(uid: int) -> Bubblewrap | str:
    """Run a test command under bubblewrap. Returns the launcher, or why bubblewrap does not work. RS-61"""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed; install the package `bubblewrap` and start Easel again"
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
            "echo works > probe && cat probe", workspace, WORKSPACE, CommandLimits(), network=False, env={}
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


# --- the file system and namespaces of a command ------------------------------------------------------------


def _namespaces(*, network: bool) -> list[str]:
    identity = ["--uid", str(INNER_UID), "--gid", str(INNER_UID), "--hostname", "sandbox"]
    return [
        *("--die-with-parent", "--new-session", "--unshare-all", "--unshare-user", "--disable-userns"),
        *(["--share-net"] if network else []),
        *identity,
        *("--cap-drop", "ALL", "--clearenv", "--setenv", "PATH", PATH),
    ]


def _system(*, network: bool) -> list[str]:
    """Return the arguments that mount the runtime read-only and hide the packages of Easel."""
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
    """Return the folders of the runtime that hold Easel and its packages, which are hidden from commands."""
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


def fake_proc_files(limits: CommandLimits) -> Mapping[str, bytes]:
    """Return replacements for the /proc files that `ps` and `free` read, without values of the host."""
    processors = os.cpu_count() or 1
    sizes = dict.fromkeys(("MemTotal", "MemFree", "MemAvailable"), limits.memory_bytes // 1024)
    sizes |= dict.fromkeys(("Buffers", "Cached", "SwapTotal", "SwapFree"), 0)
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
    """Return the arguments that mount a read-only /proc with the command's own processes. SB-05

    Files about the machine are replaced by `fake_files` or hidden.
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
    """Return the arguments for /tmp: a link into the workspace, or a tmpfs for this command only."""
    if workspace.temporary is not None:
        return ["--symlink", workspace.temporary, "/tmp"]  # noqa: S108
    return ["--perms", "1777", "--size", str(TEMPORARY_BYTES), "--tmpfs", "/tmp"]  # noqa: S108


def outer_first(roots: Sequence[Root]) -> list[Root]:
    """Sort outer folders before inner ones: an outer folder mounted later would hide the inner one."""
    return sorted(roots, key=lambda root: len(Path(root.visible_path).parts))


def _encode_arguments(arguments: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
