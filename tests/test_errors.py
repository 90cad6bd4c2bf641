"""The closed set of errors: each class has a unique name and code on every wire, and a message template."""

from __future__ import annotations

import string
from http import HTTPStatus

import msgspec
import pytest

from easel import errors
from easel.edges.http.routes import ROUTES
from easel.edges.http.wire import error_body
from easel.errors import HostError

GATEWAY_CODES = {101, 102, 103, 400, 401, 403, 404, 409, 413, 429, 500, 503, 504}  # DESIGN §6
HANDSHAKE_CODES = {101, 102, 103}  # of the gateway; HTTP has no handshake
JSON_RPC_OWN = {-32700, -32600, -32601, -32602, -32603}
FAILURES = [
    cls
    for cls in vars(errors).values()
    if isinstance(cls, type) and issubclass(cls, HostError) and cls is not HostError
]


def class_name(cls: type[HostError]) -> str:
    return cls.__name__


def placeholders(cls: type[HostError]) -> dict[str, object]:
    """Return a value for each placeholder of the message."""
    names = [
        name
        for _, name, _, _ in string.Formatter().parse((cls.__doc__ or "").strip().split("\n\n", 1)[0])
        if name
    ]
    return {name: f"<{name}>" for name in names}


def example_of(cls: type[HostError]) -> HostError:
    return cls(**placeholders(cls))


def test_all_errors_are_defined_in_one_module() -> None:
    assert len(FAILURES) > 15
    assert set(HostError.__subclasses__()) == set(FAILURES)


@pytest.mark.parametrize("wire", ["code", "rpc"])
def test_codes_are_unique_per_wire(wire: str) -> None:
    codes = [getattr(cls, wire) for cls in [*FAILURES, HostError]]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("cls", FAILURES, ids=class_name)
def test_each_error_has_a_name_and_codes_of_each_wire(cls: type[HostError]) -> None:
    assert {"code", "gateway", "rpc", "http"} <= set(vars(cls)), "set in the class, not inherited"
    name = "".join(f"_{char}" if char.isupper() else char for char in cls.__name__).strip("_").upper()
    assert cls.code == name
    assert cls.gateway in GATEWAY_CODES
    assert cls.rpc in JSON_RPC_OWN or -32099 <= cls.rpc <= -32000
    assert 400 <= HTTPStatus(cls.http) < 600


@pytest.mark.parametrize("cls", FAILURES, ids=class_name)
def test_gateway_and_http_codes_agree_on_client_or_server_error(cls: type[HostError]) -> None:
    if cls.gateway in HANDSHAKE_CODES:
        assert cls.http == 400
    elif cls.http in GATEWAY_CODES:
        assert cls.gateway == cls.http
    else:
        assert cls.gateway // 100 == cls.http // 100


@pytest.mark.parametrize("cls", FAILURES, ids=class_name)
def test_each_message_contains_its_details_on_one_line(cls: type[HostError]) -> None:
    problem = example_of(cls)
    assert all(str(value) in problem.message for value in placeholders(cls).values())
    assert "{" not in problem.message
    assert "\n" not in problem.message
    assert problem.details == placeholders(cls)


def test_missing_detail_raises_key_error() -> None:
    with pytest.raises(KeyError):
        errors.NotFound(what="run")


def test_braces_in_a_detail_are_plain_text() -> None:
    assert errors.BadInput(problem="{what} {0} {}").message == "{what} {0} {}"


@pytest.mark.parametrize("cls", FAILURES, ids=class_name)
def test_each_error_becomes_an_http_body(cls: type[HostError]) -> None:
    answer = msgspec.json.decode(error_body(example_of(cls)))
    assert set(answer) == {"error"}
    error = answer["error"]
    assert (error["code"], error["name"], error["message"]) == (
        cls.gateway,
        cls.code,
        example_of(cls).message,
    )
    assert type(error["code"]) is int


def test_only_temporary_errors_have_a_retry_delay() -> None:
    assert {cls for cls in FAILURES if cls.retry_after is not None} == {
        errors.TooMany,
        errors.TooManyFailures,
        errors.Unavailable,
    }
    assert all(cls.http in (429, 503) for cls in FAILURES if cls.retry_after is not None)


def test_routes_list_only_known_errors_each_once() -> None:
    for row in ROUTES:
        assert all(cls in FAILURES for cls in row.errors), row.path
        assert len(row.errors) == len(set(row.errors)), row.path
