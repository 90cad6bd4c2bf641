"""The `curl` commands of the documents, as requests."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class CurlRequest:
    """The request of one curl command."""

    method: str
    url: str
    headers: dict[str, str]
    body: str | None


def parse_curl(line: str, **variables: str) -> CurlRequest:
    """Return the request of a curl command with the options -s, -N, -H, -X and -d."""
    for name, value in variables.items():
        line = line.replace(f"${name}", value)
    words = iter(shlex.split(line.partition(" | ")[0].removeprefix("RUN=$("), comments=True)[1:])
    method, url, headers, body = "", "", dict[str, str](), None
    for word in words:
        match word.rstrip("sN") if word.startswith("-") else word:
            case "-":
                pass
            case "-X":
                method = next(words)
            case "-d":
                body = next(words)
            case option if option.startswith("-") and option.endswith("H"):
                header, _, value = next(words).partition(": ")
                headers[header] = value
            case plain_word:
                assert not plain_word.startswith("-"), f"unknown option of curl: {word}"
                url = plain_word
    return CurlRequest(method or ("POST" if body else "GET"), url, headers, body)
