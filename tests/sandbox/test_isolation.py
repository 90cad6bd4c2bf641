"""What a command under bubblewrap sees and can do: its session's folder, the runtime, and nothing else."""

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
from easel.ids import UserId
from easel.sandbox.seccomp import REFUSED
from tests.requirements import case, rule
from tests.sandbox.conftest import Machine, context
from tests.sandbox.processes import kill_whoever_runs, new_nap, until_there_are

if TYPE_CHECKING:
    from collections.abc import Generator

    from easel.sandbox.modes import Choice

pytestmark = pytest.mark.bwrap

COLUMN = ("x86_64", "aarch64").index(platform.machine())  # in tables of call numbers
PROGRAM = Path(__file__).parents[2] / "src" / "easel"


@rule("SB-02")
async def test_a_session_can_neither_read_nor_write_what_another_has(machine: Machine) -> None:
    await machine.use("Write", "b", path="secret", content="of b")
    secret = machine.folder("b") / "secret"
    for path in (
        secret,
        f"/workspace/../{secret}",
        f"../{machine.folder('b').name}/secret",
        f"/proc/1/root{secret}",
        f"/proc/self/cwd/..{secret}",
    ):
        ran = await machine.bash(f"cat {path}; echo changed > {path}", "a")
        assert "of b" not in ran["output"]
        assert ran["exit_code"] != 0
    assert secret.read_text() == "of b"
    assert "of b" not in await machine.says(
        "find / -name secret -not -path '/proc/*' 2>/dev/null | xargs -r cat", "a"
    )


@rule("SB-02", "RX-54")
async def test_two_users_with_a_session_of_the_same_name_have_two_folders(machine: Machine) -> None:
    await machine.bash("echo mine > note", "main", UserId("ann"))
    ran = await machine.bash("cat note", "main", UserId("bob"))
    assert ran["exit_code"] != 0


@rule("SB-02")
async def test_a_session_finds_again_what_it_left(machine: Machine) -> None:
    await machine.bash("mkdir deep && echo kept > deep/note && echo also > /tmp/note")
    assert await machine.says("cat deep/note /tmp/note") == "kept\nalso\n"


