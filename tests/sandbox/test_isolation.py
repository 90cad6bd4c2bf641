"""A command under bubblewrap sees its session folder and the runtime, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from easel.errors import ToolFailed
from easel.ids import AccountId
from easel.sandbox.seccomp import BLOCKED_SYSCALLS
from tests.requirements import case, rule
from tests.sandbox.conftest import Machine, context
from tests.sandbox.processes import kill_runner, new_nap, wait_for_sleepers

if TYPE_CHECKING:
    from collections.abc import Generator

    from easel.sandbox.modes import Choice

pytestmark = pytest.mark.bwrap

COLUMN = ("x86_64", "aarch64").index(platform.machine())  # in tables of system calls
PROGRAM = Path(__file__).parents[2] / "src" / "easel"


@rule("SB-02")
async def test_session_cannot_read_or_write_files_of_another(machine: Machine) -> None:
    await machine.use("Write", "b", path="secret", content="of b")
    secret = machine.folder("b") / "secret"
    for path in (
        secret,
        f"/workspace/../{secret}",
        f"../{machine.folder('b').name}/secret",
        f"/proc/1/root{secret}",
        f"/proc/self/cwd/..{secret}",
    ):
        result = await machine.bash(f"cat {path}; echo changed > {path}", "a")
        assert "of b" not in result["output"]
        assert result["exit_code"] != 0
    assert secret.read_text() == "of b"
    assert "of b" not in await machine.output_of(
        "find / \\( -path /proc -o -path /usr \\) -prune -o -name secret -print 2>/dev/null | xargs -r cat",
        "a",
    )


@rule("SB-02", "RX-54")
async def test_sessions_of_two_users_with_the_same_name_have_two_folders(machine: Machine) -> None:
    await machine.bash("echo mine > note", "main", AccountId("ann"))
    result = await machine.bash("cat note", "main", AccountId("bob"))
    assert result["exit_code"] != 0


@rule("SB-02")
async def test_session_keeps_its_files(machine: Machine) -> None:
    await machine.bash("mkdir deep && echo kept > deep/note && echo also > /tmp/note")
    assert await machine.output_of("cat deep/note /tmp/note") == "kept\nalso\n"


@rule("SB-03", "SB-13")
async def test_environment_has_only_path(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EASEL_TOKEN", "secret-of-the-host")
    monkeypatch.setenv("HOME", str(machine.root))
    # Bash itself sets PWD, SHLVL and _; `exec` shows the environment that bash inherited.
    inherited = await machine.output_of(
        "exec python3 -c \"print(*sorted(open('/proc/1/environ').read().split(chr(0))), sep='\\n')\""
    )
    assert {line.partition("=")[0] for line in inherited.split()} <= {"PATH", "PWD"}
    assert {line.partition("=")[0] for line in (await machine.output_of("env")).split()} == {
        "PATH",
        "PWD",
        "SHLVL",
        "_",
    }
    assert "secret-of-the-host" not in await machine.output_of("cat /proc/*/environ | tr '\\0' '\\n'")


@rule("SB-03")
async def test_only_a_minimal_runtime_of_the_host_is_visible(machine: Machine) -> None:
    assert set((await machine.output_of("ls -A /")).split()) <= {
        *("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr"),
        *("dev", "etc", "proc", "tmp", "workspace"),
    }
    assert set((await machine.output_of("ls -A /etc")).split()) <= {
        "alternatives",
        "ld.so.cache",
        "passwd",
        "group",
    }
    assert await machine.output_of("cat /etc/passwd") == "easel:x:1000:1000::/workspace:/bin/bash\n"
    for path in (
        "/root",
        "/home",
        "/var",
        "/run",
        "/etc/shadow",
        "/etc/hostname",
        Path.home(),
        PROGRAM,
        sys.prefix,
    ):
        assert (await machine.bash(f"ls -d {path}"))["exit_code"] != 0, path
    assert (await machine.output_of("hostname")).strip() != socket.gethostname()


@rule("SB-03")
async def test_packages_of_easel_are_hidden(machine: Machine) -> None:
    result = await machine.bash("python3 -c 'import easel'; python3 -c 'import msgspec'")
    assert result["output"].count("ModuleNotFoundError") == 2, result


@rule("SB-03")
async def test_packages_of_easel_are_hidden_inside_the_runtime(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an image whose system Python has Easel installed."""
    assert await machine.output_of("ls /usr/share") != ""
    monkeypatch.setattr("sysconfig.get_path", lambda _: "/usr/share")
    assert await machine.output_of("ls /usr/share") == ""


