"""`local__Fetch` against a real server on loopback. RS-74"""

from __future__ import annotations

import asyncio
import gzip
import ssl
import time
import zlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from easel.core.tool.context import ToolContext
from easel.core.web.hosts import OWN_PAGE, parse_networks
from easel.errors import BadInput, Forbidden, HostError, ToolFailed
from easel.fetch import tool
from easel.fetch.tool import SCHEMA, FetchTool
from easel.host.tools.schema import build_validator
from tests.fetch.web_server import WebServer, run_web_server
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

LIMIT = 1_000  # bytes of a body
LOOPBACK = parse_networks("127.0.0.1")


@pytest_asyncio.fixture
async def web() -> AsyncIterator[WebServer]:
    async with run_web_server() as served:
        yield served


class Client:
    """The tool with names that lead to the server of the test."""

    def __init__(self, web: WebServer, *hosts: str, private: Any = LOOPBACK, **names: Sequence[str]) -> None:
        self.lookups: list[str] = []
        self._names = {
            "127.0.0.1": ["127.0.0.1"],
            **{name.replace("_", "."): ips for name, ips in names.items()},
        }
        self.port = web.port
        self.hosts = frozenset(f"{host}:{web.port}" for host in hosts or ("127.0.0.1",))
        self.tls = ssl.create_default_context()
        self._private = private
        self.limit = LIMIT  # bytes of a body

    async def _resolve(self, host: str) -> Sequence[str]:
        self.lookups.append(host)
        found = self._names[host]
        return [found.pop(0)] if len(found) > 1 else found

    async def fetch(self, path: str, method: str = "GET", host: str = "127.0.0.1", **args: Any) -> Any:
        tool = FetchTool([], self._private, max_body_bytes=self.limit, resolve=self._resolve, tls=self.tls)
        scheme = args.pop("scheme", "http")
        context = ToolContext(THE_OWNER, "agent:main:main", hosts=self.hosts)
        url = f"{scheme}://{host}:{self.port}{path}"
        return await tool.use({"method": method, "url": url, **args}, context)


@rule("RS-74")
async def test_answer_has_status_headers_body_and_json(web: WebServer) -> None:
    client = Client(web)
    web.answer("/a?b=c", b'[{"id": 1}]', Content_Type="application/json", Set_Cookie="a=b", X_A="1", x_a="2")
    answer = await client.fetch("/a?b=c", headers={"X-Own": "yes"})
    assert answer["json"] == [{"id": 1}]
    assert answer["body"] == '[{"id": 1}]'
    assert (answer["status"], answer["truncated"]) == (200, False)
    assert answer["headers"]["x-a"] == "1, 2"
    assert "set-cookie" not in answer["headers"]
    assert "x-own: yes" in web.requests[0]
    web.answer("/a?b=c", b"<p>\xff</p>", status="404 Not Found", Content_Type="text/html")
    missing = await client.fetch("/a?b=c")
    assert (missing["status"], missing["body"], "json" in missing) == (404, "<p>\ufffd</p>", False)
    assert "cookie" not in web.requests[1].lower(), "no cookie is kept"


@pytest.mark.parametrize("body", [b'{"a": 1, "a": 2}', b"NaN", b"[" * 900, b""])
async def test_body_that_is_not_clear_json_is_text_only(web: WebServer, body: bytes) -> None:
    web.answer("/", body, Content_Type="application/problem+json; charset=utf-8")
    answer = await Client(web).fetch("/")
    assert (answer["body"].encode(), "json" in answer) == (body, False)


@rule("RS-74")
async def test_request_has_its_method_body_and_token(web: WebServer) -> None:
    client = Client(web)
    web.answer("/")
    await client.fetch("/", "POST", json={"a": [1, None]}, bearer="t0ken")
    await client.fetch("/", "PUT", body="häh", headers={"Content-Type": "text/csv"})
    web.pages["/"] = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n"
    assert (await client.fetch("/", "HEAD"))["body"] == ""
    posted, put, head = web.requests
    assert posted.startswith("POST / HTTP/1.1\r\n")
    assert posted.endswith('\r\n\r\n{"a":[1,null]}')
    assert f"host: 127.0.0.1:{web.port}\r\n" in posted
    assert "authorization: Bearer t0ken\r\n" in posted
    assert put.endswith("\r\n\r\nhäh")
    assert "content-type: text/csv\r\n" in put
    assert head.startswith("HEAD / ")


