"""Origins that a canvas's page may reach."""

from __future__ import annotations

import pytest

from easel.core.canvas.origins import require_origin
from easel.errors import BadInput
from tests.requirements import case

ORIGINS = [
    "https://api.example.com",
    "wss://live.example.com:8443",
    "https://xn--bcher-kva.example",
    "https://1and1.example",
    "https://a.b.c.example:65535",
]


@pytest.mark.parametrize("origin", ORIGINS)
def test_public_name_with_a_secure_scheme_is_accepted(origin: str) -> None:
    assert require_origin(origin, "here") == origin


@case("U6", "R7")
@pytest.mark.parametrize(
    "value",
    [
        # schemes
        "http://api.example.com", "ws://api.example.com", "javascript:alert(1)", "JaVaScRiPt:alert(1)",
        "vbscript:x", "file:///etc/passwd", "data:text/html,x", "blob:https://a.example/1",
        "\x01https://a.example", " https://a.example", "https://a.example ", "HTTPS://a.example",
        "//a.example", "https:a.example", "https:///a.example",
        # more than an origin
        "https://a.example/", "https://a.example/x", "https://a.example?x", "https://a.example#x",
        "https://a.example;x", "https://a.example 'unsafe-inline'", "https://user@a.example",
        "http://localhost@evil.example", "https://localhost@evil.example", "https://*.example.com",
        "https://*", "https:", "*", "'self'", "https://a.example:0", "https://a.example:65536",
        "https://a.example:", "https://a..example", "https://.example", "https://a.example.",
        "https://-a.example", "https://a.example\nx", "https://a\u3002example", "https://ａ.example",
        # this machine and local networks
        "https://localhost", "https://localhost:8800", "https://api.localhost", "https://printer.local",
        "https://db.internal", "https://router.lan", "https://nas.home.arpa", "https://intranet",
        "https://wiki.corp",
        # addresses in all notations
        "https://127.0.0.1", "https://127.1", "https://10.0.0.1", "https://192.168.0.1:8443",
        "https://169.254.169.254", "https://0", "https://0.0.0.0", "https://2130706433", "https://0x7f000001",
        "https://0177.0.0.1", "https://a.0x7f", "https://a.1", "https://[::1]", "https://[::ffff:127.0.0.1]",
        None, 7, ["https://a.example"],
    ],
)  # fmt: skip
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(BadInput, match="here: "):
        require_origin(value, "here")
