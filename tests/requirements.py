"""The ids of all promises, and which test proves each.

Owns the table of rule ids (the registry RULES.md; ids are never reused or renumbered, so a count per prefix
is enough) and of the fault cases, the decorators that cite them, and the report `make rules`. The report
reads the tests without running them and needs only Python.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pytest

TESTS = Path(__file__).resolve().parent

# prefix: (specification, number of ids from 01 on)
RULES: Mapping[str, tuple[str, int]] = {
    "CV": ("Canvas V1", 51),
    "CC": ("Collaborative Canvas Contract", 32),
    "RX": ("Durable runs", 54),
    "AHP": ("Canvas on the Agent Host Protocol", 69),
    "CT": ("Canvas tools for documents", 63),
    "SB": ("Sandbox isolation", 19),
    "RS": ("Resolutions", 80),
}
# letter: (fault or attack, number of cases from 1 on)
CASES: Mapping[str, tuple[str, int]] = {
    "J": ("runs: claim, lease, fencing", 11),
    "E": ("event log, SSE, WS delivery", 12),
    "C": ("canvas document: lease, epoch, patch, grep", 11),
    "D": ("database and host faults", 7),
    "X": ("actions, templates, tools", 10),
    "U": ("browser isolation", 9),
    "O": ("auth, OAuth, tenancy", 11),
    "R": ("resource exhaustion", 7),
    "P": ("prompt injection, visibility, provenance", 6),
}

RULE_IDS = {
    prefix: [f"{prefix}-{number:02}" for number in range(1, count + 1)]
    for prefix, (_, count) in RULES.items()
}
CASE_IDS = {
    letter: [f"{letter}{number}" for number in range(1, count + 1)] for letter, (_, count) in CASES.items()
}
KNOWN = {
    "rule": frozenset(one for ids in RULE_IDS.values() for one in ids),
    "case": frozenset(one for ids in CASE_IDS.values() for one in ids),
}


class UnknownRequirement(ValueError):
    """A test cites an id that no specification has."""


def check_ids(kind: str, ids: Iterable[object]) -> None:
    ids = list(ids)
    if not ids:
        raise UnknownRequirement(f"@{kind}() cites nothing; name at least one id.")
    if unknown := [one for one in ids if one not in KNOWN[kind]]:
        raise UnknownRequirement(f"@{kind} cites what does not exist: {', '.join(map(str, unknown))}")


def rule(*ids: str) -> pytest.MarkDecorator:
    """Mark a test that would fail without these rules: `@rule("RX-07", "RX-11")`."""
    import pytest  # noqa: PLC0415  the report runs without it

    check_ids("rule", ids)
    return pytest.mark.rule(*ids)


def case(*ids: str) -> pytest.MarkDecorator:
    """Mark the test of a fault case: `@case("J1")`."""
    import pytest  # noqa: PLC0415

    check_ids("case", ids)
    return pytest.mark.case(*ids)


def check_markers(item: pytest.Item) -> None:
    """Check the ids of `pytest.mark.rule("XX-99")` written without the decorators."""
    for kind in KNOWN:
        for marker in item.iter_markers(kind):
            check_ids(kind, marker.args)


# --- the report ---------------------------------------------------------------------------------------------


def citations(source: str) -> Iterator[tuple[str, str]]:
    """Yield every (kind, id) that a source cites by `rule(…)`, `case(…)` or `pytest.mark.rule(…)`, on a test,
    a class or one parameter.
    """
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = (
            node.func.attr
            if isinstance(node.func, ast.Attribute)
            else node.func.id
            if isinstance(node.func, ast.Name)
            else None
        )
        if name in KNOWN:
            for argument in node.args:
                if isinstance(argument, ast.Constant) and argument.value in KNOWN[name]:
                    yield name, str(argument.value)


def proofs(folder: Path) -> dict[tuple[str, str], list[Path]]:
    """Return which files cite which id. The tests of this table do not count."""
    found: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("test_*.py")):
        if path.name != "test_requirements.py":
            for key in dict.fromkeys(citations(path.read_text(encoding="utf-8"))):
                found[key].append(path.relative_to(folder))
    return found


def ranges(ids: list[str], all_ids: list[str]) -> str:
    """Format ids with runs of neighbours joined: `RX-03…RX-07, RX-09`."""
    runs: list[list[str]] = []
    for one in ids:
        if runs and all_ids.index(runs[-1][-1]) + 1 == all_ids.index(one):
            runs[-1].append(one)
        else:
            runs.append([one])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}…{run[-1]}" for run in runs)


def report(folder: Path, *, verbose: bool = False) -> str:
    found = proofs(folder)
    lines: list[str] = []
    for kind, table, groups in (("rule", RULES, RULE_IDS), ("case", CASES, CASE_IDS)):
        proven_of_kind = sum(key[0] == kind for key in found)
        lines.append(f"{kind}s: {proven_of_kind} of {len(KNOWN[kind])} have a test")
        for prefix, ids in groups.items():
            proven = [one for one in ids if (kind, one) in found]
            missing = [one for one in ids if (kind, one) not in found]
            lines.append(f"  {prefix:<4}{len(proven):>3} of {len(ids):<3} {table[prefix][0]}")
            if missing and proven:
                lines.append(f"        no test: {ranges(missing, ids)}")
            if verbose:
                lines += [f"        {one:<7} {', '.join(map(str, found[(kind, one)]))}" for one in proven]
    return "\n".join(lines)


if __name__ == "__main__":
    print(report(TESTS, verbose="--verbose" in sys.argv[1:]))