@rule("RS-74")
def test_arguments_that_could_change_another_part_of_the_request_are_refused_without_their_values() -> None:
    validator = build_validator(SCHEMA)
    request = {"method": "POST", "url": "https://example.com/"}
    good: list[dict[str, Any]] = [
        {"json": None},
        {"body": "x", "headers": {"X-Api-Key": "a b", "Accept": "", "Hosted-By": "x"}},
        {"bearer": "a.b-c_d=="},
    ]
    bad: list[dict[str, Any]] = [
        {"json": 1, "body": "x"},
        *(
            {"headers": {name: "k3y"}}
            for name in ("Host", "TE", "transfer-encoding", "X A", "X-A\r\nB", "", "ü")
        ),
        *({"headers": {"X-A": value}} for value in ("k3y\r\nX-B: b", "k3y\0", "k3y é", " k3y", "k3y\t", 7)),
        *({"bearer": value} for value in ("k3y\nX-B: b", "k3y é", "a b", "")),
        *({"method": value} for value in ("get", "TRACE", "CONNECT", "GET / HTTP/1.1\r\n")),
    ]
    assert [args for args in good if validator.is_valid(request | args) is False] == []
    errors = [[error.message for error in validator.iter_errors(request | args)] for args in bad]
    assert [args for args, found in zip(bad, errors, strict=True) if not found] == []
    assert "k3y" not in str(errors)


# --- where a request goes -----------------------------------------------------------------------------------


@rule("RS-74", "SB-08")
async def test_only_listed_hosts_are_asked(web: WebServer) -> None:
    client = Client(web, "listed.test", listed_test=["127.0.0.1"])
    with pytest.raises(Forbidden, match=r"toolPolicy\.hosts of the canvas does not list other\.test"):
        await client.fetch("/", host="other.test")
    assert client.lookups == []
    tool = FetchTool(["listed.test"], LOOPBACK, max_body_bytes=LIMIT)
    with pytest.raises(Forbidden, match=r"EASEL_FETCH_HOSTS of this server does not list other\.test"):
        await tool.use(
            {"method": "GET", "url": "https://other.test/"}, ToolContext(THE_OWNER, "agent:main:main")
        )
    assert tool.definition.is_for_agents


@rule("RS-74")
@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "169.254.169.254", "0.0.0.0", "::1"])
async def test_name_of_a_private_address_is_refused(web: WebServer, address: str) -> None:
    client = Client(web, "name.test", private=[], name_test=[address])
    with pytest.raises(ToolFailed, match=r"name\.test has no public address"):
        await client.fetch("/", host="name.test")
    assert web.requests == []


@rule("RS-74")
@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.0.0.1", "localhost"])
async def test_no_spelling_of_loopback_passes_the_check(web: WebServer, host: str) -> None:
    url = f"http://{host}:{web.port}/"
    context = ToolContext(THE_OWNER, "agent:main:main", hosts=frozenset([url[7:-1]]))
    tool = FetchTool([], [], max_body_bytes=LIMIT)
    with pytest.raises(ToolFailed, match=r"has no public address|cannot be reached"):
        await tool.use({"method": "GET", "url": url}, context)
    assert web.requests == []


@rule("RS-74")
async def test_second_answer_of_a_name_server_leads_nowhere_else(web: WebServer) -> None:
    """The address that was checked is the one that is connected to; the next request checks again."""
    web.answer("/")
    client = Client(web, "rebind.test", rebind_test=["127.0.0.1", "10.0.0.1"])
    assert (await client.fetch("/", host="rebind.test"))["body"] == "ok"
    assert client.lookups == ["rebind.test"]
    with pytest.raises(ToolFailed, match=r"rebind\.test has no public address"):
        await client.fetch("/", host="rebind.test")