@rule("SB-03")
async def test_usual_programs_are_available(machine: Machine) -> None:
    script = """
        set -e
        git init -q .
        git -c user.name=A -c user.email=a@example.org commit -q --allow-empty -m first
        git log --oneline | cat
        printf 'b\\na\\n' | sort | awk '{print NR, $1}'
        python3 -c 'print(sum(range(5)))'
        cat <(echo through a pipe)
        ps -o pid= | head -1 > /dev/null
        mktemp > /dev/null
        echo an error > /dev/stderr
        echo both | tee /dev/stderr
    """
    output = await machine.output_of(script)
    assert "first" in output
    assert output.endswith("1 a\n2 b\n10\nthrough a pipe\nan error\nboth\nboth\n")


@rule("SB-04", "SB-13")
@pytest.mark.parametrize(
    "path",
    [
        "/x",
        "/usr/x",
        "/etc/x",
        "/proc/x",
        "/dev/x",
        "/usr/local/bin/x",
        "../x",
        "/workspace/../x",
        "link/x",
        "absolute",
    ],
)
async def test_write_outside_of_the_folder_fails(machine: Machine, path: str) -> None:
    await machine.output_of("ln -s /usr link && ln -s /etc/passwd absolute")
    result = await machine.bash(f"echo x > {path}")
    assert result["exit_code"] != 0
    assert sorted(path.name for path in machine.folder().iterdir()) == [".tmp", "absolute", "link"]


