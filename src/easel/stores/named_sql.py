"""SQL with a name and a reason, read from the `.sql` files beside this module.

One file per noun and dialect. A statement without its sentence does not load. Parameters are written `:name`; for
Postgres they become `$1 …` in the order of their first use.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

_HEADING = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")


@dataclass(frozen=True, slots=True)
class Statement:
    name: str
    purpose: str
    sql: str
    order: tuple[str, ...]

    def arguments(self, given: Mapping[str, Any]) -> list[Any]:
        return [given[name] for name in self.order]


def load(dialect: str, noun: str) -> dict[str, Statement]:
    text = resources.files("easel.stores").joinpath("sql", dialect, f"{noun}.sql").read_text("utf-8")
    return parse(text, numbered=dialect == "postgres")


def parse(text: str, *, numbered: bool) -> dict[str, Statement]:
    pieces = _HEADING.split(text)
    if pieces[0].strip():
        raise ValueError(f"SQL before the first `-- name:`: {pieces[0].strip()[:60]!r}")
    found: dict[str, Statement] = {}
    for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
        comments = [line for line in body.splitlines() if line.startswith("-- ")]
        purpose = " ".join(line[3:] for line in comments).strip()
        if not purpose:
            raise ValueError(f"The statement {name} has no sentence that says what it is for.")
        if name in found:
            raise ValueError(f"Two statements are called {name}.")
        sql = (
            "\n".join(line for line in body.splitlines() if not line.lstrip().startswith("--"))
            .strip()
            .rstrip(";")
        )
        found[name] = _statement(name, purpose, sql, numbered=numbered)
    return found


def _statement(name: str, purpose: str, sql: str, *, numbered: bool) -> Statement:
    order: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in order:
            order.append(match[1])
        return f"${order.index(match[1]) + 1}" if numbered else match[0]

    return Statement(name, purpose, _PARAMETER.sub(number, sql), tuple(order))
