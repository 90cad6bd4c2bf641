"""Named SQL: a statement has a name, a reason and its parameters, or it does not load."""

from __future__ import annotations

import re

import pytest

from easel.stores import named_sql

TEXT = """-- name: find_thing
-- Find the thing of this user, by the first of
-- its names.
select name::text from things
 -- A remark in a line of its own is not sent, whatever :it says.
 where user_id = :user_id and (name = :name or alias = :name);

-- name: drop_thing
-- Remove it.
delete from things where name = :name;
"""


def test_a_statement_has_its_name_its_purpose_and_its_parameters() -> None:
    found = named_sql.parse(TEXT, numbered=False)
    assert list(found) == ["find_thing", "drop_thing"]
    find = found["find_thing"]
    assert (find.name, find.purpose) == (
        "find_thing",
        "Find the thing of this user, by the first of its names.",
    )
    assert (
        find.sql
        == "select name::text from things\n where user_id = :user_id and (name = :name or alias = :name)"
    )
    assert find.order == ("user_id", "name")
    assert find.arguments({"name": "n", "user_id": "u", "more": "m"}) == ["u", "n"]


def test_for_postgres_parameters_are_numbered_by_their_first_use() -> None:
    find = named_sql.parse(TEXT, numbered=True)["find_thing"]
    assert find.sql == "select name::text from things\n where user_id = $1 and (name = $2 or alias = $2)"
    assert find.order == ("user_id", "name")


def test_casts_and_times_are_no_parameters() -> None:
    found = named_sql.parse(
        "-- name: one\n-- Why.\nselect a::text, '12:30', b[1:2] from t where c = :c::int[];\n", numbered=True
    )
    assert (found["one"].sql, found["one"].order) == (
        "select a::text, '12:30', b[1:2] from t where c = $1::int[]",
        ("c",),
    )


REFUSALS = [
    # says                        text                                                        refused with
    ("no sentence",               "-- name: one\nselect 1;",                                  "The statement one must have a comment"),
    ("an empty sentence",         "-- name: one\n--\nselect 1;",                              "The statement one must have a comment"),
    ("the same name twice",       "-- name: one\n-- A.\nselect 1;\n-- name: one\n-- B.\nselect 2;", "Two statements have the name one"),
    ("a statement with no name",  "select 1;\n-- name: one\n-- A.\nselect 1;",                "SQL before the first"),
]  # fmt: skip


@pytest.mark.parametrize("text, told", [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS])
def test_what_is_not_explained_does_not_load(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        named_sql.parse(text, numbered=False)


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_statement_of_ours_loads_and_is_one_statement(dialect: str) -> None:
    for statement in named_sql.load(dialect, "runs").values():
        assert ";" not in statement.sql, statement.name
        assert statement.purpose.endswith((".", *"0123456789")), f"{statement.name} ends its sentence"