@rule("SB-04")
async def test_link_to_a_file_of_the_host_is_broken(machine: Machine, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("unchanged")
    result = await machine.bash(f"ln -s {outside} link; cat link; echo x > link")
    assert "unchanged" not in result["output"]
    assert outside.read_text() == "unchanged"


@rule("SB-19")
async def test_file_tools_follow_no_link_of_a_command(machine: Machine) -> None:
    """In the sandbox the link names a file of the sandbox; outside it would name one of the host."""
    await machine.output_of("ln -s /etc/passwd passwd; ln -s / root; ln -s ../../.. up")
    for path in ("passwd", "root/etc/passwd", "up/etc/passwd"):
        for tool, args in (("Read", {}), ("Write", {"content": "x"}), ("Grep", {"pattern": "root"})):
            with pytest.raises(ToolFailed):
                await machine.tools[tool].use({"path": path, **args}, context())


@rule("SB-13", "SB-04")
async def test_session_folder_is_the_only_writable_mount(machine: Machine) -> None:
    mounts = [line.split() for line in (await machine.output_of("cat /proc/self/mountinfo")).splitlines()]
    writable = {fields[4] for fields in mounts if "rw" in fields[5].split(",")}
    assert {path for path in writable if not path.startswith("/dev/")} == {"/workspace"}
    assert {path for path in writable if path.startswith("/dev/")} == {
        f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")
    }


def first_line_of_host(name: str) -> str:
    """Return the first line of the host's file in /proc; empty if the kernel has none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{name}").read_text().strip().partition("\n")[0]
    return ""


@rule("SB-05")
async def test_proc_shows_only_the_command(machine: Machine) -> None:
    pids = [int(pid) for pid in (await machine.output_of("ls /proc")).split() if pid.isdigit()]
    assert max(pids) < 20
    # Every file outside of the folders of processes is empty, or has values of the sandbox.
    contents = await machine.output_of(
        "for f in /proc/[a-z]*; do [ -f $f ] || [ -c $f ] && cat $f 2>/dev/null; done; true"
    )
    assert f"MemTotal: {256 * 1024} kB" in contents
    assert "model name" not in contents
    for name in ("meminfo", "cmdline", "version", "modules", "partitions", "diskstats"):
        content = first_line_of_host(name)
        assert not content or content not in contents, name
    for folder in ("sys", "fs", "bus", "irq", "driver"):
        assert await machine.output_of(f"ls -A /proc/{folder} 2>/dev/null || true") == "", folder


@rule("SB-05")
async def test_proc_is_read_only(machine: Machine) -> None:
    for name in ("self/oom_score_adj", "self/coredump_filter", "sys/kernel/hostname", "sysrq-trigger"):
        assert (await machine.bash(f"echo 1 > /proc/{name}"))["exit_code"] != 0, name


@rule("SB-05")
async def test_sys_is_missing_and_dev_has_five_devices(machine: Machine) -> None:
    assert (await machine.bash("ls /sys"))["exit_code"] != 0
    found = (
        await machine.output_of("cd /dev; for f in *; do [ -L $f ] || stat -c '%n %F' $f; done")
    ).splitlines()
    assert found == [
        f"{name} character special file" for name in ("full", "null", "random", "urandom", "zero")
    ]


@rule("SB-07")
async def test_command_has_no_capabilities(machine: Machine) -> None:
    status = dict(
        line.split(":\t")
        for line in (
            await machine.output_of("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status")
        ).splitlines()
    )
    assert {
        name: int(value, 16) for name, value in status.items() if name.startswith("Cap")
    } == dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0)
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert (await machine.output_of("id -u; id -g")).split() == ["1000", "1000"]


@rule("SB-07")
@pytest.mark.parametrize("call", ["unshare", "clone"])
async def test_user_namespace_cannot_be_created(machine: Machine, call: str) -> None:
    """In a user namespace of its own a process would have every capability."""
    number = {"unshare": (272, 97), "clone": (56, 220)}[call][COLUMN]
    arguments = {"unshare": "0x10000000", "clone": "0x10000011, None, None, None, None"}[call]
    script = f"import ctypes; print(ctypes.CDLL(None).syscall({number}, {arguments}))"
    assert await machine.output_of(f'python3 -c "{script}"') == "-1\n"
    assert (await machine.bash("unshare --user true"))["exit_code"] != 0


@contextlib.contextmanager
def listening(kind: socket.AddressFamily = socket.AF_INET) -> Generator[socket.socket]:
    with socket.socket(kind) as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.setblocking(False)
        yield server


def reach(port: int) -> str:
    return (
        f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 2); print('reached')\""
    )


@rule("SB-08", "SB-13")
async def test_host_network_is_unreachable(machine: Machine) -> None:
    with listening() as server:
        result = await machine.bash(reach(server.getsockname()[1]))
        assert "reached" not in result["output"]
        with pytest.raises(BlockingIOError):
            server.accept()
    interfaces = [
        line.partition(":")[0].strip()
        for line in (await machine.output_of("cat /proc/net/dev")).splitlines()[2:]
    ]
    assert set(interfaces) <= {"lo"} | {
        name for name in interfaces if name.startswith(("sit", "tun", "gre", "ip6", "erspan", "ip_vti"))
    }


@rule("SB-08")
async def test_vsock_is_blocked(machine: Machine) -> None:
    """The host of a virtual machine is reachable by vsock, which `--unshare-net` leaves open."""
    result = await machine.bash("python3 -c 'import socket; socket.socket(socket.AF_VSOCK)'")
    assert "not supported" in result["output"]


@rule("RS-54", "SB-08", "SB-15")
@pytest.mark.parametrize(
    "session, tool, is_open", [(True, True, True), (True, False, False), (False, True, False)]
)
async def test_network_needs_both_the_setting_and_the_tool(
    tmp_path: Path, bubblewrap: Choice, session: bool, tool: bool, is_open: bool
) -> None:
    machine = Machine(tmp_path / "sandbox", bubblewrap, network=session, tool_network=tool)
    with listening() as server:
        result = await machine.bash(reach(server.getsockname()[1]))
        assert ("reached" in result["output"]) is is_open


def python(statement: str) -> str:
    return f'python3 -c "import ctypes; libc = ctypes.CDLL(None); {statement}"'


@case("X10")
@rule("SB-03", "SB-07")
async def test_attempts_to_escape_fail(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2hunter2")
    home, keyctl = machine.root / "home", BLOCKED_SYSCALLS["keyctl"][COLUMN]
    home.mkdir(parents=True)
    (home / ".pgpass").write_text("localhost:5432:*:easel:hunter2hunter2")
    neighbour = await asyncio.create_subprocess_exec("sleep", str(new_nap()))
    try:
        with listening() as postgres:
            attempts = {
                "read root's files": "ls /root",
                "read a password file": f"cat {home}/.pgpass ~/.pgpass",
                "read the host's environment": "env | grep -i pass",
                "read a neighbour's environment": f"cat /proc/{neighbour.pid}/environ",
                "stop a neighbour": f"kill -9 {neighbour.pid}",
                "trace a process": python("exit(libc.ptrace(16, 1, 0, 0) != 0)"),
                "trace itself": python("exit(libc.ptrace(0, 0, 0, 0) != 0)"),
                "reach the database": reach(postgres.getsockname()[1]),
                "mount": "mount -t tmpfs none /workspace",
                "read the kernel's keys": python(f"exit(libc.syscall({keyctl}, 11, -3, 0, 0) < 0)"),
                "make a device": "mknod disk b 254 0",
            }
            for name, command in attempts.items():
                result = await machine.bash(command)
                assert result["exit_code"] != 0, (name, result)
                assert "hunter2" not in result["output"], name
        assert neighbour.returncode is None
    finally:
        neighbour.kill()
        await neighbour.wait()
    bomb = await machine.bash("b() { b | b & }; b; sleep 30")
    assert bomb["stopped"] == "processes"


@rule("SB-13")
async def test_bubblewrap_gets_the_options_of_the_rule(bubblewrap: Choice, machine: Machine) -> None:
    async with machine.folders.enter(context("a")) as workspace:
        assert bubblewrap.launcher is not None
        with bubblewrap.launcher.launch(
            "true", workspace, "/workspace", machine.limits, network=False, env={}
        ) as launch:
            assert launch.status is not None
            os.close(launch.status)
            descriptor = int(launch.argv[launch.argv.index("--args") + 1])
            options = os.pread(descriptor, 100_000, 0).decode().split("\0")
    for option in (
        "--die-with-parent",
        "--new-session",
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
        "--clearenv",
    ):
        assert option in options
    assert [options[at + 1] for at, word in enumerate(options) if word == "--setenv"] == ["PATH"]
    assert options[options.index("--cap-drop") + 1] == "ALL"
    assert "--share-net" not in options
    assert [options[at + 2] for at, word in enumerate(options) if word == "--bind"] == ["/workspace"]


@rule("SB-13")
async def test_sandbox_root_may_be_a_relative_path(
    tmp_path: Path, bubblewrap: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    machine = Machine(Path("my-easel/sandbox"), bubblewrap)
    await machine.use("Write", path="note", content="kept")
    assert await machine.output_of("cat note") == "kept"
    assert machine.folder().is_relative_to(tmp_path)


@rule("SB-13")
async def test_command_ends_when_its_process_is_killed(machine: Machine, tmp_path: Path) -> None:
    """A killed worker leaves no command running."""
    nap = new_nap()
    await kill_runner(f"exec sleep {nap}", mode="bwrap", root=machine.root, nap=nap, sleeping=1)
    await wait_for_sleepers(0, nap)