@rule("SB-03", "SB-13")
async def test_the_environment_is_empty_but_for_the_path(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EASEL_TOKEN", "secret-of-the-host")
    monkeypatch.setenv("HOME", str(machine.root))
    # Bash itself sets PWD, SHLVL and _; a program that it becomes gets what bash was given.
    given = await machine.says(
        "exec python3 -c \"print(*sorted(open('/proc/1/environ').read().split(chr(0))), sep='\\n')\""
    )
    assert {line.partition("=")[0] for line in given.split()} <= {"PATH", "PWD"}
    assert {line.partition("=")[0] for line in (await machine.says("env")).split()} == {
        "PATH",
        "PWD",
        "SHLVL",
        "_",
    }
    assert "secret-of-the-host" not in await machine.says("cat /proc/*/environ | tr '\\0' '\\n'")


@rule("SB-03")
async def test_nothing_of_the_host_is_there_but_a_minimal_runtime(machine: Machine) -> None:
    assert set((await machine.says("ls -A /")).split()) <= {
        *("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr"),
        *("dev", "etc", "proc", "tmp", "workspace"),
    }
    assert set((await machine.says("ls -A /etc")).split()) <= {
        "alternatives",
        "ld.so.cache",
        "passwd",
        "group",
    }
    assert await machine.says("cat /etc/passwd") == "easel:x:1000:1000::/workspace:/bin/bash\n"
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
    assert (await machine.says("hostname")).strip() != socket.gethostname()


@rule("SB-03")
async def test_the_packages_that_easel_runs_from_are_not_there(machine: Machine) -> None:
    ran = await machine.bash("python3 -c 'import easel'; python3 -c 'import msgspec'")
    assert ran["output"].count("ModuleNotFoundError") == 2, ran


@rule("SB-03")
async def test_they_are_covered_where_they_lie_in_the_runtime(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an image whose own Python Easel is installed into."""
    assert await machine.says("ls /usr/share") != ""
    monkeypatch.setattr("sysconfig.get_path", lambda _: "/usr/share")
    assert await machine.says("ls /usr/share") == ""


@rule("SB-03")
async def test_what_an_agent_works_with_is_there(machine: Machine) -> None:
    script = """
        set -e
        git init -q . && git -c user.name=A -c user.email=a@example.org commit -q --allow-empty -m first && git log --oneline | cat
        printf 'b\\na\\n' | sort | awk '{print NR, $1}'
        python3 -c 'print(sum(range(5)))'
        cat <(echo through a pipe)
        ps -o pid= | head -1 > /dev/null
        mktemp > /dev/null
        echo an error > /dev/stderr
        echo both | tee /dev/stderr
    """
    said = await machine.says(script)
    assert "first" in said
    assert said.endswith("1 a\n2 b\n10\nthrough a pipe\nan error\nboth\nboth\n")


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
async def test_a_write_outside_of_the_folder_fails(machine: Machine, path: str) -> None:
    await machine.says("ln -s /usr link && ln -s /etc/passwd absolute")
    ran = await machine.bash(f"echo x > {path}")
    assert ran["exit_code"] != 0
    assert sorted(one.name for one in machine.folder().iterdir()) == [".tmp", "absolute", "link"]


@rule("SB-04")
async def test_a_link_to_a_file_of_the_host_leads_nowhere(machine: Machine, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("as it was")
    ran = await machine.bash(f"ln -s {outside} link; cat link; echo x > link")
    assert "as it was" not in ran["output"]
    assert outside.read_text() == "as it was"


@rule("SB-19")
async def test_the_file_tools_follow_no_link_that_a_command_laid(machine: Machine) -> None:
    """Inside it leads to the sandbox's own files; here it would lead to the host's."""
    await machine.says("ln -s /etc/passwd passwd; ln -s / root; ln -s ../../.. up")
    for path in ("passwd", "root/etc/passwd", "up/etc/passwd"):
        for tool, args in (("Read", {}), ("Write", {"content": "x"}), ("Grep", {"pattern": "root"})):
            with pytest.raises(ToolFailed):
                await machine.tools[tool].use({"path": path, **args}, context())


@rule("SB-13", "SB-04")
async def test_the_folder_is_the_only_thing_that_is_mounted_to_be_written(machine: Machine) -> None:
    mounts = [line.split() for line in (await machine.says("cat /proc/self/mountinfo")).splitlines()]
    writable = {fields[4] for fields in mounts if "rw" in fields[5].split(",")}
    assert {path for path in writable if not path.startswith("/dev/")} == {"/workspace"}
    assert {path for path in writable if path.startswith("/dev/")} == {
        f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")
    }


def of_the_host(name: str) -> str:
    """The first line that says something, where the kernel has it."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{name}").read_text().strip().partition("\n")[0]
    return ""


@rule("SB-05")
async def test_proc_shows_the_command_and_nothing_of_the_machine(machine: Machine) -> None:
    pids = [int(pid) for pid in (await machine.says("ls /proc")).split() if pid.isdigit()]
    assert max(pids) < 20
    # Every file outside of the processes' own folders is closed, or says what holds for the sandbox.
    told = await machine.says(
        "for f in /proc/[a-z]*; do [ -f $f ] || [ -c $f ] && cat $f 2>/dev/null; done; true"
    )
    assert f"MemTotal: {256 * 1024} kB" in told
    assert "model name" not in told
    for name in ("meminfo", "cmdline", "version", "modules", "partitions", "diskstats"):
        content = of_the_host(name)
        assert not content or content not in told, name
    for folder in ("sys", "fs", "bus", "irq", "driver"):
        assert await machine.says(f"ls -A /proc/{folder} 2>/dev/null || true") == "", folder


@rule("SB-05")
async def test_proc_cannot_be_written(machine: Machine) -> None:
    for name in ("self/oom_score_adj", "self/coredump_filter", "sys/kernel/hostname", "sysrq-trigger"):
        assert (await machine.bash(f"echo 1 > /proc/{name}"))["exit_code"] != 0, name


@rule("SB-05")
async def test_sys_is_not_there_and_dev_has_five_devices(machine: Machine) -> None:
    assert (await machine.bash("ls /sys"))["exit_code"] != 0
    found = (await machine.says("cd /dev; for f in *; do [ -L $f ] || stat -c '%n %F' $f; done")).splitlines()
    assert found == [
        f"{name} character special file" for name in ("full", "null", "random", "urandom", "zero")
    ]


@rule("SB-07")
async def test_there_are_no_capabilities_and_none_can_be_gained(machine: Machine) -> None:
    status = dict(
        line.split(":\t")
        for line in (
            await machine.says("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status")
        ).splitlines()
    )
    assert {
        name: int(value, 16) for name, value in status.items() if name.startswith("Cap")
    } == dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0)
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert (await machine.says("id -u; id -g")).split() == ["1000", "1000"]


@rule("SB-07")
@pytest.mark.parametrize("call", ["unshare", "clone"])
async def test_no_user_namespace_can_be_made_inside(machine: Machine, call: str) -> None:
    """In one of its own a process would have every capability, and with them the kernel's larger surface."""
    number = {"unshare": (272, 97), "clone": (56, 220)}[call][COLUMN]
    arguments = {"unshare": "0x10000000", "clone": "0x10000011, None, None, None, None"}[call]
    script = f"import ctypes; print(ctypes.CDLL(None).syscall({number}, {arguments}))"
    assert await machine.says(f'python3 -c "{script}"') == "-1\n"
    assert (await machine.bash("unshare --user true"))["exit_code"] != 0


@contextlib.contextmanager
def listening(kind: socket.AddressFamily = socket.AF_INET) -> Generator[socket.socket]:
    with socket.socket(kind) as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0.5)
        yield server


def reach(port: int) -> str:
    return (
        f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 2); print('reached')\""
    )