@rule("RS-74")
async def test_redirect_checks_host_and_address_again(web: WebServer) -> None:
    client = Client(web, "127.0.0.1", "inner.test", inner_test=["10.0.0.1"])
    refused: dict[str, tuple[type[HostError], str]] = {
        f"http://inner.test:{web.port}/": (ToolFailed, "inner.test has no public address"),
        f"http://other.test:{web.port}/": (Forbidden, "does not list other.test"),
        "http://127.0.0.1:1/": (Forbidden, "does not list 127.0.0.1:1"),
        "//evil.org/": (Forbidden, "does not list evil.org"),
        "file:///etc/passwd": (BadInput, "must be like"),
        "easel:/healthz": (BadInput, "must be like"),
        f"http://user:pw@127.0.0.1:{web.port}/": (BadInput, "must be like"),
        "http://[": (ToolFailed, "its redirect is not valid"),
        "/loop": (ToolFailed, "redirects more than 5 times"),
    }
    web.answer("/loop", status="302 Found", Location="/loop")
    for location, (kind, problem) in refused.items():
        web.answer("/go", status="302 Found", Location=location)
        with pytest.raises(kind, match=problem):
            await client.fetch("/go")
    assert len(web.requests) == len(refused) + 5


@rule("RS-74")
async def test_redirect_changes_the_method_as_in_a_browser_and_keeps_secrets_from_other_hosts(
    web: WebServer,
) -> None:
    client = Client(web, "127.0.0.1", "other.test", other_test=["127.0.0.1"])
    web.answer("/end", b"end")
    sent = {"json": {"a": 1}, "bearer": "t0ken", "headers": {"X-Api-Key": "k3y", "Accept": "text/plain"}}
    for status, method, following in (
        ("301 Moved", "POST", "GET"),
        ("302 Found", "POST", "GET"),
        ("302 Found", "DELETE", "DELETE"),
        ("303 See Other", "DELETE", "GET"),
        ("303 See Other", "HEAD", "HEAD"),
        ("307 Temporary", "POST", "POST"),
        ("308 Permanent", "PUT", "PUT"),
    ):
        web.answer("/go", status=status, Location="end#part")
        await client.fetch("/go", method, **sent)
        last = web.requests[-1]
        assert last.startswith(f"{following} /end HTTP/1.1\r\n"), (status, method)
        assert last.endswith('{"a":1}') is (following == method), (status, method)
        assert "authorization: Bearer t0ken\r\n" in last
    web.answer("/go", status="307 Temporary", Location=f"http://other.test:{web.port}/end")
    await client.fetch("/go", "POST", **sent)
    assert f"host: other.test:{web.port}\r\n" in web.requests[-1]
    assert "accept: text/plain\r\n" in web.requests[-1]
    assert not {"t0ken", "k3y"} & {word for line in web.requests[-1].split() for word in [line.strip()]}


@rule("RS-74")
async def test_proxy_of_the_environment_is_not_used(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    web.answer("/")
    assert (await Client(web).fetch("/"))["status"] == 200


# --- limits -------------------------------------------------------------------------------------------------


def sending(head: str, chunk: bytes) -> Callable[[asyncio.StreamWriter], Any]:
    """Return an answer without an end."""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n".encode())
        while not writer.is_closing():
            writer.write(chunk)
            await writer.drain()

    return send


@rule("RS-74")
@case("R1")
async def test_endless_body_is_cut_off(web: WebServer) -> None:
    web.pages["/"] = sending("content-type: application/json\r\n\r\n", b"[" * 100)
    answer = await Client(web).fetch("/")
    assert (len(answer["body"]), answer["truncated"], "json" in answer) == (LIMIT, True, False)


ROWS = b"{" + b",".join(b'"%d":1' % number for number in range(200_000)) + b"}"
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"


@rule("RS-74")
@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"\r\n" + b"1\r\nx\r\n" * 10_000 + b"0\r\n\r\n",
        HEAD + b"content-type: application/json\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(ROWS), ROWS),
    ],
    ids=["many chunks at once", "much JSON"],
)
async def test_answer_that_takes_long_to_read_does_not_hold_up_others(web: WebServer, answer: bytes) -> None:
    web.pages["/"] = answer
    client = Client(web)
    client.limit = 4_000_000
    began = last = time.perf_counter()
    longest = 0.0
    fetching = asyncio.create_task(client.fetch("/"))
    while not fetching.done():
        await asyncio.sleep(0)
        longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
    assert fetching.result()["truncated"] is False
    assert longest < (last - began) * 0.8, "others must have a turn meanwhile"


