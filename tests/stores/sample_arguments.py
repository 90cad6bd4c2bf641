"""Sample arguments for every statement of `stores/sql`, by parameter name, for rows of `filled_tables`.

A value is a tuple of alternatives; a statement is checked with every combination. Values are those of
Postgres; SQLite gets lists as JSON text and times as microseconds. Choose values that find as little as
possible in as many rows as possible: a status that no run has, a cursor near the end of a listing.
"""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from easel.core.stream.log import LAST_CURSOR
from easel.stores.sqlite.times import from_datetime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from easel.stores.named_sql import Statement

LONG_AGO = datetime(1990, 1, 1, tzinfo=UTC)  # before every row
SOON = datetime(2050, 1, 1, tzinfo=UTC)  # after all rows except those that never expire

SAMPLES: dict[str, tuple[Any, ...]] = {
    "max_runs": (0, 2),
    "max_queued": (0, 3),
    "usage": ('[["user5", 1, 0, 0]]',),
    "subjects": (["user5", "user6"],),
    "day": ("2026-01-01",),
    "tokens": (5,),
    "acknowledged": (["running1"],),
    "action": ("never",),
    "action_id": ("action",),
    "action_ids": (["action", "action"],),
    "actions": (["added", "added"],),
    "actor": ("{}",),
    "after": ("", "c5"),
    "after_artifact": ("", "artifact5"),
    "after_turn": (0,),
    "after_account": ("", "owner"),
    "agent_id": ("nobody",),
    "answer": ("{}",),
    "answer_seconds": (60.0,),
    "appends": ('[["owner", 14000, "run", "r5", 1, 1]]',),
    "artifact_id": ("artifact5",),
    "artifact_ids": (["artifact5", "artifact6"],),
    "assets": ('[["assets/new.html", null, null]]',),
    "at": (SOON,),
    "author_id": ("owner",),
    "author_kind": ("person",),
    "author_run_id": (None,),
    "ats": ([SOON, SOON],),
    "attempt": (1,),
    "attempts": ([1, 1],),
    "batch_no": (1,),
    "batch_nos": ([1, 1],),
    "before": (LAST_CURSOR, 100),
    "before_at": (None, datetime(2020, 1, 1, 0, 1, tzinfo=UTC)),
    "before_id": ("s5",),
    "blob_key": ("new_blob",),
    "blob_keys": (["new_blob1", "new_blob2"],),
    "board": ("blackboard",),
    "browser": ("browser",),
    "call_id": ("call5",),
    "call_ids": (["call5", "call6"],),
    "caller_ttl_seconds": (60.0,),
    "candidate": ("key",),
    "canvas_id": ("big",),
    "canvas_ids": (["c5", "c6"],),
    "canvases": ('[["owner", "c5"], ["owner", "c6"]]',),
    "capacity": (4,),
    "claim_seconds": (60.0,),
    "client_id": ("client",),
    "code_verifier": ("verifier",),
    "confirmed_by": ("owner",),
    "consent": ("{}",),
    "created_by": ("owner",),
    "connected_at": (SOON,),
    "connection_id": ("connection5",),
    "connection_ids": (["connection5", "connection6"],),
    "content": ('"text"',),
    "contents": (['"text"', '"text"'],),
    "count": (1,),
    "counts": ([1, 1],),
    "cursor": (0, 2900),
    "delay": (1.0,),
    "deltas": (["{}", "{}"],),
    "digest": ("new_digest",),
    "display_name": (None,),
    "draft_no": (20,),
    "edge_id": ("edge", None),
    "ended_lease": ('{"provenance": {}}',),
    "data": ("\\x00",),
    "encrypted": ("\\x00",),
    "ends_as": ("completed",),
    "epoch": (1,),
    "invitation": ("digest5",),
    "issuer": ("https://issuer",),
    "nonce": ("nonce",),
    "replaces_deleted": (True,),
    "started_by": ("owner",),
    "started_role": ("member",),
    "error": (None,),
    "errors": ([None, None],),
    "event_id": ("running5",),
    "event_ids": (["running5", "running6"],),
    "event_nths": ([1, 1],),
    "event_run_ids": (["running5", "running6"],),
    "event_type": ("done",),
    "event_types": (["done", "done"],),
    "event_count": (2,),
    "every_ms": ([1000, 2000],),
    "expires_at": (SOON,),
    "failures": (0,),
    "follows_answer": (True,),
    "left_at": (SOON,),
    "password_hash": ("hash",),
    "expected": (None, "hash"),
    "subject": ("subject5",),
    "with_operators": (True, False),
    "user_ids": (["user5", "user6"],),
    "is_operator": (True,),
    "has_new_text": (True,),
    "has_spec": (True,),
    "hash": ("hash",),
    "host_id": (None, ""),
    "holds": (["artifact7", "artifact8"],),
    "idempotency_key": ("new_key",),
    "input_attachments": (None,),
    "input_text": ("text",),
    "inspected": ("[]",),
    "instance_id": ("instance",),
    "interrupted_run_ids": ("",),
    "is_accepted": (True,),
    "is_complete": (True,),
    "jobs": ('[["owner", "c5", "job"], ["owner", "c6", "job"]]',),
    "kept": (['["job","action",1000,0]'],),
    "key": ("key", None),
    "key_id": ("key",),
    "keys": ('[["owner", "artifact5"], ["owner", "artifact6"]]',),
    "kind": ("user",),
    "last": (10_000,),
    "last_chance": (None, True),
    "last_hash": ("hash",),
    "last_seq": (10_001,),
    "lease_expires_at": (SOON,),
    "lease_id": ("lease",),
    "lease_now": (SOON,),
    "lease_run_id": ("running5",),
    "lease_session_id": ("a5",),
    "limit": (50,),
    "log_seq": (1,),
    "logs": (["artifact5", "artifact6"],),
    "made_at": ([LONG_AGO, LONG_AGO],),
    "max_attempts": (3,),
    "max_versions": (10_000,),
    "media_type": ("text/plain",),
    "media_types": (["text/plain", "text/plain"],),
    "message_id": ("new_message",),
    "message_ids": (["new_message1", "new_message2"],),
    "method": ("tool.call",),
    "missing_key": (None,),
    "must_reconnect": (True,),
    "name": ("name",),
    "names": (["TOKEN", "KEY"],),
    "new_revision": ("another",),
    "next_at": (SOON,),
    "next_changed": ("[[], 0, null]",),
    "node_id": ("node5",),
    "now": (SOON,),
    "offset": (5,),
    "old_revision": ("revision",),
    "oldest_seq": (100,),
    "only_watched": ([False, False],),
    "only_accepted": (True, False),
    "opened": (True,),
    "orders": ('[["owner", 1, 14000]]',),
    "opening": ('{"provenance": {}}',),
    "opens": (1,),
    "origin": ("origin",),
    "out_of": ("running",),
    "owner_id": ("worker",),
    "owner_ids": (["worker", "worker"],),
    "owner_session_key": (None,),
    "params": ("{}",),
    "path": ("index.html",),
    "paths": (["index.html", "other.html"],),
    "patch": (None, "{}"),
    "payload": ("{}",),
    "payloads": (["{}", "{}"],),
    "platform": ("linux",),
    "prefer_seconds": (0.1,),
    "preferred_worker": (None,),
    "prefers_since": (LONG_AGO,),
    "provider": ("provider",),
    "queue_no": (99_999,),
    "record": ("{}",),
    "redirect_uri": ("uri",),
    "referring_run_ids": (["running5", "running6"],),
    "refers_to": (["artifact5", "artifact6"],),
    "refresh_id": ("job",),
    "refresh_ids": (["job", "other"],),
    "released": (["artifact5", "artifact6"],),
    "replaced": ("\\x00",),
    "request_digest": (None,),
    "request_id": ("new_request",),
    "resolved": (None,),
    "rests": (["}", "}"],),
    "revision": (2,),
    "revision_id": ("unknown",),
    "role": ("assistant",),
    "run_id": ("big",),
    "run_ids": (["running5", "running6"],),
    "running": ('[["owner", "c5", "job"], ["owner", "c6", "job"]]',),
    "scopes": ("scope",),
    "search": ("",),  # a search reads on until its page is full
    "seconds": (1e9, 0.0),
    "seq": (9_000,),
    "session_event": ("{}",),
    "session_id": ("big",),
    "session_ids": (["s5", "s6"],),
    "sign_in_id": ("new_sign_in",),
    "sign_in_ids": (["sign_in5", "sign_in6"],),
    "signature": ("signature",),
    "since": (None,),  # a search by time reads on until its page is full
    "size": (1,),
    "sizes": ([1, 1],),
    "speaking_run_ids": (["running5", "running6"],),
    "spec": ("{}",),
    "spoken": (1,),
    "spoken_nths": ([1, 2],),
    "state": ("{}",),
    "status": ("running",),
    "statuses": (["failed", "cancelled"],),
    "step": (100,),
    "storage_class": (None,),  # both classes are frequent
    "storage_classes": (["audit", "audit"],),
    "target": ("connection5",),
    "targets": (["connection5", "connection6"],),
    "thread_seq": (3_001,),
    "thread_seqs": ([2, 2],),
    "threads": ('[["owner", "big"], ["owner", "s5"]]',),
    "timeout_seconds": (60.0,),
    "title": ("title",),
    "titled_by": ("person owner",),
    "token_id": ("new_token",),
    "token_ids": (["token5", "token6"],),
    "text": ("text",),
    "tool": (None,),
    "tool_hints": (None,),
    "unreviewed": (None,),
    "usable_seconds": (60.0, None),
    "user_id": ("owner",),
    "written_by": ("person owner",),
    "tools": ("[]",),
    "turn_at": (SOON,),
    "turn_no": (None,),
    "waits_for_slot": (0,),
    "is_ready": (1,),
    "unheard": (True,),
    "until": (SOON,),
    "unwatched": (True, False),
    "account_id": ("owner",),
    "account_ids": (["owner", "owner"],),
    "value": ("1",),
    "version": (2,),
    "view_id": ("new_view",),
    "view_ids": (["view5", "view6"],),
    "visibilities": (["public", "public"],),
    "visibility": ("public",),
    "worker_id": ("worker",),
    "worker_ids": (["worker", "worker"],),
}