@rule("SB-08", "SB-13")
async def test_the_network_of_the_host_is_not_reached(machine: Machine) -> None:
    with listening() as server:
        ran = await machine.bash(reach(server.getsockname()[1]))
        assert "reached" not in ran["output"]
        with pytest.raises(TimeoutError):
            server.accept()
    interfaces = [
        line.partition(":")[0].strip() for line in (await machine.says("cat /proc/net/dev")).splitlines()[2:]
    ]
    assert set(interfaces) <= {"lo"} | {
        one for one in interfaces if one.startswith(("sit", "tun", "gre", "ip6", "erspan", "ip_vti"))
    }


@rule("SB-08")
async def test_networks_that_have_no_namespace_are_closed_too(machine: Machine) -> None:
    """A virtual machine's host answers on vsock, which `--unshare-net` leaves open."""
    said = await machine.bash("python3 -c 'import socket; socket.socket(socket.AF_VSOCK)'")
    assert "not supported" in said["output"]


@rule("RS-54", "SB-08", "SB-15")
@pytest.mark.parametrize(
    "session, tool, is_open", [(True, True, True), (True, False, False), (False, True, False)]
)
async def test_the_network_is_open_where_the_setting_and_the_tool_both_say_so(
    tmp_path: Path, bubblewrap: Choice, session: bool, tool: bool, is_open: bool
) -> None:
    machine = Machine(tmp_path / "sandbox", bubblewrap, network=session, tool_network=tool)
    with listening() as server:
        ran = await machine.bash(reach(server.getsockname()[1]))
        assert ("reached" in ran["output"]) is is_open


@case("X10")
@rule("SB-03", "SB-07")
async def test_a_command_that_tries_to_get_out_gets_nowhere(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2hunter2")
    home, keyctl = machine.root / "home", REFUSED["keyctl"][COLUMN]
    home.mkdir(parents=True)
    (home / ".pgpass").write_text("localhost:5432:*:easel:hunter2hunter2")
    neighbour = await asyncio.create_subprocess_exec("sleep", str(new_nap()))
    try:
        with listening() as postgres:
            tries = {
                "read root's files": "ls /root",
                "read a password file": f"cat {home}/.pgpass ~/.pgpass",
                "read the host's environment": "env | grep -i pass",
                "read a neighbour's environment": f"cat /proc/{neighbour.pid}/environ",
                "stop a neighbour": f"kill -9 {neighbour.pid}",
                "look into a process": 'python3 -c "import ctypes; exit(ctypes.CDLL(None).ptrace(16, 1, 0, 0) != 0)"',
                "trace itself": 'python3 -c "import ctypes; exit(ctypes.CDLL(None).ptrace(0, 0, 0, 0) != 0)"',
                "reach the database": reach(postgres.getsockname()[1]),
                "mount": "mount -t tmpfs none /workspace",
                "read the kernel's keys": f'python3 -c "import ctypes; exit(ctypes.CDLL(None).syscall({keyctl}, 11, -3, 0, 0) < 0)"',
                "make a device": "mknod disk b 254 0",
            }
            for what, command in tries.items():
                ran = await machine.bash(command)
                assert ran["exit_code"] != 0, (what, ran)
                assert "hunter2" not in ran["output"], what
        assert neighbour.returncode is None
    finally:
        neighbour.kill()
        await neighbour.wait()
    bomb = await machine.bash("b() { b | b & }; b; sleep 30")
    assert bomb["stopped"] == "processes"


@rule("SB-13")
async def test_bubblewrap_is_asked_for_what_the_rule_names(bubblewrap: Choice, machine: Machine) -> None:
    async with machine.folders.enter(context("a")) as place:
        assert bubblewrap.launcher is not None
        with bubblewrap.launcher.launch("true", place, "/workspace", machine.limits, network=False) as launch:
            assert launch.status is not None
            os.close(launch.status)
            descriptor = int(launch.argv[launch.argv.index("--args") + 1])
            asked = os.pread(descriptor, 100_000, 0).decode().split("\0")
    for option in (
        "--die-with-parent",
        "--new-session",
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
        "--clearenv",
    ):
        assert option in asked
    assert [asked[at + 1] for at, word in enumerate(asked) if word == "--setenv"] == ["PATH"]
    assert asked[asked.index("--cap-drop") + 1] == "ALL"
    assert "--share-net" not in asked
    assert [asked[at + 2] for at, word in enumerate(asked) if word == "--bind"] == ["/workspace"]


@rule("SB-13")
async def test_a_folder_may_be_named_from_where_easel_stands(
    tmp_path: Path, bubblewrap: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    machine = Machine(Path("my-easel/sandbox"), bubblewrap)
    await machine.use("Write", path="note", content="kept")
    assert await machine.says("cat note") == "kept"
    assert machine.folder().is_relative_to(tmp_path)


@rule("SB-13")
async def test_the_command_dies_with_the_process_that_started_it(machine: Machine, tmp_path: Path) -> None:
    """A worker that is killed leaves nothing running behind."""
    nap = new_nap()
    await kill_whoever_runs(f"exec sleep {nap}", mode="bwrap", root=machine.root, nap=nap, sleeping=1)
    await until_there_are(0, nap)
