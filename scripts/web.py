"""Build and check the TypeScript of `web/`: `python scripts/web.py build|check|format`.

`build` writes the committed bundles; `check` fails if one of them differs from a fresh build. Needs the
packages that `scripts/prepare.py web` installs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from prepare import HOME, WEB, find_npm, is_web_ready, npm_environment, say, stop

BUNDLES = HOME / "src" / "easel" / "ui" / "sdk"


def run_npm(script: str, *arguments: str) -> None:
    """Run a script of web/package.json and show its output only if it fails. Stops the program then."""
    command = [*find_npm(), "--prefix", str(WEB), "run", "--silent", script, "--", *arguments]
    done = subprocess.run(command, env=npm_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        stop(f"npm run {script} failed with code {done.returncode}")


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def find_stale(committed: Path, fresh: Path) -> list[str]:
    """Return the files that are missing, too many or different."""
    before, after = read_files(committed), read_files(fresh)
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def main(arguments: list[str]) -> None:
    if arguments not in (["build"], ["check"], ["format"]):
        stop("usage: python scripts/web.py build|check|format")
    if not is_web_ready():
        (say if arguments == ["format"] else stop)("web/ is not set up: install Node, then run `make web`")
    elif arguments == ["check"]:
        check()
    else:
        if arguments == ["build"]:
            shutil.rmtree(BUNDLES, ignore_errors=True)
        run_npm(arguments[0])


def check() -> None:
    """Stop the program if a committed bundle differs from a fresh build."""
    with tempfile.TemporaryDirectory(prefix="easel-web-") as folder:
        run_npm("build", "--outDir", folder)
        if stale := find_stale(BUNDLES, Path(folder)):
            stop(f"stale in {BUNDLES.relative_to(HOME)}: {', '.join(stale)}; run `make web`")
    say("the files built from web/ are fresh")


if __name__ == "__main__":
    main(sys.argv[1:])
