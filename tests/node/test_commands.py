"""The commands `easel node` and `easel token`: invalid arguments are refused in one sentence, a token is
printed once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import SECRET, assert_refused, invoke_easel
from tests.requirements import rule

if TYPE_CHECKING:
    from pathlib import Path

URL = "ws://127.0.0.1:1/ws"
NODE = ["node", "--id", "laptop", "--url", URL]

REFUSALS: list[tuple[str, list[str], list[str]]] = [
    ("no token", NODE, ["token", "EASEL_TOKEN"]),
    ("a missing token file", [*NODE, "--token-file", "/nowhere/token"], ["/nowhere/token"]),
    (
        "an invalid address",
        ["node", "--id", "laptop", "--url", "127.0.0.1:8800", "--token", SECRET],
        ["--url"],
    ),
    (
        "a reserved id",
        ["node", "--id", "gsv", "--url", URL, "--token", SECRET],
        ["gsv", "reserved"],
    ),
    ("an invalid id", ["node", "--id", "a__b", "--url", URL, "--token", SECRET], ["a__b"]),
    ("a missing folder", [*NODE, "--token", SECRET, "--root", "/nowhere/root"], ["/nowhere/root"]),
    ("an unknown sandbox", [*NODE, "--token", SECRET, "--sandbox", "cardboard"], ["cardboard"]),
    (
        "an unknown kind of token",
        ["token", "create", "--kind", "king"],
        ["king", "user, node, service"],
    ),
    ("a token for an unknown user", ["token", "create", "--user", "nobody"], ["no user nobody"]),
    (
        "a person's token for one node",
        ["token", "create", "--kind", "user", "--node", "laptop"],
        ["kind node"],
    ),
    ("an unknown token", ["token", "revoke", "tok_x"], ["no token tok_x"]),
]


@pytest.mark.parametrize("name, arguments, parts", REFUSALS, ids=[row[0] for row in REFUSALS])
def test_invalid_command_is_refused_in_one_sentence(
    tmp_path: Path, name: str, arguments: list[str], parts: list[str]
) -> None:
    assert_refused(invoke_easel(*arguments, DATA=str(tmp_path)), *parts)


@rule("RS-68")
@pytest.mark.parametrize(
    "options, note",
    [
        (["--name", "laptop"], "only as the node laptop"),
        (["--name", "laptop", "--node", "desktop"], "only as the node desktop"),
        (["--name", "my laptop"], "first node that connects"),
        ([], "first node that connects"),
    ],
)
def test_command_says_which_node_a_token_is_bound_to(tmp_path: Path, options: list[str], note: str) -> None:
    made = invoke_easel("token", "create", "--kind", "node", *options, DATA=str(tmp_path))
    assert note in made.stderr
    listed = invoke_easel("token", "list", DATA=str(tmp_path)).stdout
    assert ("(only as" in listed) == ("only as" in note)


def test_token_is_printed_once_and_stored_nowhere(tmp_path: Path) -> None:
    made = invoke_easel("token", "create", "--kind", "node", "--name", "my laptop", DATA=str(tmp_path))
    secret = made.stdout.strip()
    assert made.returncode == 0, made.stderr
    assert secret.startswith("easel_")
    assert len(secret) == 49
    assert secret not in made.stderr, "so that it can be piped into a file"
    token_id = next(word.rstrip(",") for word in made.stderr.split() if word.startswith("tok_"))
    listed = invoke_easel("token", "list", DATA=str(tmp_path)).stdout
    assert token_id in listed
    assert "my laptop" in listed
    assert re.search(r"created \d{4}-\d\d-\d\d \d\d:\d\d UTC", listed)
    assert "revoked" not in listed
    assert "Revoked" in invoke_easel("token", "revoke", token_id, DATA=str(tmp_path)).stdout
    assert "revoked" in invoke_easel("token", "list", DATA=str(tmp_path)).stdout
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
