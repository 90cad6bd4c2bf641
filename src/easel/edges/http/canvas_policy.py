"""The origins of canvas pages, and the headers that isolate them in a browser.

Owns all of these headers. A page runs in a sandboxed frame of opaque origin without a sign-in. It may load
from its own view only, and cannot navigate. No layer is enough alone. A sandboxed page could still send data
to other sites: by any request without the content security policy, by navigation without the shell's
`frame-src`, and by WebRTC and prefetching without the `Connection-Allowlist`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from easel.errors import WrongHost

VIEWS = "/canvas-view/"
SANDBOX = "allow-scripts allow-forms"  # scripts may handle `submit` events; no form is ever sent

_HOST = re.compile(r"[A-Za-z0-9_.\-]+(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?")
# Chromium 156 rejects an IPv6 address in a `Connection-Allowlist`, and then blocks the shell and its frame.
_V6 = re.compile(r"\[[^\]]*\]")
# Values with which a page may load HTML that no person has accepted: in the shell's frame, or as data.
_UNACCEPTED_HTML = frozenset({"iframe", "empty"})

_BLOCK_ALL = "default-src 'none'; form-action 'none'; base-uri 'none'; sandbox"
# Default headers of responses below VIEWS, such as an error or a picture, in a frame or opened on their own.
VIEW_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),  # the address contains the token
    (b"content-security-policy", f"{_BLOCK_ALL}; frame-ancestors 'none'".encode()),
    (b"x-frame-options", b"DENY"),
    (b"connection-allowlist", b"()"),
    (b"x-dns-prefetch-control", b"off"),
    (
        b"permissions-policy",
        b"camera=(), microphone=(), geolocation=(), display-capture=(), clipboard-read=(), usb=(), serial=()",
    ),
)


@dataclass(frozen=True, slots=True)
class SiteOrigins:
    """The origins of the shell and of the views."""

    public_url: str = ""
    assets_url: str = ""  # the origin of the views, if it is a separate one

    def shell(self, request: HTTPConnection) -> str:
        """Return the origin of the page that frames a view."""
        return _origin(self.public_url) if self.assets_url else self._requested(request)

    def views(self, request: HTTPConnection) -> str:
        """Return the origin of the views."""
        return _origin(self.assets_url) if self.assets_url else self._requested(request)

    def _requested(self, request: HTTPConnection) -> str:
        """Return the requested origin. Behind a TLS proxy it may be `http`: in a policy it allows `https`."""
        host = request.headers.get("host", "")
        if not _HOST.fullmatch(host):
            raise WrongHost(host=host[:200])
        public = urlsplit(self.public_url)
        return f"{public.scheme}://{host}" if public.netloc == host else f"http://{host}"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def may_have_unaccepted_html(request: HTTPConnection) -> bool:
    """Return whether HTML that no person has accepted may be sent. RS-63

    A view that is opened as a document of its own could be in any browser. Without `Sec-Fetch-Dest`, which
    browsers omit over plain HTTP, this cannot be excluded.
    """
    return request.headers.get("sec-fetch-dest") in _UNACCEPTED_HTML


# --- policies -----------------------------------------------------------------------------------------------


def _source(address: str) -> str:
    """Return the address for a policy; 'self' for an IPv6 address, which a policy cannot name."""
    return "'self'" if "[" in address else address


def shell_policy(views: Sequence[str]) -> str:
    """Return the policy of the page around a canvas: our own files, and these views in a frame."""
    frames = " ".join(dict.fromkeys(map(_source, views)))
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        f"frame-src {frames}; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )


def page_headers(view: str, shell: str, connect: Sequence[str], hashes: Iterable[str]) -> dict[str, str]:
    """Return the headers of a canvas's page. `connect`: the origins that an accepted spec allows."""
    allowlist = _allowlist(view, connect)
    view, shell = _source(view), _source(shell)
    scripts = "".join(f" '{value}'" for value in hashes)
    pictures = "".join(f" {origin}" for origin in connect if origin.startswith("https:"))
    origins = "".join(f" {origin}" for origin in connect)
    policy = (
        f"default-src 'none'; script-src {view}{scripts}; style-src {view} 'unsafe-inline'; "
        f"img-src {view} data: blob:{pictures}; font-src {view} data:; media-src {view} data: blob:; "
        f"connect-src {view}{origins}; worker-src 'none'; frame-src 'none'; object-src 'none'; "
        f"form-action 'none'; base-uri 'none'; frame-ancestors {shell}; sandbox {SANDBOX}"
    )
    return {
        "content-security-policy": policy,
        "connection-allowlist": allowlist,
        "cache-control": "no-store",
        "x-frame-options": "SAMEORIGIN",  # for browsers without `frame-ancestors`
    }


def probe_headers(view: str, shell: str) -> dict[str, str]:
    """Return the headers of the probe: the connection policy of a page, and none that hides its effect."""
    return {
        "content-security-policy": f"sandbox allow-scripts; frame-ancestors {_source(shell)}",
        "connection-allowlist": _allowlist(view, ()),
        "cache-control": "no-store",
        "x-frame-options": "SAMEORIGIN",
    }


def _allowlist(view: str, connect: Sequence[str]) -> str:
    """Return the `Connection-Allowlist` of a view: its own files and these origins."""
    return "(" + " ".join(f'"{url}"' for url in (f"{_V6.sub('*', view)}*", *connect)) + ")"


def file_headers(request: HTTPConnection) -> dict[str, str]:
    """Return the headers of a view's file that is no HTML. Fonts and modules are loaded by origin `null`."""
    allowed = (
        {"access-control-allow-origin": "null", "vary": "origin"}
        if request.headers.get("origin") == "null"
        else {}
    )
    return {"cross-origin-resource-policy": "cross-origin", "cache-control": "no-store", **allowed}
