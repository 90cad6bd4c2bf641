"""Sections and list items as addresses of lines."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easel.core.document.lines import split_lines
from easel.core.document.list_items import find_item, find_items
from easel.core.document.sections import Outline
from easel.errors import BadInput
from tests.requirements import rule
from tests.support.length import examples

TEXT = """---
title: x
---
Intro

# Plan

- not one of Steps

## Steps ##

1. first
   more
2. second

   - nested
lazy
10. third

```sh
# no heading
- no item
```

### Details

- detail

Notes
-----

<!--
# no heading
-->

## Steps of others
#hashtag
"""


def names(text: str) -> list[tuple[str, int, int]]:
    return [(section.name, section.first, section.last) for section in Outline(text).sections]


@rule("RS-46", "CT-04", "CT-05")
def test_sections_end_at_the_next_heading_of_their_level() -> None:
    assert names(TEXT) == [
        ("# Plan", 6, 37),
        ("## Steps", 10, 28),
        ("### Details", 25, 28),
        ("## Notes", 29, 35),
        ("## Steps of others", 36, 37),
    ]


@rule("RS-46")
@pytest.mark.parametrize(
    "line, name",
    [
        (1, None),
        (5, None),
        (6, "# Plan"),
        (9, "# Plan"),
        (21, "## Steps"),
        (27, "### Details"),
        (30, "## Notes"),
    ],
)
def test_section_of_a_line_is_the_innermost(line: int, name: str | None) -> None:
    assert Outline(TEXT).name_of(line) == name


@rule("RS-46", "CT-04")
@pytest.mark.parametrize("name", ["Steps", "## Steps", " ## Steps ", "## Steps ##"])
def test_section_is_found_by_its_heading(name: str) -> None:
    section = Outline(TEXT).find(name)
    assert (section.first, section.last, section.own_last) == (10, 28, 24)


@rule("CT-04")
@pytest.mark.parametrize(
    "name, problem",
    [
        ("### Steps", "there is no heading `### Steps`. Its headings by line are: 6: # Plan;"),
        ("steps", "there is no heading"),
        ("A", "occurs at lines 1, 3"),
        ("", "there is no heading"),
    ],
)
def test_unknown_or_ambiguous_section_is_refused(name: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem.replace(".", r"\.")):
        Outline("## A\n\n## A\n" if name == "A" else TEXT).find(name)


@rule("RS-46", "CT-04")
@pytest.mark.parametrize("number, lines", [(1, (12, 13)), (2, (14, 17)), (3, (18, 18))])
def test_list_item_is_addressed_by_its_number_in_the_section(number: int, lines: tuple[int, int]) -> None:
    assert find_item(split_lines(TEXT), Outline(TEXT).find("## Steps"), number) == lines


@rule("CT-04")
@pytest.mark.parametrize("number", [0, 4])
def test_item_that_does_not_exist_is_refused(number: int) -> None:
    with pytest.raises(BadInput, match="has 3 list items"):
        find_item(split_lines(TEXT), Outline(TEXT).find("## Steps"), number)


@pytest.mark.parametrize(
    "text, items",
    [
        ("- a\n- b\n", [(1, 1), (2, 2)]),
        ("- a\n\n  more\n\nend\n- b\n", [(1, 3), (6, 6)]),
        ("* * *\n- a\n---\n+ b\n", [(2, 2), (4, 4)]),
        ("In the year\n1986. it was\n", []),
        ("In the list\n1. it was\n", [(2, 2)]),
        ("- a\n  ```\n- b\n  ```\n", [(1, 2), (3, 4)]),  # the item ends, and its fence with it
        ("- a\n  ```\n  - b\n  ```\n- c\n", [(1, 4), (5, 5)]),
        ("```\n- a\n```\n- b\n", [(4, 4)]),
        ("-\ta\n\tb\n-\n", [(1, 2), (3, 3)]),
        ("-a\n**b**\n", []),
        ("- a\r\n\r\n- b\r\n", [(1, 1), (3, 3)]),
    ],
)
def test_items_of_the_outermost_list_are_found(text: str, items: list[tuple[int, int]]) -> None:
    assert find_items(split_lines(text)) == items


@pytest.mark.parametrize(
    "text, expected",
    [
        ("# A\r\n## B\r\n", [("# A", 1, 2), ("## B", 2, 2)]),
        ("   ### A\n    # B\n\t# C\n", [("### A", 1, 3)]),
        ("#\n####### x\n#x\n", [("# ", 1, 3)]),
        ("A\n===\n\nB\n--\n", [("# A", 1, 5), ("## B", 4, 5)]),
        ("a\nb\n---\n", []),  # a rule after prose of two lines
        ("- a\n---\n> b\n---\n| c |\n---\n\n---\n", []),
        ("~~~\n# A\n```\n# B\n~~~\n# C\n", [("# C", 6, 6)]),
        ("````\n```\n# A\n````\n# B\n", [("# B", 5, 5)]),
        ("```a`b\n# A\n", [("# A", 2, 2)]),
        ("```\n# A\n", []),
        ("- x\n\n      ```\n      # A\n# B\n", [("# B", 5, 5)]),
        ("<!-- # A\n# B -->\n# C\n", [("# C", 3, 3)]),
        ("# A #\n# B#\n# C # x\n# ##\n", [("# A", 1, 1), ("# B#", 2, 2), ("# C # x", 3, 3), ("# ", 4, 4)]),
        ("#\n--\n", [("# ", 1, 2)]),
        ("\r\n---\r\n", []),
        ("", []),
    ],
)
def test_headings_are_those_of_markdown(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert names(text) == expected


LINES = st.sampled_from(
    [
        "# A",
        "## B",
        "c",
        "===",
        "---",
        "--",
        "```",
        "~~~ x",
        "~~~",
        "````",
        "    ```",
        "```a`b",
        "use `code` <b>",
        "<!--",
        "-->",
        "",
        "- i",
        "#x",
        " # D",
        "a # b",
        "  ## E ##\r",
    ]
)
HASH = re.compile(r" {0,3}(#{1,6})(?:[ \t\r](.*))?")
NO_TITLE = re.compile(r"\s*| {0,3}(?:#{1,6}\s.*|[>|<*+=_~`-].*|[0-9]{1,9}[.)][ \t].*)| {4}.*|\t.*")


def outline_naively(text: str) -> list[str | None]:
    """Return the section of each line, from the rules of Markdown, line by line."""
    lines = split_lines(text)
    names: list[str | None] = []
    name: str | None = None
    fence, is_in_item, is_comment, skipped_until = "", False, False, 0
    if lines and lines[0] == "---" and "---" in lines[1:]:
        skipped_until = lines.index("---", 1) + 1
    for at, line in enumerate(lines):
        if is_in_item and line[:1] not in ("", " ", "\t", "\r"):
            fence, is_in_item = "", False
        content = line.lstrip(" \t")
        signs = content[: len(content) - len(content.lstrip(content[:1]))]
        rest = content[len(signs) :]
        if at < skipped_until:
            pass
        elif is_comment:
            is_comment = "-->" not in line
        elif fence:
            if signs.startswith(fence) and not rest.strip():
                fence, is_in_item = "", False
        elif content.startswith("<!--"):
            is_comment = "-->" not in line
        elif signs[:3] in ("```", "~~~") and not (signs[0] == "`" and "`" in rest):
            fence, is_in_item = signs, len(line) - len(content) > 3
        elif found := HASH.fullmatch(line):
            name = f"{found[1]} {re.sub(r'(^|[ ])#+$', '', (found[2] or '').strip()).strip()}"
        elif is_title(lines, at):
            name = f"{'#' if lines[at + 1][0] == '=' else '##'} {line.strip()}"
        names.append(name)
    return names


def is_title(lines: list[str], at: int) -> bool:
    is_first = at == 0 or not lines[at - 1].strip() or HASH.fullmatch(lines[at - 1]) is not None
    is_underlined = at + 1 < len(lines) and re.fullmatch(r"(==+|--+)\s*", lines[at + 1]) is not None
    return is_first and is_underlined and not NO_TITLE.fullmatch(lines[at])


@rule("RS-46")
@given(st.lists(LINES, max_size=24), st.booleans())
@settings(max_examples=examples(600), deadline=None)
def test_sections_of_lines_agree_with_a_naive_outline(lines: list[str], has_last_newline: bool) -> None:
    text = "\n".join(lines) + "\n" * has_last_newline
    expected = outline_naively(text)
    offsets = [sum(len(line) + 1 for line in lines[:at]) for at in range(len(expected))]
    assert Outline(text).name_each(offsets) == expected
    assert Outline(text).name_each(offsets[1::3]) == expected[1::3]
    assert [Outline(text).name_of(number) for number in range(1, len(offsets) + 1)] == expected
    sections = {section.first: section.name for section in Outline(text).sections}
    starts = [
        max((first for first in sections if first <= at), default=0) for at in range(1, len(offsets) + 1)
    ]
    assert [sections.get(first) for first in starts] == expected


@pytest.mark.parametrize(
    "text",
    [
        "# a\n" * 60_000,
        "```\n" * 60_000,
        "    ```\n" * 60_000,
        "<!--\n" * 60_000,
        "#" * 1_000_000,
        "# " + " " * 1_000_000 + "x",
        "-" * 500_000 + " " * 500_000 + "x",
        "a\n--\n\n" * 40_000,
        "- " * 500_000 + "x",
        "\t" * 1_000_000,
        "\n--" * 60_000,
    ],
    ids=lambda text: repr(text[:6]),
)
def test_hostile_texts_take_linear_time(text: str) -> None:
    began = time.process_time()
    Outline(text).name_each([0, text.rfind("\n") + 1])
    _ = Outline(text).sections
    find_items(split_lines(text))
    assert time.process_time() - began < 3
