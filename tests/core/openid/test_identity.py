"""Who may sign in, what a claim gives, which names and paths are ours."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from easel.core.openid.flow import callback_address, safe_target
from easel.core.openid.identity import names_for, read_identity, read_teams
from easel.core.openid.provider import parse_allowed
from easel.errors import BadInput
from tests.requirements import case, rule

ACCEPTED = {"iss": "https://issuer.example", "sub": "1"}


@rule("RS-76")
@pytest.mark.parametrize(
    "allowed, email, is_allowed",
    [
        ("", "ada@example.com", False),
        (" , ", "ada@example.com", False),
        ("@example.com", None, False),
        ("@example.com", "", False),
        ("@example.com", "ada@example.com", True),
        ("@Example.com, bob@other.example", "bob@other.example", True),
        ("@example.com", "ada@sub.example.com", False),
        ("@example.com", "ada@evil-example.com", False),
        ("@example.com", "ada@example.com.evil.example", False),
        ("@example.com", "ada@evil.example@example.com", False),
        ("@example.com", '"ada@evil.example"@example.com', False),
        ("@example.com", "ada@example.com\n", False),
        ("@example.com", "ada@ex\u0430mple.com", False),
        ("ada@example.com", "bob@example.com", False),
        ("ada@example.com", "a.da@example.com", False),
    ],
)
def test_only_a_listed_address_or_domain_is_allowed(
    allowed: str, email: str | None, is_allowed: bool
) -> None:
    assert parse_allowed(allowed).allows(email) is is_allowed


@pytest.mark.parametrize("text", ["example.com", "*", "@", "@*.example.com", "ada@", "a b@example.com"])
def test_entry_that_is_no_address_and_no_domain_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_allowed(f"@example.com,{text}")


@rule("RS-76")
@pytest.mark.parametrize(
    "claims, email",
    [
        ({"email": "Ada@Example.com", "email_verified": True}, "ada@example.com"),
        ({"email": "ada@example.com"}, None),
        ({"email": "ada@example.com", "email_verified": False}, None),
        ({"email": "ada@example.com", "email_verified": "true"}, None),
        ({"email": "ada@example.com", "email_verified": 1}, None),
        ({"email": "ada@example.com", "xms_edov": "1"}, "ada@example.com"),
        ({"email": "ada@example.com", "xms_edov": "0"}, None),
        ({"email": "ada@example.com", "xms_edov": True, "email_verified": False}, None),
        ({"email": ["ada@example.com"], "email_verified": True}, None),
        ({"email_verified": True}, None),
    ],
    ids=str,
)
def test_only_a_verified_address_counts(claims: dict[str, Any], email: str | None) -> None:
    assert read_identity({**ACCEPTED, **claims}, "").email == email


@rule("RS-76")
@pytest.mark.parametrize(
    "value, teams",
    [
        (None, {}),
        (["devs:member", "ops"], {"devs": "member", "ops": "member"}),
        ("devs:viewer ops:admin", {"devs": "viewer", "ops": "admin"}),
        (["devs:viewer", "devs:admin", "devs:member"], {"devs": "admin"}),
        (["devs:owner", "Devs", "a/b", "", ":admin", 7, None, ["devs"], "x" * 64], {}),
        ({"devs": "admin"}, {}),
    ],
    ids=str,
)
def test_claim_gives_teams_with_roles(value: Any, teams: dict[str, str]) -> None:
    assert read_teams(value) == teams
    assert read_identity({**ACCEPTED, "groups": value}, "").teams == {}, "no claim is configured"


@pytest.mark.parametrize(
    "hint, name",
    [
        ("ada", "ada"),
        ("Ada L.", "ada-l"),
        ("Jürgen_Groß", "jurgen-gro"),
        ("../../owner", "owner"),
        ("李", "person"),
        ("", "person"),
        ("x" * 100, "x" * 48),
    ],
)
def test_name_is_derived_with_numbers_for_taken_ones(hint: str, name: str) -> None:
    assert list(itertools.islice(names_for(hint), 3)) == [name, f"{name}-2", f"{name}-3"]


@case("O8")
@pytest.mark.parametrize(
    "path",
    [
        "",
        "canvas/main/board",
        "//evil.example",
        "//evil.example/canvas/main/board",
        "/\\evil.example",
        "/\\/evil.example",
        "\\\\evil.example",
        "https://evil.example/canvas/main/board",
        "https:evil.example",
        "javascript:alert(1)",
        "/canvas/main/board\n",
        "/canvas/main/board\r\nset-cookie: x=1",
        "/\t/evil.example",
        " /canvas/main/board",
        "/canvas/main/board?account=devs&next=//evil.example",
        "/canvas/main/board?account=//evil.example",
        "/canvas/main/board?token=x",
        "/canvas/main/board#//evil.example",
        "/canvas/../..//evil.example",
        "/canvas/main/%2e%2e",
        "/sign-in/openid?next=/",
        "/canvas/main/bo\u2028ard",
    ],
)
def test_foreign_or_odd_target_becomes_the_home_page(path: str) -> None:
    assert safe_target(path) == "/"


@pytest.mark.parametrize("path", ["/canvas/main/board", "/canvas/main/board?account=devs", "/api/docs"])
def test_own_page_is_a_target(path: str) -> None:
    assert safe_target(path) == path


@rule("RX-43")
@case("O4")
def test_callback_is_at_the_public_address_or_on_loopback_while_developing() -> None:
    path = "/sign-in/openid/callback"
    public = callback_address("https://easel.example/", "evil.example", allows_loopback=True)
    assert public == f"https://easel.example{path}"
    local = callback_address("", "localhost:8800", allows_loopback=True)
    assert local == f"http://localhost:8800{path}"
    for host, allows in (
        ("localhost:8800", False),
        ("192.168.1.4", True),
        ("evil.example", True),
        ("", True),
    ):
        with pytest.raises(BadInput, match="EASEL_PUBLIC_URL"):
            callback_address("", host, allows_loopback=allows)
