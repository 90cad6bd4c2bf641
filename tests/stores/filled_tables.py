"""Fills every growing table of a migrated database with SQL, in the same way on both databases.

The rows are hostile to plans that read on until they find something: no run has failed, and everything that
can be pruned was pruned. They also have misleading averages: nearly every session, canvas and run has one row
in each table, and the session, the canvas and the run `big` have thousands. Rows are stored without checks of
foreign keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3

    import asyncpg

ROWS = 10_000
BIG = 3_000  # rows of `big` in each table: few enough that the average of all stays near one

# SQL expressions that differ between the databases.
PAST, FUTURE, QUEUE_NO, BYTES = "PAST", "FUTURE", "QUEUE_NO", "BYTES"
WORDS = {
    "postgres": {
        PAST: "(timestamptz '2020-01-01' + n * interval '1 second')",
        FUTURE: "(timestamptz '2100-01-01' + n * interval '1 second')",
        BYTES: "'\\x01'::bytea",
    },
    "sqlite": {
        PAST: "(1577836800000000 + n * 1000000)",
        FUTURE: "(4102444800000000 + n * 1000000)",
        BYTES: "x'01'",
        QUEUE_NO: "((select count(*) from runs) + n)",  # numbered by Postgres itself
    },
}


@dataclass(frozen=True)
class Rows:
    """Rows of a table, one for each number `n` from 1 to `count`; the columns are SQL expressions."""

    table: str
    count: int
    columns: dict[str, str]

    def to_sql(self, dialect: str) -> str:
        words = WORDS[dialect]
        columns = {
            name: value for name, value in self.columns.items() if value != QUEUE_NO or QUEUE_NO in words
        }
        names, values = ", ".join(columns), ", ".join(columns.values())
        for word, expression in words.items():
            values = values.replace(word, expression)
        return f"insert into {self.table} ({names}) select {values} from numbers where n <= {self.count}"


def rows(table: str, count: int = ROWS, /, **columns: str) -> Rows:
    return Rows(table, count, columns)


def session_rows(count: int = ROWS, /, **columns: str) -> Rows:
    common = {"account_id": "'owner'", "created_at": PAST, "last_message_at": PAST}
    return rows("sessions", count, **{**common, **columns})


def run_rows(count: int = ROWS, /, **columns: str) -> Rows:
    ended = {"status": "'completed'", "started_at": PAST, "finished_at": PAST, "owner_id": "'worker'"}
    common = {"account_id": "'owner'", "input_text": "'text'", "created_at": PAST, "queue_no": QUEUE_NO}
    log = {"turn_no": "n", "oldest_seq": "1", "last_seq": "1", "attempt": "1"}
    return rows("runs", count, **{**common, **log, **ended, **columns})


def event_rows(count: int = ROWS, /, **columns: str) -> Rows:
    common = {"event_type": "'done'", "payload": "'{}'", "visibility": "'public'", "created_at": PAST}
    return rows("run_events", count, **common, **columns)


def message_rows(count: int = ROWS, /, **columns: str) -> Rows:
    ids = {"message_id": "'m' || n", "run_id": "'r' || n", "account_id": "'owner'"}
    return rows("messages", count, **ids, role="'user'", content="'\"text\"'", payload="'{}'", **columns)


def canvas_rows(count: int = ROWS, /, **columns: str) -> Rows:
    common = {
        "account_id": "'owner'",
        "agent_id": "'main'",
        "title": "'title'",
        "spec": "'{}'",
        "state": "'{}'",
    }
    return rows("canvases", count, **{**common, **columns})


def canvas_event_rows(count: int = ROWS, /, **columns: str) -> Rows:
    common = {"event_type": "'canvas.state'", "payload": "'{}'", "visibility": "'public'", "created_at": PAST}
    return rows("canvas_events", count, account_id="'owner'", **common, **columns)


def execution_rows(count: int = ROWS, /, **columns: str) -> Rows:
    common = {"account_id": "'owner'", "action_id": "'action'", "actor": "'{}'", "created_at": PAST}
    ended = {"status": "'completed'", "started_at": PAST, "ended_at": PAST}
    return rows("executions", count, **{**common, **ended, **columns})


def document_rows(count: int = ROWS, /, **columns: str) -> Rows:
    return rows("documents", count, account_id="'owner'", created_at=PAST, **columns)


REPORTED = {"is_closed": "true", "is_versioned": "true", "is_reported": "true"}
AUTHOR = {"author_kind": "'person'", "author_id": "'owner'"}


def draft_rows(count: int = ROWS, /, **columns: str) -> Rows:
    text = {"text": "'text'", "revision_id": "'revision' || n"}
    return rows("document_drafts", count, account_id="'owner'", **AUTHOR, **text, **columns)


def version_rows(count: int = ROWS, /, **columns: str) -> Rows:
    text = {"text": "'text'", "size": "4", "revision_id": "'revision' || n"}
    return rows(
        "document_versions", count, account_id="'owner'", created_at=PAST, **AUTHOR, **text, **columns
    )


def canvas_version_rows(count: int = ROWS, /, **columns: str) -> Rows:
    common = {"revision": "1", "title": "'title'", "is_accepted": "true", "next_changed": "'[[], 0, null]'"}
    return rows("canvas_versions", count, account_id="'owner'", **common, **columns)


def canvas_version_asset_rows(count: int = ROWS, /, **columns: str) -> Rows:
    asset = {"path": "'index.html'", "size": "1"}
    return rows("canvas_version_assets", count, account_id="'owner'", **asset, **columns)


FILL = [
    rows("accounts", 1_000, account_id="'user' || n", kind="'person'"),
    rows("people", 1_000, user_id="'user' || n"),
    rows("accounts", 1_000, account_id="'team' || n", kind="'team'"),
    rows("team_members", 1_000, account_id="'team' || n", user_id="'user' || n", role="'member'"),
    rows("team_members", 1_000, account_id="'team0'", user_id="'user' || n", role="'viewer'"),
    rows("ended_accounts", account_id="'ended' || n"),
    session_rows(session_id="'s' || n", title="'title ' || n", last_thread_seq="1"),
    session_rows(1, session_id="'big'", title="'big'", last_thread_seq=f"{BIG}"),
    run_rows(run_id="'r' || n", session_id="'s' || n", idempotency_key="'key' || n"),
    run_rows(BIG, run_id="'big' || n", session_id="'big'"),
    run_rows(1, run_id="'big'", session_id="'big'", last_seq=f"{BIG}"),
    run_rows(
        20,
        run_id="'running' || n",
        session_id="'a' || n",
        status="'running'",
        finished_at="null",
        lease_until=FUTURE,
    ),
    run_rows(20, run_id="'queued' || n", session_id="'b' || n", status="'queued'", finished_at="null"),
    run_rows(
        20,
        run_id="'waiting' || n",
        session_id="'a' || n",
        status="'queued'",
        finished_at="null",
        turn_no="null",
    ),
    event_rows(run_id="'r' || n", seq="1"),
    event_rows(BIG, run_id="'big'", seq="n", account_id="'owner'", session_id="'big'", thread_seq="n"),
    message_rows(session_id="'s' || n", thread_seq="1"),
    message_rows(BIG, session_id="'big'", thread_seq="n"),
    rows(
        "account_events",
        account_id="'user' || n % 1000",
        seq="n",
        event_type="'session.created'",
        payload="'{}'",
        visibility="'public'",
        created_at=PAST,
    ),
    rows("ended_threads", account_id="'owner'", session_id="'e' || n", last_thread_seq="n"),
    rows(
        "boards",
        run_id="'r' || n",
        board="'blackboard'",
        edge_id="'edge'",
        key="'key'",
        value="'1'",
        size="1",
        version="1",
        agent_id="'main'",
        node_id="'node'",
        kind="'agent'",
    ),
    canvas_rows(canvas_id="'c' || n", last_seq="1"),
    canvas_rows(1, canvas_id="'big'", last_seq=f"{BIG}"),
    canvas_event_rows(canvas_id="'c' || n", seq="1"),
    canvas_event_rows(BIG, canvas_id="'big'", seq="n"),
    document_rows(canvas_id="'c' || n", session_id="'s' || n"),
    document_rows(1, canvas_id="'big'", session_id="'big'", has_unreported="true"),
    document_rows(BIG, canvas_id="'d' || n", session_id="'big'"),
    document_rows(
        20,
        canvas_id="'leased' || n",
        session_id="'a' || n",
        lease_id="'lease' || n",
        lease_run_id="'running' || n",
        lease_session_id="'a' || n",
        lease_expires_at=FUTURE,
    ),
    draft_rows(canvas_id="'c' || n", draft_no="1", **REPORTED),
    draft_rows(20, canvas_id="'big'", draft_no="n"),
    version_rows(canvas_id="'c' || n", version_no="1"),
    version_rows(BIG, canvas_id="'big'", version_no="n"),
    rows(
        "hidden_messages",
        run_id="'r' || n",
        hidden_no="1",
        message_id="'h' || n",
        content="'\"text\"'",
        follows_answer="true",
    ),
    rows("ended_canvases", account_id="'owner'", canvas_id="'e' || n", last_seq="n"),
    rows(
        "canvas_assets",
        account_id="'owner'",
        canvas_id="'c' || n",
        path="'index.html'",
        blob_key="'asset' || n",
        size="1",
    ),
    canvas_version_rows(canvas_id="'c' || n", version_no="1"),
    canvas_version_rows(200, canvas_id="'big'", version_no="n"),  # the maximum of EASEL_CANVAS_VERSIONS
    canvas_version_asset_rows(canvas_id="'c' || n", version_no="1", blob_key="'asset' || n"),
    canvas_version_asset_rows(200, canvas_id="'big'", version_no="n", blob_key="'big' || n"),
    rows(
        "canvas_views",
        account_id="'owner'",
        canvas_id="'c' || n",
        view_id="'view' || n",
        client_id="'client'",
        connection_id="'connection' || n",
        expires_at=FUTURE,
    ),
    execution_rows(canvas_id="'c' || n", event_id="'ev' || n", request_id="'request' || n"),
    execution_rows(BIG, canvas_id="'big'", event_id="'event' || n", request_id="'request' || n"),
    execution_rows(
        20,
        canvas_id="'big'",
        event_id="'running' || n",
        status="'running'",
        ended_at="null",
        owner_id="'worker'",
        lease_until=FUTURE,
    ),
    execution_rows(
        20,
        canvas_id="'big'",
        event_id="'asked' || n",
        status="'asked'",
        ended_at="null",
        created_at=FUTURE,
    ),
    rows(
        "canvas_refreshes",
        account_id="'owner'",
        canvas_id="'c' || n",
        refresh_id="'job'",
        action_id="'action'",
        every_ms="1000",
        next_at=FUTURE,
    ),
    rows(
        "artifacts",
        account_id="'owner'",
        artifact_id="'artifact' || n",
        size="1",
        media_type="'text/plain'",
        blob_key="'blob' || n",
        is_stored="true",
        touched_at=PAST,
    ),
    rows("artifact_refs", account_id="'owner'", artifact_id="'artifact' || n", run_id="'r' || n"),
    rows("artifact_refs", account_id="'owner'", artifact_id="'artifact' || n", canvas_id="'c' || n"),
    rows(
        "audit",
        seq="n",
        account_id="'owner'",
        at=PAST,
        storage_class="'audit'",
        action="'common' || n % 2",
        record="''",
        hash="'hash'",
    ),
    rows(
        "tokens",
        token_id="'token' || n",
        user_id="'owner'",
        role="'admin'",
        account_id="'user' || n % 1000",
        kind="'user'",
        name="'name'",
        digest="'digest' || n",
        created_at=PAST,
    ),
    rows(
        "nodes",
        account_id="'user' || n % 1000",
        node_id="'node' || n",
        user_id="'user' || n % 1000",
        connection_id="'connection' || n",
        instance_id="'instance'",
        version="'1'",
        platform="'linux'",
        tools="'[]'",
        connected_at=PAST,
        expires_at=FUTURE,
    ),
    rows(
        "calls",
        call_id="'call' || n",
        account_id="'owner'",
        target="'connection' || n",
        method="'tool.call'",
        params="'{}'",
        status="'taken'",
        deadline=FUTURE,
    ),
    rows("settings", account_id="'user' || n", name="'provider'", value="'scripted'"),
    rows(
        "secrets",
        account_id="'user' || n",
        name="'TOKEN'",
        key_id="'key'",
        data=BYTES,
        created_at=PAST,
        updated_at=PAST,
    ),
    rows(
        "oauth_state",
        state="'state' || n",
        code_verifier="'verifier'",
        expires_at=FUTURE,
        provider="'provider'",
        account_id="'user' || n",
        user_id="'user' || n",
        redirect_uri="'uri'",
        origin="'origin'",
    ),
    rows(
        "auth",
        account_id="'user' || n",
        provider="'provider'",
        user_id="'user' || n",
        key_id="'key'",
        data=BYTES,
        scopes="''",
        connected_at=PAST,
        expires_at=FUTURE,
        revision="'revision'",
    ),
    rows("account_orders", 1_000, account_id="'user' || n", last_seq="n", oldest_seq="1"),
    rows("account_orders", 1, account_id="'owner'", last_seq="13000", followed_until=PAST),
    rows("account_totals", 1_000, account_id="'user' || n", stored_bytes="n"),
    rows(
        "usage_counts",
        subject="'user' || n % 1000",
        instance_id="'instance' || n",
        requests="1",
        streams="0",
        actions="0",
        expires_at=FUTURE,
    ),
    rows("unordered_appends", appends="'[]'"),
    rows(
        "ordered_appends",
        account_id="'user' || n % 1000",
        server_seq="n",
        log_type="'run'",
        log_id="'r' || n",
        first_seq="1",
        last_seq="1",
    ),
    rows("departures", account_id="'team1'", user_id="'user' || n"),
    rows("identities", issuer="'https://issuer'", subject="'subject' || n", user_id="'user' || n % 1000"),
    rows("invitations", digest="'digest' || n", user_id="'user' || n % 1000", expires_at=FUTURE),
    rows("sign_ins", sign_in_id="'sign_in' || n", user_id="'user' || n % 1000", expires_at=FUTURE),
]

# Tables that cannot grow, each with its reason.
_BOUNDED = {
    **dict.fromkeys(("audit_checkpoint", "audit_head", "order_head", "probes", "run_counters"), "one row"),
    "schema_migrations": "one row per migration",
    "server_keys": "one row per kind of key",
    "sweeps": "one row per kind of sweep",
}
BOUNDED_TABLES = {
    "postgres": _BOUNDED,
    "sqlite": {**_BOUNDED, "calls": "unused, because SQLite serves one process"},
}


def statements(dialect: str) -> list[str]:
    """Return the statements that fill the tables. They read `numbers`, which has n from 1 to ROWS."""
    inserts = [filled.to_sql(dialect) for filled in FILL if filled.table not in BOUNDED_TABLES[dialect]]
    return [*inserts, f"update audit_head set last_seq = {ROWS}"]


async def fill_postgres(connection: asyncpg.Connection[Any]) -> None:
    await connection.execute("set session_replication_role = replica")  # no checks of foreign keys
    await connection.execute(
        f"create temporary table numbers as select n from generate_series(1, {ROWS}) n; "
        + "; ".join(statements("postgres"))
    )


def fill_sqlite(connection: sqlite3.Connection) -> None:
    connection.execute("pragma foreign_keys = off")
    connection.execute("begin")
    connection.execute("create temporary table numbers (n integer primary key)")
    connection.executemany("insert into numbers values (?)", ((n,) for n in range(1, ROWS + 1)))
    for statement in statements("sqlite"):
        connection.execute(statement)
    connection.execute("commit")
