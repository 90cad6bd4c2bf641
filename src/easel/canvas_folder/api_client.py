"""A running Easel as its commands reach it: the gateway's verbs over `POST /api/rpc`, in plain words when that fails.

They go by HTTP and never to the database, which a running Easel may hold alone (RS-50).
"""

import contextlib
import http.client
import ipaddress
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from easel.errors import BadInput, BadSettings
from easel.ids import ArtifactId
from easel.settings import Settings

TIMEOUT_SECONDS = 60.0
ASK_SECONDS = 5.0  # to say how it is
MAX_ANSWER_BYTES = 268_435_456
NOT_SIGNED_IN = "NOT_SIGNED_IN"


class Refused(Exception):
    """The server's own words for why not."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message


class ServerUnreachable(Exception):
    """No server answers, or none of ours. What was asked may have been done all the same."""


class Server:
    def __init__(self, url: str, token: str | None, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Without a token it can only be asked how it is."""
        self.url = url.rstrip("/")
        self._parts = checked_url(self.url)
        self._headers = {
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {token}"} if token else {}),
        }
        self._seconds = timeout_seconds

    def call(self, method: str, **params: Any) -> Any:
        status, body = self._ask(
            "POST", "/api/rpc", msgspec.json.encode({"method": method, "params": params})
        )
        return self._answer(status, body)

    def artifact(self, artifact_id: ArtifactId) -> bytes:
        status, body = self._ask("GET", f"/api/artifacts/{artifact_id}", None)
        if status != 200:
            self._answer(status, body)
        return body

    def is_ready(self) -> bool:
        """Whether it can do durable work now. Raises `NobodyThere` where no Easel answers."""
        try:
            self._answer(*self._ask("GET", "/api/tools", None))
        except Refused as problem:  # anybody has a health page that says ok; so refuses an Easel alone
            if problem.name != NOT_SIGNED_IN:
                raise ServerUnreachable(f"{self.url} answers, but not as an Easel does.") from None
        status, body = self._ask("GET", "/readyz", None)
        return (status, body) == (200, b"ok\n")

    def page_of(self, agent_id: str, canvas_id: str) -> str:
        return f"{self.url}/canvas/{agent_id}/{canvas_id}"

    def _answer(self, status: int, body: bytes) -> Any:
        try:
            answer: Any = msgspec.json.decode(body)
            if status != 200:
                name, message = str(answer["error"]["name"]), str(answer["error"]["message"])
                if name == NOT_SIGNED_IN:
                    message = f"{self.url} does not know this token; set EASEL_TOKEN to the one that `easel up` printed there, or to another of its own."
                raise Refused(name, message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
            raise ServerUnreachable(
                f"{self.url} answers, but not as an Easel does (HTTP {status}); give the address with --url."
            ) from None
        return answer

    def _ask(self, verb: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """One connection for each: a server that was started anew meanwhile is found. Redirections are not followed with a token."""
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._seconds)
        try:
            with contextlib.suppress(
                BrokenPipeError, ConnectionResetError
            ):  # it may refuse a body before it has read it, and say why
                connection.request(verb, path, body, self._headers)
            answer = connection.getresponse()
            content = answer.read(MAX_ANSWER_BYTES)
        except ConnectionRefusedError:
            raise ServerUnreachable(
                f"No Easel listens at {self.url}; start one with `easel up`, or give its address with --url."
            ) from None
        except (OSError, http.client.HTTPException) as problem:
            raise ServerUnreachable(
                f"{self.url} does not answer ({problem or type(problem).__name__})."
            ) from None
        finally:
            connection.close()
        return answer.status, content


def own_address(settings: Settings) -> str:
    """Where `easel up` listens with these settings, as seen from this machine."""
    host = (
        "127.0.0.1"
        if settings.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
        else f"[{settings.host}]"
        if ":" in settings.host
        else settings.host
    )
    return f"http://{host}:{settings.port}"


def ready_there(settings: Settings) -> bool | None:
    """Whether the Easel that `easel up` would meet at its own address is ready; None: there is none. It is told nothing but the question."""
    try:
        return Server(own_address(settings), None, ASK_SECONDS).is_ready() if settings.port else None
    except (BadInput, ServerUnreachable):
        return None


def reached(settings: Settings, url: str | None, token: str | None) -> Server:
    """The server that these options mean: by default the one that `easel up` starts with the same settings, as its owner."""
    own = own_address(settings)
    if url is None and settings.port == 0:
        raise BadSettings(
            problem="EASEL_PORT is 0, which says nothing of where the server listens; give its address with --url."
        )
    address = url or own
    given = token or settings.token or _owner_token(settings.data_folder, address, own, settings.public_url)
    if not (given.isascii() and given.isprintable()):
        raise BadSettings(problem="The token has characters that no token has.")
    return Server(address, given)


def _owner_token(data: Path, address: str, own: str, public: str) -> str:
    """That of the data folder, which is told to this machine's own server alone: whoever else got it would own all of this one."""
    mine = {own, public.rstrip("/")}
    if address.rstrip("/") not in mine and not _is_loopback(checked_url(address).hostname or ""):
        raise BadSettings(problem=f"{address} is another machine; set EASEL_TOKEN to a token of its own.")
    kept = data / "owner-token"
    try:
        found = kept.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        found = ""
    if not found:
        raise BadSettings(
            problem=f"There is no token in {kept}; set EASEL_TOKEN, or name the data folder of the running Easel with --data."
        )
    return found


def checked_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        fits = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.path in ("", "/")
            and not parts.query
        )
        fits = fits and parts.username is None and (parts.port is None or parts.port > 0)
    except ValueError:
        fits, parts = False, urlsplit("")
    if not fits:
        raise BadInput(problem="--url is an address such as http://127.0.0.1:8800, without a path.")
    return parts


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
