"""`easel settings get`, `set`, `unset` and `rotate`, and the check of the model by `easel doctor`."""

from __future__ import annotations

import contextlib
import os
import pty
import ssl
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from easel.ids import OWNER
from tests.cli.commands import TIMEOUT_SECONDS, environment_of, invoke_easel
from tests.edges.http.live import LiveEasel, capture_log
from tests.requirements import rule
from tests.support.processes import EASEL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = "sk-0123456789-distinctive"


@pytest.fixture
def easel(tmp_path: Path) -> Iterator[LiveEasel]:
    with capture_log(), LiveEasel(tmp_path / "data", with_worker=False) as live:
        yield live


def settings(easel: LiveEasel, *words: str) -> Any:
    return invoke_easel("settings", *words, "--url", easel.base_url, TOKEN=easel.token)


def piped(easel: LiveEasel, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*EASEL, "settings", *words, "--url", easel.base_url],
        env=environment_of(TOKEN=easel.token),
        input=text,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


@rule("RX-19")
def test_setting_is_set_shown_and_cleared(easel: LiveEasel) -> None:
    done = settings(easel, "set", "provider", "gemini")
    assert done.returncode == 0, done.stderr
    assert "provider          gemini   (user)" in done.stdout
    assert settings(easel, "get", "provider").stdout == "gemini\n"
    assert settings(easel, "get", "base_url").stdout == "\n"
    assert settings(easel, "set", "token_budget", "50000").returncode == 0
    assert easel.get("/api/settings").json()["token_budget"] == 50_000
    assert "provider          scripted   (default)" in settings(easel, "unset", "provider").stdout


def test_key_is_read_from_a_pipe_and_never_printed(easel: LiveEasel) -> None:
    settings(easel, "set", "provider", "anthropic")
    done = piped(easel, f"{KEY}\n", "set", "api_key")
    assert done.returncode == 0, done.stderr
    assert "sk-…tive   (user)" in done.stdout
    assert KEY not in done.stdout + done.stderr
    found = easel.do(easel.instances[0].services.settings.find_model(OWNER))
    assert found.resolved.choice.api_key == KEY


def test_key_is_typed_without_echo(easel: LiveEasel) -> None:
    settings(easel, "set", "provider", "anthropic")
    controller, terminal = pty.openpty()
    try:
        with subprocess.Popen(
            [*EASEL, "settings", "set", "api_key", "--url", easel.base_url],
            env=environment_of(TOKEN=easel.token),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        ) as process:
            shown = b""
            while b"not shown" not in shown:
                shown += os.read(controller, 4096)
            os.write(controller, f"{KEY}\n".encode())
            assert process.wait(TIMEOUT_SECONDS) == 0
            os.close(terminal)
            with contextlib.suppress(OSError):  # the terminal was closed
                while more := os.read(controller, 4096):
                    shown += more
    finally:
        os.close(controller)
    assert "sk-…tive" in shown.decode()
    assert KEY not in shown.decode()


def test_key_as_an_argument_is_refused_and_not_repeated(easel: LiveEasel) -> None:
    settings(easel, "set", "provider", "anthropic")
    done = settings(easel, "set", "api_key", KEY)
    assert done.returncode == 2
    assert "must not be an argument" in done.stderr
    assert KEY not in done.stdout + done.stderr
    assert easel.get("/api/settings").json()["api_key"] is None


