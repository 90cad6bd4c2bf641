"""Decoding of requests: every struct of a request, unknown members at every level, and the usual request."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given
from msgspec import inspect

from easel.edges.decoding import Decoded, Params, decode_json, decode_members, with_warnings
from easel.edges.http.chat import ChatQuery
from easel.edges.http.chat_frames import Cancel, NewChatMessage
from easel.edges.http.routes import ROUTES
from easel.edges.methods import METHODS
from easel.edges.params import Connect, OfCanvas, ToolProgress, ToolResultParams, WriteCanvas
from easel.edges.results import Pong
from easel.errors import BadInput
from tests.core.test_unknown_members import misspelt
from tests.requirements import rule

SHAPES: list[type[Any]] = sorted(
    {
        *(method.params for method in METHODS.values()),
        *(shape for row in ROUTES for shape in (row.body, row.query) if shape is not None),
        *(Connect, ToolResultParams, ToolProgress, ChatQuery, NewChatMessage, Cancel),
    },
    key=lambda shape: shape.__name__,
)


def structs_in(kind: Any) -> list[inspect.StructType]:
    """Return the structs of a type, also nested ones."""
    found = [kind] if isinstance(kind, inspect.StructType) else []
    inner = [
        *(field.type for field in getattr(kind, "fields", ())),
        *getattr(kind, "types", ()),
        *(getattr(kind, name) for name in ("type", "value_type", "item_type") if hasattr(kind, name)),
    ]
    return found + [struct for part in inner for struct in structs_in(part)]


def sample(shape: type[Any]) -> dict[str, Any]:
    """Return the required members of a struct, with values that may be wrong."""
    return {field.encode_name: "x" for field in msgspec.structs.fields(shape) if field.required}


@rule("RS-67")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_struct_of_a_request_detects_unknown_members(shape: type[Any]) -> None:
    for struct in structs_in(inspect.type_info(shape)):
        assert struct.forbid_unknown_fields, struct.cls
        assert issubclass(struct.cls, Params)


@rule("RS-67")
@given(st.sampled_from(SHAPES), misspelt(("expectedRevision", "expected_version", "base_revision_id")))
def test_misspelt_check_is_refused_by_every_request(shape: type[Any], name: str) -> None:
    if name not in {field.encode_name for field in msgspec.structs.fields(shape)}:
        tag = {} if shape.__struct_config__.tag is None else {"type": shape.__struct_config__.tag}
        with pytest.raises(BadInput, match="unknown member"):
            decode_members({**sample(shape), **tag, name: 1}, shape)


@rule("RS-67")
def test_unknown_members_are_ignored_at_every_level() -> None:
    sent: dict[str, Any] = {
        "canvasId": "c",
        "colour": 1,
        "state": {"colour": 2},
        "assets": {"a.png": {"base64": "", "b64": 3}, "b.css": "text"},
    }
    params, warnings = decode_members(sent, WriteCanvas)
    assert (params.canvasId, params.state, set(params.assets)) == ("c", {"colour": 2}, {"a.png", "b.css"})
    assert warnings == [
        "unknown member `colour` was ignored.",
        "unknown member `assets.a.png.b64` was ignored; did you mean `base64`?",
    ]
    assert sent["colour"] == 1, "the request is not changed"
    assert decode_json(msgspec.json.encode(sent), WriteCanvas) == Decoded(params, warnings)


@rule("RS-67")
def test_missing_member_is_named_together_with_the_unknown_one() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"missing required field `canvasId`.*`canvasID`"):
        decode_members({"canvasID": "c"}, OfCanvas)


@rule("RS-67")
@pytest.mark.parametrize("text", [b"", b" \n", b"null", b"{}"])
def test_nothing_is_an_empty_object(text: bytes) -> None:
    assert decode_json(text, METHODS["canvas.list"].params) == decode_members(
        None, METHODS["canvas.list"].params
    )


@rule("RS-67")
def test_frame_of_one_of_several_kinds_is_reviewed_as_its_kind() -> None:
    kinds = NewChatMessage | Cancel
    frame, warnings = decode_json('{"type":"message","text":"t","txet":"k"}', kinds)
    assert frame == NewChatMessage("t")
    assert warnings == ["unknown member `txet` was ignored; did you mean `text`?"]
    with pytest.raises(BadInput, match="did you mean `idempotency_key`"):
        decode_json('{"type":"message","text":"t","idempotencyKey":"k"}', kinds)
    frame, warnings = decode_json('{"type":"cancel","text":"t"}', kinds)
    assert (frame, warnings) == (Cancel(), ["unknown member `text` was ignored."])


def test_own_warnings_of_an_answer_come_first() -> None:
    assert with_warnings(Pong(), []) == Pong()
    assert with_warnings(Pong(warnings=["own"]), ["more"]) == Pong(warnings=["own", "more"])
