"""The layout of the code: allowed imports, purity of the core, length of modules and lines.

STYLE, "Imports point down": edges → host → core; stores, llm, sandbox → core; assembly → all packages. Reads
the source without importing it. Each check is a function over source text, and a test shows it to fail.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).resolve().parent.parent
SOURCE = PROJECT / "src" / "easel"

EDGES = ("edges.gateway", "edges.ahp", "edges.http")
# Standard library only, so that every package may use them.
BASE = frozenset({"easel", "errors", "fs", "ids"})

# package: the packages that it may import, itself and BASE aside.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "easel": frozenset(),
    "errors": frozenset(),
    "fs": frozenset(),
    "ids": frozenset(),
    "core": frozenset(),
    "host": frozenset({"core"}),
    "stores": frozenset({"core"}),
    "llm": frozenset({"core"}),
    "sandbox": frozenset({"core"}),
    # HTTP requests of actions and agents.
    "fetch": frozenset({"core"}),
    # Requests to providers of OAuth and OpenID.
    "oauth": frozenset({"core"}),
    # The client side of a tool node's connection: a separate program that shares only core with the host.
    "node": frozenset({"core"}),
    # Modules directly in edges/ are shared by all edges; the edges do not import each other.
    "edges": frozenset({"host", "core"}),
    **{edge: frozenset({"edges", "host", "core"}) for edge in EDGES},
    "settings_values": frozenset({"core"}),
    "settings_oauth": frozenset({"core"}),
    "settings_openid": frozenset({"core"}),
    "settings": frozenset({"core", "settings_oauth", "settings_openid", "settings_values"}),
    "assembly": frozenset(
        {
            "core",
            "host",
            "stores",
            "llm",
            "sandbox",
            "fetch",
            "oauth",
            "node",
            "edges",
            *EDGES,
            "settings",
            "demo",
        }
    ),
    "logs": frozenset({"core"}),
    "demo": frozenset(),
    # Canvases as folders, synchronised with a running Easel through its public API.
    "canvas_folder": frozenset({"core", "settings"}),
    "cli": frozenset({"assembly", "canvas_folder", "core", "demo", "logs", "settings", "settings_oauth"}),
    "__main__": frozenset({"cli"}),
}

# package or module of host/: those of host/ that it may import, itself aside. HOST_BASE is open to all.
HOST_BASE = frozenset({"ports", "metrics", "periodic"})
HOST_MAY_IMPORT: dict[str, frozenset[str]] = {
    "ports": frozenset(),
    "metrics": frozenset(),
    "periodic": frozenset(),
    "readiness": frozenset(),
    "usage": frozenset(),
    "artifacts": frozenset({"usage"}),
    "sweeps": frozenset(),
    "audit": frozenset(),
    "deletions": frozenset(),
    "secrets": frozenset({"audit"}),
    "models": frozenset({"audit", "oauth"}),
    "oauth": frozenset({"audit"}),
    "openid": frozenset({"audit", "auth", "people"}),
    "canvas_heads": frozenset(),
    "commits": frozenset(),
    "streams": frozenset({"usage"}),
    "order": frozenset(),
    "auth": frozenset({"audit"}),
    "tools": frozenset({"audit"}),
    "runs": frozenset({"artifacts", "audit", "canvas_heads", "tools", "usage"}),
    "sessions": frozenset({"audit", "runs"}),
    "boards": frozenset({"artifacts", "runs", "tools"}),
    "canvases": frozenset({"artifacts", "audit", "auth", "commits", "tools"}),
    "actions": frozenset({"artifacts", "audit", "canvases", "runs", "streams", "tools", "usage"}),
    "documents": frozenset({"audit", "canvas_heads", "commits", "tools"}),
    "calls": frozenset({"artifacts"}),
    "people": frozenset({"actions", "audit", "auth", "runs"}),
    "nodes": frozenset({"actions", "audit", "calls", "tools"}),
    "services": frozenset(
        {
            "actions",
            "artifacts",
            "audit",
            "auth",
            "boards",
            "canvases",
            "documents",
            "nodes",
            "oauth",
            "openid",
            "order",
            "people",
            "readiness",
            "runs",
            "secrets",
            "sessions",
            "streams",
            "tools",
            "models",
            "usage",
        }
    ),
}

# Libraries that compute and nothing else.
PURE_LIBRARIES = frozenset({"msgspec", "re2", "jsonpatch", "jsonpointer", "markdown_it"})
# Modules of the standard library that wait, read a clock, are random, log or reach outside the process.
WAITING = frozenset(
    {
        "asyncio",
        "concurrent",
        "multiprocessing",
        "queue",
        "sched",
        "select",
        "selectors",
        "signal",
        "subprocess",
        "threading",
    }
)
CLOCKS_AND_RANDOM = frozenset({"random", "secrets", "time", "uuid"})
MACHINE = frozenset(
    {
        "ctypes",
        "fcntl",
        "getpass",
        "glob",
        "io",
        "locale",
        "mmap",
        "os",
        "platform",
        "pty",
        "resource",
        "shelve",
        "shutil",
        "sqlite3",
        "sys",
        "tempfile",
        "termios",
        "tty",
    }
)
NETWORK_AND_LOG = frozenset(
    {
        "ftplib",
        "http",
        "imaplib",
        "logging",
        "poplib",
        "smtplib",
        "socket",
        "socketserver",
        "ssl",
        "syslog",
        "urllib.request",
        "webbrowser",
    }
)
IMPURE = WAITING | CLOCKS_AND_RANDOM | MACHINE | NETWORK_AND_LOG
CLOCK_READS = frozenset({"now", "utcnow", "today"})
OUTSIDE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__", "breakpoint"})
# Libraries that host may only use through Protocols.
DRIVERS = frozenset(
    {
        "asyncpg",
        "sqlite3",
        "obstore",
        "starlette",
        "uvicorn",
        "uvloop",
        "httptools",
        "websockets",
        "httpx",
        "httpx2",
        "typer",
        "rich",
    }
)

MAX_MODULE_LINES = 450
MAX_LINE_LENGTH = 110
CHECKED_FOLDERS = ("src", "tests", "bench", "scripts", "web/sdk", "web/src")
# Drawings and built files have no lines to wrap.
UNCHECKED_LINES = re.compile(r"\.svg$|/gsv_transcripts/|/ui/sdk/|^web/src/wire\.|package-lock\.json$")


@dataclass(frozen=True)
class Import:
    line: int
    module: str


def part_of(module: str) -> str:
    """Return the package of a module, such as `edges.http` for `easel.edges.http.runs`."""
    _, *path = module.split(".")
    for depth in (2, 1):
        if (name := ".".join(path[:depth])) in MAY_IMPORT:
            return name
    return path[0] if path and not path[0].startswith("__") else "easel"


def imports_of(source: str, module: str, *, is_package: bool = False) -> Iterator[Import]:
    """Yield every module that the source imports, also for types only or inside a function."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (Import(node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=named, names=names, level=level):
                above = module.split(".")[: len(module.split(".")) - level + is_package] if level else []
                base = ".".join([*above, *([named] if named else [])])
                yield from (Import(node.lineno, f"{base}.{alias.name}") for alias in names)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(named)), *_],
            ):
                yield Import(node.lineno, named)
            case _:
                pass


