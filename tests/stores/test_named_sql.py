"""Named SQL: names, purposes, parameters and included definitions of statements."""

from __future__ import annotations

import re

import pytest

from easel.stores import named_sql
from tests.stores.statement_plans import all_statements

TEXT = """-- name: find_thing
-- Find the thing of this user, by the first of
-- its names.
select name::text from things
 -- A remark in a line of its own is not sent, whatever :it says.
 where account_id = :account_id and (name = :name or alias = :name);

-- name: drop_thing
-- Remove it.
delete from things where name = :name;
"""


def test_statement_has_name_purpose_and_parameters() -> None:
    found = named_sql.parse(TEXT, numbered=False)
    assert list(found) == ["find_thing", "drop_thing"]
    find = found["find_thing"]
    assert (find.name, find.purpose) == (
        "find_thing",
        "Find the thing of this user, by the first of its names.",
    )
    assert (
        find.sql == "select name::text from things\n"
        " where account_id = :account_id and (name = :name or alias = :name)"
    )
    assert find.order == ("account_id", "name")
    assert find.arguments({"name": "n", "account_id": "u", "more": "m"}) == ["u", "n"]


def test_postgres_parameters_are_numbered_by_first_use() -> None:
    find = named_sql.parse(TEXT, numbered=True)["find_thing"]
    assert find.sql == "select name::text from things\n where account_id = $1 and (name = $2 or alias = $2)"
    assert find.order == ("account_id", "name")


def test_casts_and_times_are_not_parameters() -> None:
    found = named_sql.parse(
        "-- name: one\n-- Why.\nselect a::text, '12:30', b[1:2] from t where c = :c::int[];\n", numbered=True
    )
    assert (found["one"].sql, found["one"].order) == (
        "select a::text, '12:30', b[1:2] from t where c = $1::int[]",
        ("c",),
    )


def test_included_definition_is_inserted() -> None:
    text = """-- define: columns
-- The columns of a thing.
name, age + :years as age;

-- name: get_thing
-- Return one thing.
select
  -- include: columns
  from things where id = :id;
"""
    statements = named_sql.parse(text, numbered=True)
    assert list(statements) == ["get_thing"]
    assert statements["get_thing"].sql == "select\nname, age + $1 as age\n  from things where id = $2"


REFUSALS = [
    # id                text                                                    message
    ("no comment",      "-- name: a\nselect 1;",                                "a must have a comment"),
    ("empty comment",   "-- name: a\n--\nselect 1;",                            "a must have a comment"),
    ("repeated name",   "-- name: a\n-- A.\nb;\n-- name: a\n-- B.\nb;",         "have the name a"),
    ("missing name",    "select 1;\n-- name: a\n-- A.\nselect 1;",              "SQL before the first"),
    ("unknown include", "-- name: a\n-- A.\nselect\n-- include: b\n;",          "The statement a includes b"),
]  # fmt: skip


@pytest.mark.parametrize("text, message", [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS])
def test_file_that_breaks_the_rules_does_not_load(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        named_sql.parse(text, numbered=False)


def test_common_statement_is_sent_to_postgres_as_written_and_to_sqlite_in_its_words() -> None:
    statements = {
        dialect: named_sql.load(dialect, "nodes")["renew_nodes"] for dialect in ("postgres", "sqlite")
    }
    assert statements["postgres"].sql == (
        "update nodes set expires_at = clock_timestamp() + make_interval(secs => $1)\n"
        " where connection_id = any($2::text[]) returning connection_id"
    )
    assert statements["sqlite"].sql == (
        "update nodes set expires_at = :now + cast(:seconds * 1000000 as integer)\n"
        " where connection_id in (select value from json_each(:connection_ids)) returning connection_id"
    )


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_statement_loads_and_states_its_purpose(dialect: str) -> None:
    statements = [statement for _, statement in all_statements(dialect)]
    assert len(statements) > 100
    for statement in statements:
        assert ";" not in statement.sql, statement.name
        assert statement.purpose.endswith((".", *"0123456789")), f"{statement.name} must end its sentence"
