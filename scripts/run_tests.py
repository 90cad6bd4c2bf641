"""Run the linters and the suite in parts, and add the parts up to one line: `python scripts/run_tests.py all|lint|soak [-- pytest args]`.

Owns the split: everything that is quick runs in parallel; journeys start real processes and watch clocks, so they follow
with the machine to themselves. Knows which system parts exist: without them their tests are left out with a plain line on
a developer's machine, and the run fails where CI=true.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from prepare import HOME, SYSTEM_PARTS, missing_parts, say

RESULTS = HOME / ".test-results"
BIN = Path(sys.executable).parent
IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
NO_TESTS_COLLECTED = 5

LINTERS = (
    ("ruff check", ["ruff", "check", "--quiet", "."]),
    ("ruff format", ["ruff", "format", "--quiet", "--check", "."]),
    ("basedpyright", ["basedpyright", "--level", "error"]),
)

# part: pytest arguments. Journeys share two cores with the processes that they start: one at a time.
PARTS = {
    "fast": ["-n", "2", "--dist", "worksteal", "--ignore=tests/journeys"],
    "journeys": ["-n", "0", "tests/journeys"],
}
# Left to the drill itself: a soak knows how long it runs.
SOAK = ["-n", "0", "-m", "soak", "--timeout=0", "tests"]


def lint() -> bool:
    clean = True
    for name, (program, *arguments) in LINTERS:
        began = time.monotonic()
        done = subprocess.run([str(BIN / program), *arguments], cwd=HOME, check=False)
        verdict = "clean" if done.returncode == 0 else "NOT clean"
        say(f"{name}: {verdict} ({time.monotonic() - began:.1f} s)")
        clean = clean and done.returncode == 0
    return clean


def without_missing_parts() -> list[str]:
    """The marker expression that leaves out what this machine cannot run; in CI nothing is left out."""
    missing = missing_parts()
    markers = [SYSTEM_PARTS[package][0] for package in missing]
    if missing and IN_CI:
        say(
            f"not found: {', '.join(missing)}. With CI=true every test runs, so those that need it will fail."
        )
        return []
    for package, marker in zip(missing, markers, strict=True):
        say(
            f"LEFT OUT: tests marked `{marker}`, because {package} is not installed here and could not be installed (needs root on Debian)."
        )
    return ["-m", " and ".join(f"not {marker}" for marker in markers)] if markers else []


def counts_of(report: Path) -> Counter[str]:
    """What a JUnit report says happened. An error in set-up or tear-down is a failure like any other."""
    counts: Counter[str] = Counter()
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):  # noqa: S314  our own pytest wrote it a moment ago
        total, failures, errors, skipped = (
            int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
        )
        counts += Counter(
            passed=total - failures - errors - skipped, failed=failures + errors, skipped=skipped
        )
    return counts


def pytest(part: str, arguments: list[str], extra: list[str]) -> Counter[str]:
    report = RESULTS / f"{part}.xml"
    began = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        f"--junitxml={report}",
        "-o",
        "junit_suite_name=" + part,
        *arguments,
        *extra,
    ]
    code = subprocess.run(command, cwd=HOME, stdin=subprocess.DEVNULL, check=False).returncode
    counts = counts_of(report) if report.exists() else Counter()
    if code not in {0, NO_TESTS_COLLECTED} and not counts["failed"]:
        counts["failed"] += 1  # pytest itself broke: a usage error, a crash, an interrupted run
    say(f"{part}: {counts['passed']} passed, {counts['failed']} failed ({time.monotonic() - began:.0f} s)")
    return counts


def main(arguments: list[str]) -> int:
    what, *extra = arguments or ["all"]
    extra = [argument for argument in extra if argument != "--"]
    began = time.monotonic()
    clean = lint() if what in {"all", "lint"} else True
    if what == "lint":
        return 0 if clean else 1

    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir()
    left_out = without_missing_parts()
    total: Counter[str] = Counter()
    for part, part_arguments in ({"soak": SOAK} if what == "soak" else PARTS).items():
        if part == "journeys" and not (HOME / "tests" / "journeys").is_dir():
            continue
        total += pytest(part, part_arguments + ([] if what == "soak" else left_out), extra)

    failed = total["failed"] + (total["skipped"] if IN_CI else 0)
    skipped = f", {total['skipped']} skipped" if total["skipped"] else ""
    unclean = "" if clean else ", lint NOT clean"
    nothing = "" if total else ", no test ran"
    print(
        f"{total['passed']} passed, {failed} failed{skipped}{unclean}{nothing} in {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return 0 if clean and total and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
