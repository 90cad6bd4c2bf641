"""The browsers of `make browsers`: the oldest and the newest Chromium that Debian has, and its Firefox ESR.

Owns their folders in `.browsers/`, one per version: the packages are unpacked there and not installed, so
that versions exist side by side and no root is needed. Runs on a bare python3, like `prepare`.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".browsers"
CHROMIUM = "chromium"
FIREFOX = "firefox-esr"
PROGRAMS = {CHROMIUM: "usr/lib/chromium/chromium", FIREFOX: "usr/lib/firefox-esr/firefox-esr"}


def find_browsers() -> dict[str, Path]:
    """Return the program of each browser by its name and version, those that are unpacked."""
    return {
        str(folder.name): folder / PROGRAMS[package]
        for package in PROGRAMS
        for folder in sorted(FOLDER.glob(f"{package}-[0-9]*"))
    }


def prepare_browsers() -> list[str]:
    """Unpack the browsers that Debian has now, and remove others. Returns what is missing."""
    chromiums, firefoxes = versions_of(CHROMIUM), versions_of(FIREFOX)
    wanted = {
        **{f"{CHROMIUM}-{version}": (CHROMIUM, version) for version in {*chromiums[:1], *chromiums[-1:]}},
        **{f"{FIREFOX}-{version}": (FIREFOX, version) for version in firefoxes[-1:]},
    }
    for name in find_browsers().keys() - wanted.keys():
        shutil.rmtree(FOLDER / name)
    for name, (package, version) in wanted.items():
        if not (FOLDER / name).exists():
            print(f"easel: unpacking {name} into {FOLDER.name}", flush=True)
            unpack(package, version, FOLDER / name)
    return [package for package, found in ((CHROMIUM, chromiums), (FIREFOX, firefoxes)) if not found]


def versions_of(package: str) -> list[str]:
    """Return the versions that the package sources of this machine have, oldest first."""
    if not shutil.which("apt-cache"):
        return []
    listed = _output("apt-cache", "madison", package)
    found = {line.split("|")[1].strip() for line in listed.splitlines() if line.count("|") == 2}
    return sorted(found, key=functools.cmp_to_key(_compare))


def _compare(one: str, other: str) -> int:
    is_less = subprocess.run(["dpkg", "--compare-versions", one, "lt", other], check=False).returncode == 0
    return -1 if is_less else int(one != other)


def unpack(package: str, version: str, target: Path) -> None:
    """Download the package with the packages that it needs and this machine lacks, and unpack them."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        downloads, content = Path(folder, "deb"), Path(folder, "content")
        downloads.mkdir()
        options = ["-o", "APT::Sandbox::User=root"] if os.geteuid() == 0 else []
        command = ["apt-get", "-qq", *options, "download", *packages_with(package, version)]
        subprocess.run(command, cwd=downloads, check=True, stdin=subprocess.DEVNULL)
        for file in downloads.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(file), str(content)], check=True)
        content.rename(target)


def packages_with(package: str, version: str) -> list[str]:
    """Return the package and the missing packages that it depends on, as `name=version`."""
    names = [f"{package}={version}", *([f"chromium-common={version}"] if package == CHROMIUM else [])]
    options = ["--simulate", "--no-install-recommends", "--allow-downgrades", "--reinstall"]
    simulated = _output("apt-get", *options, "install", *names)
    missing = re.findall(
        r"^Inst (\S+) \((\S+) ", simulated, re.MULTILINE
    )  # a changed one has its old version
    return sorted({*names, *(f"{name}={found}" for name, found in missing)})


def _output(*command: str) -> str:
    return subprocess.run(
        command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    ).stdout