# Parameters whose meaning differs in one statement.
_OLD = {"before": (LONG_AGO, SOON)}
SAMPLES_OF: dict[str, dict[str, tuple[Any, ...]]] = {
    "add_account": {"account_id": ("new-name",), "kind": ("team",)},
    "add_person": {"account_id": ("team5",)},
    "create_token": {"role": ("admin",), "kind": ("node",)},
    "set_member": {"account_id": ("team5",), "role": ("viewer",)},
    "add_record": {"seq": (10_001,), "storage_class": ("audit",)},
    "add_references": {"canvas_id": (None,)},
    "append_batches": {"ends_as": (["completed", None],), "spoken": ([1, 1],)},
    "delete_order": {"account_id": ("user5",)},
    "find_unknown_assets": {"keys": ('[["new_blob1", 1], ["new_blob2", 1]]',)},
    "count_records": {"seq": (100,)},
    "remove_records": {"seq": (100,)},
    "find_unknown_blobs": {"keys": ('[["new_blob1", 1], ["new_blob2", 1]]',)},
    "list_artifacts": _OLD,
    "list_executions": {"before": (None, "event2")},
    "list_executions_by_status": {"before": (None, "event2"), "statuses": (["failed", "refused"],)},
    "list_prunable_runs": _OLD,
    "run_mentions": {"run_id": ("r5",)},  # called for pruned runs, which have one event
    "set_setting": {"encrypted": (None,), "key_id": (None,)},
    "start_execution": {"event_id": ("new_event",)},
    "trim_canvas_log": _OLD,
}


def argument_sets(statement: Statement) -> Iterator[dict[str, Any]]:
    """Return every combination of sample arguments. Raises `LookupError` for an unknown parameter."""
    samples = SAMPLES | SAMPLES_OF.get(statement.name, {})
    if unknown := [name for name in statement.order if name not in samples]:
        raise LookupError(f"{statement.name} has parameters without a sample: {', '.join(unknown)}")
    for values in itertools.product(*(samples[name] for name in statement.order)):
        yield dict(zip(statement.order, values, strict=True))


def postgres_literal(value: Any) -> str:
    """Return the value as SQL. Text is converted to the type of the parameter."""
    if value is None:
        return "null"
    if isinstance(value, list):
        value = "{" + ",".join(_array_element(element) for element in value) + "}"
    return "'" + str(value).replace("'", "''") + "'"


def _array_element(value: Any) -> str:
    if value is None:
        return "null"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def sqlite_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return from_datetime(value)
    return json.dumps(value) if isinstance(value, list) else value