@rule("RS-74")
@case("R1")
async def test_compressed_body_is_cut_off_at_its_decompressed_size(web: WebServer) -> None:
    client = Client(web)
    web.answer("/", gzip.compress(b"0" * 100_000_000), Content_Encoding="gzip")
    answer = await client.fetch("/")
    assert (len(answer["body"]), answer["truncated"]) == (LIMIT, True)
    web.answer("/", gzip.compress(b"small"), Content_Encoding="GZIP")
    assert (await client.fetch("/"))["body"] == "small"
    for encoding, body in (("gzip", b"no gzip"), ("br", b"x"), ("deflate", zlib.compress(b"x"))):
        web.answer("/", body, Content_Encoding=encoding)
        with pytest.raises(ToolFailed, match="sent no valid HTTP"):
            await client.fetch("/")


@rule("RS-74")
@case("R1")
@pytest.mark.parametrize("slow", ["head", "body"])
async def test_slow_answer_ends_at_the_limit_of_time(
    web: WebServer, slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "MAX_SECONDS", 0.3)
    is_ended = asyncio.Event()

    async def stall(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" if slow == "head" else b"HTTP/1.1 200 OK\r\n\r\nx")
        await is_ended.wait()

    web.pages["/"] = stall
    with pytest.raises(ToolFailed, match=r"took longer than 0\.3 s"):
        await Client(web).fetch("/")
    is_ended.set()


@rule("RS-74")
@case("R1")
@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000,
    ],
    ids=["nonsense", "nothing", "bad length", "huge headers"],
)
async def test_answer_that_is_no_http_is_an_error(web: WebServer, answer: bytes) -> None:
    web.pages["/"] = answer
    with pytest.raises(ToolFailed, match=r"sent no valid HTTP|cannot be reached"):
        await Client(web).fetch("/")


async def test_host_that_does_not_answer_is_an_error(web: WebServer) -> None:
    client = Client(web)
    client.port = 1
    client.hosts = frozenset(["127.0.0.1:1"])
    with pytest.raises(ToolFailed, match=r"127\.0\.0\.1:1 cannot be reached"):
        await client.fetch("/")


# --- TLS ----------------------------------------------------------------------------------------------------


def new_certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """Return the server's side of a certificate that signs itself, and its file."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    built = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    built = built.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    file = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context, file


@rule("RS-74")
async def test_certificate_must_be_trusted_and_name_the_host(tmp_path: Path) -> None:
    context, file = new_certificate(tmp_path, "good.test")
    async with run_web_server(context) as web:
        web.answer("/")
        web.answer("/plain", status="302 Found", Location=f"http://good.test:{web.port}/")
        names = {"good_test": ["127.0.0.1"], "bad_test": ["127.0.0.1"]}
        client = Client(web, "good.test", "bad.test", **names)
        with pytest.raises(ToolFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await client.fetch("/", host="good.test", scheme="https")
        client.tls.load_verify_locations(file)
        assert (await client.fetch("/", host="good.test", scheme="https"))["body"] == "ok"
        with pytest.raises(ToolFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await client.fetch("/", host="bad.test", scheme="https")
        with pytest.raises(ToolFailed, match="redirects from https to http"):
            await client.fetch("/plain", host="good.test", scheme="https")


# --- this server's own page ---------------------------------------------------------------------------------


@rule("RS-74")
async def test_own_page_answers_get_and_nothing_else() -> None:
    tool = FetchTool([], [], max_body_bytes=LIMIT)
    context = ToolContext(THE_OWNER, "agent:main:main", hosts=frozenset())
    answer = await tool.use({"method": "GET", "url": OWN_PAGE}, context)
    assert (answer["status"], answer["body"], answer["truncated"]) == (200, "ok\n", False)
    more: list[dict[str, Any]] = [
        {"method": "POST"},
        {"method": "HEAD"},
        {"bearer": "x"},
        {"url": "easel:/readyz"},
    ]
    for args in more:
        with pytest.raises(BadInput):
            await tool.use({"method": "GET", "url": OWN_PAGE, **args}, context)
