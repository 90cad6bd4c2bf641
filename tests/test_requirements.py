"""The table of rule ids equals the registries, and a citation of an unknown id fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import requirements
from tests.requirements import (
    CASE_IDS,
    RULE_IDS,
    UnknownRequirement,
    case,
    check_markers,
    citations,
    ranges,
    rule,
)

SHARED = Path(__file__).resolve().parents[2] / "shared"


def ids_in_registry(path: Path, pattern: str) -> list[str]:
    return re.findall(rf"^\|\s*({pattern})\s*\|", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_table_equals_the_registries() -> None:
    """The registries are beside a developer's clone; without them the table is the reference."""
    registries = [
        # kept where                  an id looks like                    our table
        ("specs/RULES.md", r"(?:CV|CC|RX|AHP|CT|SB|RS)-\d+", RULE_IDS),
        ("research/reliability.md", r"[JECDXUORP]\d+", CASE_IDS),
    ]
    for place, pattern, table in registries:
        if (SHARED / place).exists():
            assert ids_in_registry(SHARED / place, pattern) == [
                one for ids in table.values() for one in ids
            ], place


def test_table_has_every_id_once() -> None:
    everything = [one for table in (RULE_IDS, CASE_IDS) for ids in table.values() for one in ids]
    assert len(everything) == len(set(everything)) == 368 + 84


@pytest.mark.parametrize(
    "cite", [lambda: rule("RX-55"), lambda: rule("RX-7"), rule, lambda: case("J12"), lambda: case("RX-07")]
)
def test_unknown_id_is_refused(cite: object) -> None:
    assert callable(cite)
    with pytest.raises(UnknownRequirement):
        cite()


@rule("RX-01")
@case("J1")
def test_known_id_becomes_a_marker(request: pytest.FixtureRequest) -> None:
    assert [marker.args for marker in request.node.iter_markers("rule")] == [("RX-01",)]
    assert [marker.args for marker in request.node.iter_markers("case")] == [("J1",)]


def test_marker_written_by_hand_is_checked_too(request: pytest.FixtureRequest) -> None:
    request.node.add_marker(pytest.mark.rule("XX-99"))
    with pytest.raises(UnknownRequirement, match="XX-99"):
        check_markers(request.node)


SOURCE = """
import pytest
from tests.requirements import case, rule

pytestmark = rule("RX-02")

@rule("RX-07", "RX-11")
def test_one(): ...

@pytest.mark.case("J1")
class TestMany:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=rule("CV-01"))])
    def test_two(self, x): ...

def other():
    "RX-12 in words, or log('RX-13'), is no citation."
    log("RX-13")
"""


def test_scan_finds_every_way_to_cite_and_nothing_else() -> None:
    expected = {("rule", "RX-02"), ("rule", "RX-07"), ("rule", "RX-11"), ("case", "J1"), ("rule", "CV-01")}
    assert set(citations(SOURCE)) == expected


def test_report_counts_and_lists_missing_ids(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(SOURCE)
    lines = requirements.report(tmp_path, verbose=True).splitlines()
    assert "rules: 4 of 368 have a test" in lines
    assert "cases: 1 of 84 have a test" in lines
    assert "  RX    3 of 54  Durable runs" in lines
    assert "        no test: RX-01, RX-03…RX-06, RX-08…RX-10, RX-12…RX-54" in lines
    assert "        J1      test_some.py" in lines


def test_neighbouring_ids_are_joined() -> None:
    ids = CASE_IDS["D"]
    assert ranges(["D1", "D2", "D3", "D6"], ids) == "D1…D3, D6"
    assert ranges([], ids) == ""