def is_within(module: str, packages: frozenset[str]) -> bool:
    """Return whether a dotted name is one of these packages or inside one."""
    names = module.split(".")
    return any(".".join(names[:depth]) in packages for depth in range(1, len(names) + 1))


# --- the checks: source text in, complaints out -------------------------------------------------------------


def wrong_directions(source: str, module: str, *, is_package: bool = False) -> list[str]:
    part = part_of(module)
    if part not in MAY_IMPORT:
        return [f"{module}: `{part}` needs a row in MAY_IMPORT"]
    allowed = MAY_IMPORT[part] | BASE | {part} if part not in BASE else BASE & {part}
    complaints: list[str] = []
    for found in imports_of(source, module, is_package=is_package):
        top = found.module.split(".")[0]
        if top == "easel":
            if (target := part_of(found.module)) not in allowed:
                complaints.append(f"{module}:{found.line}: {part} must not import {target} ({found.module})")
        elif part in BASE and top not in sys.stdlib_module_names:
            complaints.append(f"{module}:{found.line}: {part} must use the standard library only, not {top}")
        elif part == "host" and top in DRIVERS:
            complaints.append(f"{module}:{found.line}: host must use {top} through a Protocol")
    return complaints


def wrong_host_directions(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Check an import between packages of host/ against HOST_MAY_IMPORT."""
    prefix = "easel.host."
    if not module.startswith(prefix):
        return []
    package = module.removeprefix(prefix).split(".")[0]
    if package not in HOST_MAY_IMPORT:
        return [f"{module}: `{package}` needs a row in HOST_MAY_IMPORT"]
    allowed = HOST_MAY_IMPORT[package] | HOST_BASE | {package}
    return [
        f"{module}:{found.line}: host.{package} must not import host.{target}"
        for found in imports_of(source, module, is_package=is_package)
        if found.module.startswith(prefix)
        and (target := found.module.removeprefix(prefix).split(".")[0]) not in allowed
    ]


def find_cycle(graph: dict[str, frozenset[str]]) -> list[str]:
    """Return the packages of one cycle, or an empty list."""
    finished: set[str] = set()

    def visit(package: str, trail: list[str]) -> list[str]:
        if package in trail:
            return trail[trail.index(package) :]
        if package not in finished:
            for target in sorted(graph.get(package, ())):
                if found := visit(target, [*trail, package]):
                    return found
            finished.add(package)
        return []

    return next((found for package in graph if (found := visit(package, []))), [])


def core_imports() -> dict[str, frozenset[str]]:
    """Return which package of core/ imports which other one."""
    graph: dict[str, set[str]] = {}
    for module, _, source in modules():
        if module.startswith("easel.core."):
            package = module.split(".")[2]
            targets = {
                found.module.split(".")[2]
                for found in imports_of(source, module)
                if found.module.startswith("easel.core.")
            }
            graph.setdefault(package, set()).update(targets - {package})
    return {package: frozenset(targets) for package, targets in graph.items()}


def impurities(source: str, module: str) -> list[str]:
    """Find what a rule must not do: wait, read a clock, use randomness, open a file, log."""
    complaints: list[str] = []
    clocks = {"datetime", "date"}
    for found in imports_of(source, module):
        top, name = found.module.split(".")[0], found.module.rpartition(".")[2]
        allowed = (
            top in {"easel", "__future__"}
            or top in PURE_LIBRARIES
            or (top in sys.stdlib_module_names and not is_within(found.module, IMPURE))
        )
        if not allowed or (
            top == "pathlib" and name not in {"pathlib", "PurePath", "PurePosixPath", "PureWindowsPath"}
        ):
            complaints.append(f"{module}:{found.line}: core must not use {found.module}")
        if found.module.startswith("easel.ids.new_"):
            complaints.append(f"{module}:{found.line}: ids must be arguments, not made in core ({name})")
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module="datetime", names=names):
                clocks |= {alias.asname or alias.name for alias in names}
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                complaints.append(f"{module}:{node.lineno}: core must not wait (async)")
            case ast.Call(
                func=ast.Attribute(attr=attribute, value=ast.Name(id=owner) | ast.Attribute(attr=owner))
            ) if attribute in CLOCK_READS and owner in clocks:
                complaints.append(
                    f"{module}:{node.lineno}: time must be an argument, not {owner}.{attribute}()"
                )
            case ast.Call(func=ast.Name(id=called)) if called in OUTSIDE_CALLS:
                complaints.append(f"{module}:{node.lineno}: core must not call {called}()")
            case ast.Attribute(value=ast.Name(id="pathlib"), attr="Path" | "PosixPath"):
                complaints.append(f"{module}:{node.lineno}: core must not use pathlib.Path")
            case _:
                pass
    return complaints


def too_long(source: str, module: str) -> list[str]:
    lines = source.count("\n")
    return [f"{module}: {lines} lines; split it by noun"] if lines > MAX_MODULE_LINES else []


def long_lines(text: str, name: str) -> list[str]:
    return [
        f"{name}:{number}: {len(line)} columns"
        for number, line in enumerate(text.split("\n"), 1)
        if len(line) > MAX_LINE_LENGTH
    ]


HOME = r"/(?:root|home/[\w.-]+|Users/[\w.-]+)(?=/)"


def machine_paths(text: str, name: str, clone: Path = PROJECT) -> list[str]:
    """Find home folders and the path of this clone, unless it is directly under `/` as `/app`."""
    folders = (clone, clone.parent / "shared")
    paths = [re.escape(str(folder)) + r"\b" for folder in folders if len(folder.parts) > 2]
    pattern = re.compile(rf"(?<![\w.~:/-])(?:{'|'.join([HOME, *paths])})")
    return [
        f"{name}:{number}: must not name a path of one machine: {found.group()}"
        for number, line in enumerate(text.splitlines(), 1)
        if (found := pattern.search(line))
    ]


REGISTRY = re.compile(r"https?://|file:|--(?:extra-)?index-url|--find-links|\s@\s")


def named_hosts(lock: str, name: str) -> list[str]:
    """Find addresses in a lock file, which must work with every mirror."""
    return [
        f"{name}:{number}: must not name an address: {line}"
        for number, line in enumerate(lock.splitlines(), 1)
        if REGISTRY.search(line)
    ]


# --- the source passes the checks ---------------------------------------------------------------------------


def modules() -> Iterator[tuple[str, Path, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        names = path.relative_to(SOURCE.parent).with_suffix("").parts
        yield (
            ".".join(names[:-1] if names[-1] == "__init__" else names),
            path,
            path.read_text(encoding="utf-8"),
        )


def project_texts() -> Iterator[tuple[str, str]]:
    """Yield the name and text of every text file of the project."""
    folders = [
        PROJECT / name
        for name in ("src", "tests", "bench", "scripts", "docs", "requirements", "web/sdk", "web/src", ".ci")
    ]
    files = (
        [path for folder in folders for path in folder.rglob("*") if "node_modules" not in path.parts]
        + list(PROJECT.glob("*.*"))
        + [PROJECT / "Makefile"]
    )
    for path in sorted(files):
        if (
            path.is_file()
            and "__pycache__" not in path.parts
            and path.suffix not in {".png", ".woff2", ".ico", ".gz"}
        ):
            yield str(path.relative_to(PROJECT)), path.read_text(encoding="utf-8", errors="replace")


def test_imports_point_down() -> None:
    complaints = [
        complaint
        for module, path, source in modules()
        for complaint in wrong_directions(source, module, is_package=path.name == "__init__.py")
    ]
    assert complaints == []


def test_imports_inside_host_follow_its_table() -> None:
    complaints = [
        complaint
        for module, path, source in modules()
        for complaint in wrong_host_directions(source, module, is_package=path.name == "__init__.py")
    ]
    assert complaints == []


def test_no_cycle_between_packages() -> None:
    assert find_cycle(MAY_IMPORT) == []
    assert find_cycle(HOST_MAY_IMPORT) == []
    assert find_cycle(core_imports()) == []


def test_core_is_pure() -> None:
    complaints = [
        complaint
        for module, _, source in modules()
        if part_of(module) == "core"
        for complaint in impurities(source, module)
    ]
    assert complaints == []


def test_no_module_is_too_long() -> None:
    assert [complaint for module, _, source in modules() for complaint in too_long(source, module)] == []


def test_no_two_classes_have_one_name() -> None:
    names = [name for _, _, source in modules() for name in re.findall(r"^class (\w+)", source, re.MULTILINE)]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_no_line_is_too_long() -> None:
    complaints = [
        complaint
        for name, text in project_texts()
        if name.startswith(CHECKED_FOLDERS) and not UNCHECKED_LINES.search(name)
        for complaint in long_lines(text, name)
    ]
    assert complaints == []


def test_every_edge_is_listed() -> None:
    """An edge that EDGES does not list would count as a shared module of all edges."""
    folders = {
        f"edges.{path.name}" for path in (SOURCE / "edges").iterdir() if (path / "__init__.py").exists()
    }
    assert folders <= set(EDGES)


def test_no_file_names_a_path_of_one_machine() -> None:
    assert [complaint for name, text in project_texts() for complaint in machine_paths(text, name)] == []


def test_no_lock_names_a_host() -> None:
    locks = sorted((PROJECT / "requirements").glob("*.txt"))
    assert {lock.stem for lock in locks} >= {"runtime", "test", "bench", "build"}
    complaints = [
        complaint for lock in locks for complaint in named_hosts(lock.read_text(encoding="utf-8"), lock.name)
    ]
    assert complaints == []


def test_lock_of_web_names_hashes_and_no_registry() -> None:
    lock = json.loads((PROJECT / "web" / "package-lock.json").read_text(encoding="utf-8"))
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert [package for package in packages if "integrity" not in package or "resolved" in package] == []


# --- each check can fail ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "module, source, complaint",
    [
        ("easel.core.run.status", "from ...host.ports import RunStore", "core must not import host"),
        ("easel.core.run.status", "from easel import settings", "core must not import settings"),
        ("easel.host.runs.queue", "import easel.stores.blobs.store", "host must not import stores"),
        ("easel.host.runs.queue", "import asyncpg", "host must use asyncpg through a Protocol"),
        ("easel.host.x", "def late():\n    import starlette", "host must use starlette through a Protocol"),
        ("easel.host.x", "import_module('easel.stores.runs')", "host must not import stores"),
        ("easel.edges.http.app", "from ..ahp import channels", "edges.http must not import edges.ahp"),
        ("easel.edges.errors", "from easel.edges.http import app", "edges must not import edges.http"),
        ("easel.errors", "import msgspec", "errors must use the standard library only"),
        ("easel.cli.app", "from easel.stores import blobs", "cli must not import stores"),
        ("easel.unknown.module", "", "`unknown` needs a row in MAY_IMPORT"),
    ],
)
def test_wrong_import_is_found(module: str, source: str, complaint: str) -> None:
    [found] = wrong_directions(source, module)
    assert complaint in found


@pytest.mark.parametrize(
    "module, source",
    [
        (
            "easel.edges.http.app",
            "from easel.host.ports import RunStore\nfrom easel import ids\nimport starlette",
        ),
        ("easel.stores.postgres.runs", "from easel.core.run.run import Run\nimport asyncpg"),
        ("easel.core.run.status", "from easel.errors import BadInput\nfrom .events import Event"),
    ],
)
def test_allowed_import_passes(module: str, source: str) -> None:
    assert wrong_directions(source, module) == []


def test_relative_import_in_a_package_starts_at_the_package() -> None:
    assert wrong_directions("from .gateway import methods", "easel.edges.http", is_package=True) == []
    assert len(wrong_directions("from ..gateway import methods", "easel.edges.http", is_package=True)) == 1


def test_wrong_import_inside_host_is_found() -> None:
    assert wrong_host_directions("from easel.host.runs import queue", "easel.host.tools.registry") != []
    assert wrong_host_directions("from easel.host.ports import Tool", "easel.host.tools.registry") == []
    assert "needs a row" in wrong_host_directions("", "easel.host.unknown")[0]


def test_cycle_between_packages_is_found() -> None:
    assert find_cycle({"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset({"b"})}) == ["b", "c"]


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio",
        "import structlog",
        "from urllib import request",
        "from pathlib import Path",
        "async def rule(): ...",
        "def f():\n    import random",
        "from datetime import datetime, UTC\nwhen = datetime.now(UTC)",
        "import datetime as dt\nwhen = dt.datetime.now()",
        "text = open('x').read()",
        "from easel.ids import new_run_id",
    ],
)
def test_impure_core_is_found(source: str) -> None:
    assert len(impurities(source, "easel.core.run.status")) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import re, json\nfrom datetime import datetime\nfrom pathlib import PurePosixPath\nimport re2",
        "def due(clock): return clock.now",
        "from easel.ids import RunId\nfrom easel.core.run.status import Status",
    ],
)
def test_pure_core_passes(source: str) -> None:
    assert impurities(source, "easel.core.run.status") == []


def test_long_module_and_long_line_are_found() -> None:
    assert too_long("x = 1\n" * MAX_MODULE_LINES, "m") == []
    assert len(too_long("x = 1\n" * (MAX_MODULE_LINES + 1), "m")) == 1
    assert long_lines("ü" * MAX_LINE_LENGTH, "m") == []
    assert long_lines("a\n" + "ü" * (MAX_LINE_LENGTH + 1), "m") == ["m:2: 111 columns"]


# Joined here, so that this file itself names none.
HOMES = ["/".join(["", *names, "x.py"]) for names in (["root"], ["home", "ann"], ["Users", "ann"])]


@pytest.mark.parametrize("path", [*HOMES, "/builds/easel/src", "/builds/shared/specs"])
def test_machine_path_is_found(path: str) -> None:
    assert machine_paths(f"first line\nsee '{path}'", "f.py", Path("/builds/easel"))[0].startswith("f.py:2: ")


@pytest.mark.parametrize("text", ["GET /api/home/page", "https://example.org/root/x", "~/root/"])
def test_other_path_passes(text: str) -> None:
    assert machine_paths(text, "f.py") == []


@pytest.mark.parametrize("line", ["--index-url x", "a @ file:///x", "b==1 --find-links x"])
def test_lock_that_names_a_host_is_found(line: str) -> None:
    assert len(named_hosts(f"good==1 \\\n    --hash=sha256:00\n{line}", "l.txt")) == 1
