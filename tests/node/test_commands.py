"""`easel node` and `easel token` as their users meet them: what cannot work is said in one sentence, and a token is shown once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.cli.test_cli import SECRET, easel, refused

if TYPE_CHECKING:
    from pathlib import Path

URL = "ws://127.0.0.1:1/ws"
NODE = ["node", "--id", "laptop", "--url", URL]

REFUSALS: list[tuple[str, list[str], list[str]]] = [
    ("no token", NODE, ["token", "EASEL_TOKEN"]),
    ("a token file that is not there", [*NODE, "--token-file", "/nowhere/token"], ["/nowhere/token"]),
    (
        "an address that is none",
        ["node", "--id", "laptop", "--url", "127.0.0.1:8800", "--token", SECRET],
        ["--url"],
    ),
    (
        "a name that is reserved",
        ["node", "--id", "gsv", "--url", URL, "--token", SECRET],
        ["gsv", "reserved"],
    ),
    ("a name that is none", ["node", "--id", "a__b", "--url", URL, "--token", SECRET], ["a__b"]),
    ("a folder that is not there", [*NODE, "--token", SECRET, "--root", "/nowhere/root"], ["/nowhere/root"]),
    ("a sandbox that is none", [*NODE, "--token", SECRET, "--sandbox", "cardboard"], ["cardboard"]),
    (
        "a token of a kind that is none",
        ["token", "create", "--kind", "king"],
        ["king", "user, node, service"],
    ),
    ("a token for nobody", ["token", "create", "--user", "nobody"], ["no user nobody"]),
    (
        "a person's token for one node",
        ["token", "create", "--kind", "user", "--node", "laptop"],
        ["kind node"],
    ),
    ("a token that there is not", ["token", "revoke", "tok_x"], ["no token tok_x"]),
]


@pytest.mark.parametrize("says, arguments, parts", REFUSALS, ids=[row[0] for row in REFUSALS])
def test_what_cannot_work_is_refused_in_one_sentence(
    tmp_path: Path, says: str, arguments: list[str], parts: list[str]
) -> None:
    refused(easel(*arguments, DATA=str(tmp_path)), *parts)


def test_a_token_is_shown_once_and_alone_on_its_line(tmp_path: Path) -> None:
    made = easel("token", "create", "--kind", "node", "--name", "my laptop", DATA=str(tmp_path))
    secret = made.stdout.strip()
    assert made.returncode == 0, made.stderr
    assert secret.startswith("easel_")
    assert len(secret) == 49
    assert secret not in made.stderr, "so that it can be piped into a file"
    token_id = next(word.rstrip(",") for word in made.stderr.split() if word.startswith("tok_"))
    listed = easel("token", "list", DATA=str(tmp_path)).stdout
    assert token_id in listed
    assert "my laptop" in listed
    assert re.search(r"made \d{4}-\d\d-\d\d \d\d:\d\d UTC", listed)
    assert "revoked" not in listed
    assert "Revoked" in easel("token", "revoke", token_id, DATA=str(tmp_path)).stdout
    assert "revoked" in easel("token", "list", DATA=str(tmp_path)).stdout
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
