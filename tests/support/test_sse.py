"""The reader of SSE streams accepts whole events only and refuses a broken contract. Journeys do the rest."""

from __future__ import annotations

import json

import pytest

from tests.support.sse import Comment, Cursor, Event, Parser, Retry
from tests.support.strict import ContractBroken

DATA = {
    "message.delta": {"message_id": "msg_1", "text": "x", "visibility": "public"},
    "done": {
        "status": "completed",
        "visibility": "public",
        "provenance": {"kind": "agent", "agent_id": "main", "node_id": "n", "run_id": "run_1"},
    },
}


def wire(number: int, kind: str = "message.delta", **changes: object) -> bytes:
    envelope: dict[str, object] = {
        "seq": number,
        "type": kind,
        "ts": "2026-11-01T00:00:00Z",
        "data": DATA.get(kind, {"visibility": "public"}),
    }
    fields = {"id": str(number), "event": kind, "data": json.dumps(envelope | changes)}
    return ("".join(f"{name}: {value}\n" for name, value in fields.items()) + "\n").encode()


def test_items_are_complete_wherever_the_bytes_are_cut() -> None:
    whole = b"id: 7\n: hello\n\nretry: 250\n\n" + wire(1) + wire(2, "done")
    for cut in range(len(whole)):
        parser = Parser()
        items = parser.feed(whole[:cut]) + parser.feed(whole[cut:])
        assert [type(item) for item in items] == [Comment, Cursor, Retry, Event, Event]


def test_half_an_event_is_not_an_event() -> None:
    assert Parser().feed(wire(1)[:-1]) == []


BREACHES = [
    # says                          bytes
    ("id is not seq", wire(1, seq=2)),
    ("event is not type", wire(1, type="other")),
    ("no zone", wire(1, ts="2026-11-01T00:00:00")),
    ("no visibility", wire(1, data={})),
    ("extra key", wire(1, more=1)),
    ("unknown member", wire(1, data=DATA["message.delta"] | {"more": 1})),
    ("unknown field", b"color: red\n"),
    ("no id", b"event: x\ndata: {}\n\n"),
    ("retry is no number", b"retry: soon\n"),
    ("two ids", b"id: 1\nid: 1\n"),
]


@pytest.mark.parametrize("says, raw", BREACHES, ids=[says for says, _ in BREACHES])
def test_broken_contract_is_raised(says: str, raw: bytes) -> None:
    with pytest.raises(ContractBroken):
        Parser().feed(raw)
