"""The design page names files and words that exist, and its walks through the code name none twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
PAGE = (PROJECT / "docs" / "design" / "index.md").read_text(encoding="utf-8")
WALKS = [f"One {act}, file by file" for act in ("click on a button", "run", "document edit")]


def files_in(text: str) -> list[str]:
    return re.findall(r"`((?:src/easel|web)/[\w/.]+)`", text)


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_every_file_that_the_page_names_exists() -> None:
    missing = [name for name in files_in(PAGE) if not (PROJECT / name).exists()]
    assert files_in(PAGE)
    assert missing == []


def test_every_word_is_a_name_in_the_code() -> None:
    rows = re.findall(r"^\| \*\*.*$", section("Words"), re.MULTILINE)
    assert rows
    for row in rows:
        found = re.search(r"\| `(\w+)` in `(src/easel/[\w/.]+)` \|$", row)
        assert found, row
        assert re.search(rf"\b{found[1]}\b", (PROJECT / found[2]).read_text(encoding="utf-8")), row


@pytest.mark.parametrize("title", WALKS)
def test_walk_through_the_code_enters_each_file_once(title: str) -> None:
    steps = re.findall(r"^\d+\. `((?:src/easel|web)/[\w/.]+)`", section(title), re.MULTILINE)
    assert len(steps) >= 20
    assert len(steps) == len(set(steps))
