"""A client of a running Easel: its routes, and the gateway's methods over `POST /api/rpc`.

Owns the address, the token and the error messages of a failed request. The commands use HTTP and never the
database, which a running Easel may lock (RS-50).
"""

import contextlib
import http.client
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from easel.core.account import check_account_name
from easel.core.web.hosts import is_loopback
from easel.errors import BadInput, BadSettings
from easel.ids import ArtifactId
from easel.settings import Settings

TIMEOUT_SECONDS = 60.0
READY_TIMEOUT_SECONDS = 5.0
MAX_ANSWER_BYTES = 268_435_456
NOT_SIGNED_IN = "NOT_SIGNED_IN"


class RequestRefused(Exception):
    """The server refused a request, with the name and message of its error."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message


class ServerUnreachable(Exception):
    """No Easel answered. The request may have been carried out nevertheless."""


class ApiClient:
    def __init__(
        self,
        url: str,
        token: str | None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        *,
        account: str | None = None,
    ) -> None:
        """Create a client; without a token only `is_ready` works. Requests name the account, if given."""
        self.url = url.rstrip("/")
        self._parts = parse_url(self.url)
        self._headers = {
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {token}"} if token else {}),
            **({"Easel-Account": check_account_name(account)} if account is not None else {}),
        }
        self._timeout_seconds = timeout_seconds

    def call(self, method: str, **params: Any) -> Any:
        """Return the result of a gateway method. Raises `RequestRefused` or `ServerUnreachable`."""
        return self.send("POST", "/api/rpc", {"method": method, "params": params})

    def send(self, verb: str, path: str, body: Any = None) -> Any:
        """Return the JSON answer of a route, if any. Raises `RequestRefused` or `ServerUnreachable`."""
        content = None if body is None else msgspec.json.encode(body)
        return self._decode(*self._request(verb, path, content))

    def artifact(self, artifact_id: ArtifactId) -> bytes:
        status, body = self._request("GET", f"/api/artifacts/{artifact_id}", None)
        if status != 200:
            self._decode(status, body)
        return body

    def is_ready(self) -> bool:
        """Return whether the server can store data now. Raises `ServerUnreachable` if no Easel answers."""
        try:
            self._decode(*self._request("GET", "/api/tools", None))
        except RequestRefused as problem:  # only an Easel refuses with this name; others may have /readyz
            if problem.name != NOT_SIGNED_IN:
                raise ServerUnreachable(f"The server at {self.url} is not an Easel.") from None
        return self._request("GET", "/readyz", None) == (200, b"ok\n")

    def page_of(self, agent_id: str, canvas_id: str) -> str:
        return f"{self.url}/canvas/{agent_id}/{canvas_id}"

    def _decode(self, status: int, body: bytes) -> Any:
        if status == 204:
            return None
        try:
            answer: Any = msgspec.json.decode(body)
            if status != 200:
                name, message = str(answer["error"]["name"]), str(answer["error"]["message"])
                if name == NOT_SIGNED_IN:
                    message = (
                        f"{self.url} does not accept this token; set EASEL_TOKEN to the token that "
                        "`easel up` printed there, or to another token of that server."
                    )
                raise RequestRefused(name, message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
            what = "is not an Easel (HTTP {status}); give the address with --url."
            if status >= 500:
                what = "failed (HTTP {status}); its log, or that of a proxy in front of it, says why."
            raise ServerUnreachable(f"The server at {self.url} {what.format(status=status)}") from None
        return answer

    def _request(self, verb: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Send a request on a new connection: the server may have been restarted. Follows no redirect."""
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout_seconds)
        try:
            # The server may refuse a body before it has read all of it; its response is read nevertheless.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(verb, path, body, self._headers)
            answer = connection.getresponse()
            content = answer.read(MAX_ANSWER_BYTES)
        except ConnectionRefusedError:
            raise ServerUnreachable(
                f"No Easel is running at {self.url}; start one with `easel up`, "
                "or give its address with --url."
            ) from None
        except (OSError, http.client.HTTPException) as problem:
            raise ServerUnreachable(
                f"{self.url} does not answer ({problem or type(problem).__name__})."
            ) from None
        finally:
            connection.close()
        return answer.status, content


def local_address(host: str, port: int) -> str:
    """Return the address at which a server that listens on this host is reached from this machine."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_running_and_ready(settings: Settings) -> bool | None:
    """Return whether the Easel at its local address is ready, or None if none runs. Sends no token."""
    try:
        client = ApiClient(local_address(settings.host, settings.port), None, READY_TIMEOUT_SECONDS)
        return client.is_ready() if settings.port else None
    except (BadInput, ServerUnreachable):
        return None


def client_for(
    settings: Settings, url: str | None, token: str | None, account: str | None = None
) -> ApiClient:
    """Return a client for these options; by default for the local Easel, with the owner's token."""
    if url is None and settings.port == 0:
        raise BadSettings(problem="EASEL_PORT is 0, so the address is not known; give it with --url.")
    local = local_address(settings.host, settings.port)
    address = url or local
    token = token or settings.token or _owner_token(settings.data_folder, address, local, settings.public_url)
    if not (token.isascii() and token.isprintable()):
        raise BadSettings(problem="The token must consist of printable ASCII characters.")
    return ApiClient(address, token, account=account)


def _owner_token(data: Path, address: str, local: str, public: str) -> str:
    """Return the token in the data folder, which must not be sent to another machine."""
    is_own = address.rstrip("/") in {local, public.rstrip("/")}
    if not is_own and not is_loopback(parse_url(address).hostname or ""):
        raise BadSettings(problem=f"{address} is another machine; set EASEL_TOKEN to a token of that server.")
    path = data / "owner-token"
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        token = ""
    if not token:
        raise BadSettings(
            problem=f"There is no token in {path}; set EASEL_TOKEN, or name the data folder of the running "
            "Easel with --data."
        )
    return token


def parse_url(url: str) -> SplitResult:
    """Return the parts of a server address. Raises `BadInput` for an invalid address."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        is_bare = parts.path in ("", "/") and not parts.query and parts.username is None
        if parts.scheme in ("http", "https") and parts.hostname and is_bare and parts.port != 0:
            return parts
    raise BadInput(problem="--url must be an address such as http://127.0.0.1:8800, without a path.")
