"""The reader of the chat refuses a frame that breaks the contract. Journeys do the rest."""

from __future__ import annotations

import json

import pytest

from tests.support.chat import Complaint, heard_in
from tests.support.sse import Event
from tests.support.strict import ContractBroken

DELTA: dict[str, object] = {"message_id": "msg_1", "text": "x"}
DATA: dict[str, dict[str, object]] = {
    "message.delta": DELTA,
    "reasoning.delta": DELTA,
    "step.completed": {"step": 1, "text": "", "calls": []},
}


def wire(number: int, kind: str = "message.delta", visibility: str = "public", **changes: object) -> str:
    envelope: dict[str, object] = {
        "seq": number,
        "type": kind,
        "ts": "2026-11-01T00:00:00Z",
        "data": {**DATA.get(kind, {}), "visibility": visibility},
    }
    return json.dumps(envelope | changes)


COMPLAINT = json.dumps({"type": "error", "error": {"code": 400, "name": "BAD_INPUT", "message": "No."}})

BREACHES = [
    # says                             frame                                        with debug
    ("binary",                         b"{}",                                       False),
    ("no envelope",                    "[]",                                        False),
    ("extra key",                      wire(1, more=1),                             False),
    ("no visibility",                  wire(1, data={}),                            False),
    ("no zone",                        wire(1, ts="2026-11-01T00:00:00"),           False),
    ("before the first",               wire(0),                                     False),
    ("state",                          wire(1, "whiteboard.write"),                 True),
    ("the end of a run",               wire(1, "done"),                             True),
    ("a picture",                      wire(1, "canvas.snapshot"),                  True),
    ("something of the system",        wire(1, "run.failed", "system"),             True),
    ("a thought without debug",        wire(1, "reasoning.delta", "internal"),      False),
    ("a thought that says it is none", wire(1, "reasoning.delta"),                  True),
    ("a message that says it is none", wire(1, "message.delta", "internal"),        True),
    ("an error without a name",        '{"type":"error","error":{"code":400}}',     False),
]  # fmt: skip


@pytest.mark.parametrize("frame, debug", [row[1:] for row in BREACHES], ids=[row[0] for row in BREACHES])
def test_broken_contract_is_raised(frame: str | bytes, debug: bool) -> None:
    with pytest.raises(ContractBroken):
        heard_in(frame, debug=debug)


def test_valid_frames_are_parsed() -> None:
    assert isinstance(heard_in(wire(1), debug=False), Event)
    assert isinstance(heard_in(wire(1, "step.completed", "internal"), debug=True), Event)
    assert heard_in(COMPLAINT, debug=False) == Complaint(400, "BAD_INPUT", "No.", {})
