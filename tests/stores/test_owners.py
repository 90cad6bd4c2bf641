"""Every statement that reads or changes the rows of an account names the account. RS-76

A table is owned if it has a column `account_id`. Each select, insert, update or delete of a statement must
compare the account of every owned table that it names: with an argument, or with the row of a table outside
of it. Exceptions have a reason each. The SQL is read as text, without a database.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from typing import TYPE_CHECKING

import pytest

from easel.stores.sqlite.schema import apply_missing_migrations
from tests.requirements import rule
from tests.stores.statement_plans import all_statements

if TYPE_CHECKING:
    from collections.abc import Iterator

# reason: the statements, by noun
EXCEPTIONS = {
    "finds the work of every account, which is done in the name of its account": """
        executions: claim_refreshes next_refresh orphaned_executions other_active_owners
        runs: claim_expired claim_queued claim_unacknowledged queue_depth
    """,
    "what this worker or instance holds, by its claims, runs, leases, views and connections": """
        executions: renew_executions
        canvases: list_views renew_views
        documents: list_leases_of_run release_lease release_leases renew_leases
        calls: answer_call collect_answers renew_calls take_calls take_cancelled_calls
        nodes: fail_calls renew_nodes unregister_node
        runs: append_batch append_batches append_last_batch release_claim renew_claim
            renew_claims repeated_batch requested_cancels
    """,
    "inserts the row of the account that the transaction has just created": """
        accounts: add_person
    """,
    "by the id of a run, whose account was compared in this statement, its transaction or before it": """
        runs: cancel_queued events_after flag_cancel log_heads pass_turn wait_for_slot
        turns: list_turns read_logs
    """,
    "a sweep over all accounts": """
        artifacts: find_unknown_blobs
        executions: prune_executions
        canvas_versions: find_unused_blobs
        canvases: find_unknown_assets list_expired_views
        departures: list_departures
        deletions: list_deleted_accounts next_deleted_canvas next_deleted_session
            purge_events purge_run_references purge_runs
        documents: list_expired_leases
        calls: sweep_calls
        nodes: sweep_nodes
        orders: end_expired_follow
        references: confirm_run_references find_pruned_runs release_run_references run_mentions
            run_references
        runs: delete_events list_prunable_runs trim_log trim_logs trim_thread
        oauth_flows: delete_expired_flows
        sign_in_flows: delete_expired_flows
    """,
    "people, whom an operator administers": """
        people: count_people lock_people
    """,
    "a credential, which says whose account it is, and its administration by the operator": """
        connections: list_other_secrets
        secrets: list_other_secrets
        settings: list_other_secrets
        oauth_flows: find_flow
        sign_in_flows: consume_sign_in start_sign_in
        sign_ins: signed_in
        tokens: bind_token list_tokens note_use revoke_token
    """,
    "the audit chain is one for all accounts, and is verified as a whole": """
        audit: count_records end_of_chain newest_records records_after remove_records
    """,
}

_TEXTS = re.compile(r"'[^']*'")
_LOCKS = re.compile(r"\bfor (?:no key )?(?:key )?(?:update|share)\b|\bdo update\b")
_INNERMOST = re.compile(r"\(([^()]*)\)")
_QUERY = re.compile(r"\s*(?:select|with|insert|update|delete)\b")
_PIECES = re.compile(r"(?=\b(?:select|insert into|update|delete from)\b)")
_NAMED = re.compile(r"(?:\bfrom|\bjoin|\binto|\bupdate|\busing|,)\s+(\w+)\b(?=(?:\s+(?:as\s+)?(\w+))?)")
_CONDITIONS = re.compile(
    r"\b(?:where|on|using)\b.*?(?=\breturning\b|\border by\b|\bgroup by\b|\Z)", re.DOTALL
)
_COMPARED = re.compile(r"(?<![:\w])(?:(\w+)\.)?(?:account|user)_id(?: = (?:(\w+)\.)?account_id)?\b")
_EXCLUDED = re.compile(r"«[^«»]*» not in")
_BY_PLACE = re.compile(r"\b(?:ctid = any|rowid in)\b")  # rows that a query inside has chosen
_WORDS = re.compile(r"where|on|set|join|left|cross|indexed|using|order|limit|group|values|union|returning")


def owned_tables() -> frozenset[str]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.row_factory = sqlite3.Row
        apply_missing_migrations(connection)
        rows = connection.execute(
            "select m.name from sqlite_schema m, pragma_table_info(m.name) c"
            " where m.type = 'table' and c.name = 'account_id'"
        ).fetchall()
    return frozenset({"people", *(row["name"] for row in rows)})  # a person has the id of their account


OWNED = owned_tables()


def pieces_of(sql: str) -> Iterator[str]:
    """Yield each select, insert, update and delete of a statement, without those inside of it."""
    text = _LOCKS.sub("", _TEXTS.sub("''", sql))
    while match := _INNERMOST.search(text):
        inside = match[1]
        if _QUERY.match(inside):
            yield from pieces_of(inside)
            inside = ""
        text = f"{text[: match.start()]}«{inside}»{text[match.end() :]}"
    yield from (piece for piece in _PIECES.split(text) if piece.strip())


def unowned(sql: str) -> list[str]:
    """Return the owned tables whose account a statement does not compare."""
    return [table for piece in pieces_of(sql) for table in unowned_in(piece)]


def unowned_in(piece: str) -> list[str]:
    found = [(name, alias) for name, alias in _NAMED.findall(piece) if name in OWNED]
    aliases = {alias if alias and not _WORDS.fullmatch(alias) else name: name for name, alias in found}
    if piece.startswith("insert into"):
        return [] if "account_id" in piece.partition("values")[0] else list(aliases.values())
    conditions = _CONDITIONS.search(_EXCLUDED.sub("", piece))
    if conditions and _BY_PLACE.search(conditions[0]):
        return []
    compared = _COMPARED.findall(conditions[0]) if conditions else []
    # A comparison of two tables of this piece counts for both only if one of them is compared with another.
    anchored = {left for left, right in compared if not (left in aliases and right in aliases)}
    anchored |= {right for left, right in compared if right and left not in aliases}
    changed = True
    while changed:
        joined = {name for pair in compared if anchored & set(pair) for name in pair if name}
        changed = not joined <= anchored
        anchored |= joined
    return [] if "" in anchored else [name for alias, name in aliases.items() if alias not in anchored]


def exceptions() -> dict[str, str]:
    """Return the reason of each exception by `noun.name`."""
    reasons: dict[str, str] = {}
    for reason, listed in EXCEPTIONS.items():
        noun = ""
        for word in listed.split():
            if word.endswith(":"):
                noun = word.removesuffix(":")
            else:
                reasons[f"{noun}.{word}"] = reason
    return reasons


@rule("RS-76", "CV-08", "RX-54")
@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_statement_compares_the_account_of_the_rows_it_reaches(dialect: str) -> None:
    found = {
        name: tables for name, statement in all_statements(dialect) if (tables := unowned(statement.sql))
    }
    assert {name: tables for name, tables in found.items() if name not in exceptions()} == {}


def test_every_exception_is_still_one() -> None:
    statements = [pair for dialect in ("sqlite", "postgres") for pair in all_statements(dialect)]
    assert set(exceptions()) == {name for name, statement in statements if unowned(statement.sql)}


STATEMENTS = [
    # tables without a compared account, statement
    ([], "select 1 from runs where account_id = :account_id and run_id = :run_id"),
    ([], "insert into settings (account_id, key) values (:account_id, :key)"),
    ([], "delete from runs where (account_id, session_id) in (select account_id, session_id from ended)"),
    ([], "select 1 from runs r join sessions s on s.account_id = r.account_id where r.account_id = :a"),
    ([], "select 1 from sessions s where account_id = :a and exists (select 1 from runs r"
         " where r.account_id = s.account_id)"),
    ([], "delete from runs where rowid in (select rowid from runs where account_id = :account_id limit 1)"),
    (["runs"], "select account_id from runs where run_id = :run_id returning account_id"),
    (["runs"], "select account_id, name from runs order by account_id"),
    (["runs"], "update runs set status = 'a' where run_id = :run_id"),
    (["settings"], "insert into settings (key) values (:key)"),
    (["runs", "sessions"], "select 1 from runs r join sessions s on s.account_id = r.account_id"),
    (["sessions"], "select 1 from runs r, sessions s where r.account_id = :a and s.session_id = 'a'"),
    (["runs"], "select 1 from sessions where account_id = :a and exists (select 1 from runs)"),
    (["runs"], "delete from runs where rowid in (select rowid from runs where run_id = :run_id)"),
    (["runs"], "select 1 from runs where (account_id, run_id) not in (select 1)"),
]  # fmt: skip


@pytest.mark.parametrize("tables, sql", STATEMENTS)
def test_statement_without_an_account_is_found(tables: list[str], sql: str) -> None:
    assert unowned(sql) == tables
