"""Named SQL statements, read from `sql/common/{noun}.sql` and `sql/{dialect}/{noun}.sql`.

`-- name: NAME` starts a statement. The comment after it states the purpose of the statement and is required.
Parameters are written `:name`; for Postgres they become `$1 …` in the order of their first use.
`-- define: NAME` names a piece of SQL that the line `-- include: NAME` inserts into a later statement, so
that a column list is written once per noun. A statement in `common` may include a definition of its dialect.
Those of `sql/{dialect}/logs.sql`, which append events, are for all nouns.

A statement in `sql/common/` is written for Postgres; for SQLite its words are replaced by those below, where
`:now` is the time of the database in microseconds and a list is JSON.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

_HEADING = re.compile(r"^-- (name|define): (\w+)\n", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")
_INCLUDE = re.compile(r"^ *-- include: (\w+)$", re.MULTILINE)
_SQLITE_WORDS = [
    (re.compile(words), replacement)
    for words, replacement in (
        (r"extract\(epoch from ((?:[^()]|\([^()]*\))+)\)::float8", r"(\1) / 1e6"),
        (r'::\w+(\[\])?| collate "C"|\s+for ((no key )?update|key share)( of \w+)?( skip locked)?\b', ""),
        (r"ctid = any\(array\((select) ctid ([^;]*)\)\)", r"rowid in (\1 rowid \2)"),
        (r"= any\(:(\w+)\)", r"in (select value from json_each(:\1))"),
        (r"unnest\(:(\w+)\) as (\w+)\((\w+)\)", r"(select value as \3 from json_each(:\1)) as \2"),
        (r"\bjson_array_elements\(", "json_each("),
        (r"\b(\w+)->>(\d)", r"json_extract(\1.value, '$[\2]')"),
        (r"\bleast\(", "min("),
        (r"\bgreatest\(", "max("),
        (r"\bstrpos\(", "instr("),
        (r"\b(clock_timestamp|statement_timestamp|now)\(\)", ":now"),
        (r"make_interval\(secs => :(\w+)\)", r"cast(:\1 * 1000000 as integer)"),
    )
]


@dataclass(frozen=True, slots=True)
class Statement:
    name: str
    purpose: str
    sql: str
    order: tuple[str, ...]

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the values in the order of the statement's parameters."""
        return [values[name] for name in self.order]


@cache
def load(dialect: str, *nouns: str) -> dict[str, Statement]:
    """Return the statements of one or more nouns, which must not have a name in common."""
    folder = resources.files("easel.stores").joinpath("sql")
    nouns = ("logs", *nouns)
    files = [folder.joinpath(name, f"{noun}.sql") for noun in nouns for name in ("common", dialect)]
    text = "\n".join(file.read_text("utf-8") for file in files if file.is_file())
    for words, replacement in _SQLITE_WORDS if dialect == "sqlite" else ():
        text = words.sub(replacement, text)
    return parse(text, numbered=dialect == "postgres")


def parse(text: str, *, numbered: bool) -> dict[str, Statement]:
    """Return the statements of a file by name. Raises `ValueError` if the file breaks the rules above."""
    pieces = _HEADING.split(text)
    if pieces[0].strip():
        raise ValueError(f"SQL before the first `-- name:`: {pieces[0].strip()[:60]!r}")
    parts = list(zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True))
    definitions = {name: _without_comments(body) for kind, name, body in parts if kind == "define"}
    statements: dict[str, Statement] = {}
    for kind, name, body in parts:
        comments = [line for line in body.splitlines() if line.startswith("-- ")]
        purpose = " ".join(line[3:] for line in comments).strip()
        if not purpose:
            raise ValueError(f"The statement {name} must have a comment that states its purpose.")
        if [other for _, other, _ in parts].count(name) > 1:
            raise ValueError(f"Two statements have the name {name}.")
        for included in _INCLUDE.findall(body):
            if included not in definitions:
                raise ValueError(f"The statement {name} includes {included}, which must be defined.")
        if kind == "name":
            sql = _without_comments(_INCLUDE.sub(lambda match: definitions[match[1]], body))
            statements[name] = _statement(name, purpose, sql, numbered=numbered)
    return statements


def _without_comments(body: str) -> str:
    lines = [line for line in body.splitlines() if not line.lstrip().startswith("--")]
    return "\n".join(lines).strip().rstrip(";")


def _statement(name: str, purpose: str, sql: str, *, numbered: bool) -> Statement:
    order: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in order:
            order.append(match[1])
        return f"${order.index(match[1]) + 1}" if numbered else match[0]

    return Statement(name, purpose, _PARAMETER.sub(number, sql), tuple(order))
