"""The closed set of failures: every class has its own word and code on every wire, and a message that can be filled."""

from __future__ import annotations

import string
from http import HTTPStatus

import msgspec
import pytest

from easel import errors
from easel.edges.http.routes import ROUTES
from easel.edges.http.wire import error_answer
from easel.errors import HostError

GATEWAY_CODES = {101, 102, 103, 400, 401, 403, 404, 409, 413, 429, 500, 503, 504}  # DESIGN §6
ONLY_OF_THE_GATEWAY = {101, 102, 103}  # of its handshake, which HTTP has not
JSON_RPC_OWN = {-32700, -32600, -32601, -32602, -32603}
FAILURES = [
    cls
    for cls in vars(errors).values()
    if isinstance(cls, type) and issubclass(cls, HostError) and cls is not HostError
]


def named(cls: type[HostError]) -> str:
    return cls.__name__


def placeholders(cls: type[HostError]) -> dict[str, object]:
    """One value for each place in the message."""
    names = [
        name
        for _, name, _, _ in string.Formatter().parse((cls.__doc__ or "").strip().split("\n\n", 1)[0])
        if name
    ]
    return {name: f"<{name}>" for name in names}


def filled(cls: type[HostError]) -> HostError:
    return cls(**placeholders(cls))


def test_there_are_failures_and_all_of_them_are_here() -> None:
    assert len(FAILURES) > 15
    assert set(HostError.__subclasses__()) == set(FAILURES)


@pytest.mark.parametrize("wire", ["code", "rpc"])
def test_codes_are_unique_per_wire(wire: str) -> None:
    codes = [getattr(cls, wire) for cls in [*FAILURES, HostError]]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("cls", FAILURES, ids=named)
def test_each_failure_has_its_own_word_and_codes_of_the_lists(cls: type[HostError]) -> None:
    assert {"code", "gateway", "rpc", "http"} <= set(vars(cls)), "said in the class, not inherited"
    words = "".join(f"_{char}" if char.isupper() else char for char in cls.__name__).strip("_").upper()
    assert cls.code == words
    assert cls.gateway in GATEWAY_CODES
    assert cls.rpc in JSON_RPC_OWN or -32099 <= cls.rpc <= -32000
    assert 400 <= HTTPStatus(cls.http) < 600


@pytest.mark.parametrize("cls", FAILURES, ids=named)
def test_the_gateway_and_http_agree_on_whose_fault_it_is(cls: type[HostError]) -> None:
    if cls.gateway in ONLY_OF_THE_GATEWAY:
        assert cls.http == 400
    elif cls.http in GATEWAY_CODES:
        assert cls.gateway == cls.http
    else:
        assert cls.gateway // 100 == cls.http // 100


@pytest.mark.parametrize("cls", FAILURES, ids=named)
def test_each_message_can_be_filled_and_reads_as_a_sentence(cls: type[HostError]) -> None:
    problem = filled(cls)
    assert all(str(value) in problem.message for value in placeholders(cls).values())
    assert "{" not in problem.message
    assert "\n" not in problem.message
    assert problem.details == placeholders(cls)


def test_a_message_with_a_hole_in_it_is_noticed_where_it_is_raised() -> None:
    with pytest.raises(KeyError):
        errors.NotFound(what="run")


def test_braces_in_a_value_are_only_text() -> None:
    assert errors.BadInput(problem="{what} {0} {}").message == "{what} {0} {}"


@pytest.mark.parametrize("cls", FAILURES, ids=named)
def test_each_failure_becomes_the_one_answer_of_http(cls: type[HostError]) -> None:
    answer = msgspec.json.decode(error_answer(filled(cls)))
    assert set(answer) == {"error"}
    error = answer["error"]
    assert (error["code"], error["name"], error["message"]) == (cls.gateway, cls.code, filled(cls).message)
    assert type(error["code"]) is int


def test_what_can_be_tried_again_says_when() -> None:
    assert {cls for cls in FAILURES if cls.retry_after is not None} == {errors.TooMany, errors.Unavailable}
    assert all(cls.http in (429, 503) for cls in FAILURES if cls.retry_after is not None)


def test_every_row_names_only_failures_of_the_set_and_each_status_once() -> None:
    for row in ROUTES:
        assert all(cls in FAILURES for cls in row.errors), row.path
        assert len(row.errors) == len(set(row.errors)), row.path