@pytest.mark.parametrize(
    "words, message",
    [
        (["set", "modle", "x"], "did you mean model?"),
        (["get", "modle"], "did you mean model?"),
        (["unset", "modle"], "did you mean model?"),
        (["set", "model"], "give its value"),
        (["set", "provider", "claude"], "Did you mean anthropic?"),
    ],
)
def test_wrong_use_is_explained(easel: LiveEasel, words: list[str], message: str) -> None:
    done = settings(easel, *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_missing_server_is_explained(tmp_path: Path) -> None:
    done = invoke_easel("settings", "get", "--url", "http://127.0.0.1:1", TOKEN="t" * 20, DATA=str(tmp_path))
    assert done.returncode == 2
    assert "No Easel is running at http://127.0.0.1:1; start one with `easel up`" in done.stderr


def test_rotation_while_an_easel_is_running(tmp_path: Path) -> None:
    old, new = "o" * 32, "n" * 32
    with capture_log(), LiveEasel(tmp_path, with_worker=False, settings={"secret_key": old}) as easel:
        easel.ask("PUT", "/api/settings", json={"provider": "gemini", "api_key": KEY})
        refused = invoke_easel("settings", "rotate", DATA=str(tmp_path), SECRET_KEY=new)
        assert refused.returncode == 2
        assert "EASEL_OLD_SECRET_KEYS" in refused.stderr
        variables = {"DATA": str(tmp_path), "SECRET_KEY": new, "OLD_SECRET_KEYS": f"unrelated{old}, {old}"}
        assert invoke_easel("settings", "rotate", **variables).stdout == "Encrypted 1 key again.\n"
        assert invoke_easel("settings", "rotate", **variables).stdout == "Nothing to do.\n"
    with capture_log(), LiveEasel(tmp_path, with_worker=False, settings={"secret_key": new}) as easel:
        assert easel.get("/api/settings").json()["api_key"] == "sk-…tive"


# --- doctor -------------------------------------------------------------------------------------------------


class Provider(BaseHTTPRequestHandler):
    """Answers every request with the status in its path, and repeats its headers."""

    def do_POST(self) -> None:
        status = int(self.path.split("/")[1])
        if status == 0:
            self.server.hang.wait(30)  # type: ignore[attr-defined]
            return
        body = f'{{"error": {{"message": "you sent {self.headers["Authorization"]}"}}}}'.encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def provider() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    server.hang = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.hang.set()  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "path, message",
    [
        ("401", "refused the API key"),
        ("404", "does not know the model"),
        ("500", "unavailable (HTTP 500)"),
        ("400", "rejected the request (HTTP 400)"),
        ("0", "did not answer"),
    ],
)
def test_doctor_explains_why_the_model_does_not_answer(
    tmp_path: Path, provider: str, path: str, message: str
) -> None:
    done = invoke_easel(
        "doctor",
        DATA=str(tmp_path),
        PORT="0",
        PROVIDER="openai-chat",
        API_KEY="plain-key-of-a-gateway",
        BASE_URL=f"{provider}/{path}",
    )
    assert done.returncode == 1
    [line] = [line for line in done.stdout.splitlines() if "Model: " in line]
    assert line.startswith("fail Model: ")
    assert message in line
    assert "plain-key" not in done.stdout + done.stderr


def test_doctor_names_an_unreachable_address_and_a_missing_key(tmp_path: Path) -> None:
    host = {"DATA": str(tmp_path), "PORT": "0", "PROVIDER": "openai-chat"}
    done = invoke_easel("doctor", BASE_URL="http://127.0.0.1:1/v1", **host)
    assert "there is no route to" in done.stdout
    done = invoke_easel("doctor", BASE_URL="https://127.0.0.1:1/v1", **host)
    assert "there is no route to" in done.stdout
    done = invoke_easel("doctor", **host)
    assert "fail Model: openai-chat: EASEL_API_KEY is not set." in done.stdout


def test_doctor_names_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(self_signed_certificate(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"https://127.0.0.1:{server.server_port}/v1"
        data = str(tmp_path / "data")
        done = invoke_easel("doctor", DATA=data, PORT="0", PROVIDER="openai-chat", BASE_URL=address)
    finally:
        server.shutdown()
        server.server_close()
    assert "The TLS connection failed" in done.stdout
    assert done.returncode == 1


def self_signed_certificate(folder: Path) -> Path:
    """Write a certificate for 127.0.0.1 and its key into a file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    no_password = serialization.NoEncryption()
    path = folder / "certificate.pem"
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, no_password) + certificate.public_bytes(pem)
    )
    return path


def test_doctor_checks_the_model_of_the_running_easel(tmp_path: Path, provider: str) -> None:
    with capture_log(), LiveEasel(tmp_path, with_worker=False) as easel:
        port = str(easel.address[1])
        done = invoke_easel("doctor", DATA=str(tmp_path), PORT=port, TOKEN=easel.token)
        assert "ok   Model: scripted, which needs no key and makes no request" in done.stdout
        base_url = f"{provider}/401"
        changes = {"provider": "openai-chat", "base_url": base_url, "api_key": KEY}
        easel.ask("PUT", "/api/settings", json=changes)
        done = invoke_easel("doctor", DATA=str(tmp_path), PORT=port, TOKEN=easel.token)
        assert "refused the API key" in done.stdout
        assert KEY not in done.stdout + done.stderr
        done = invoke_easel("doctor", DATA=str(tmp_path), PORT=port, TOKEN="another-token-123")
        assert "warn Model: not checked" in done.stdout
