"""Where the pages of canvases are served, and what browsers are told to keep them from.

Owns every header of this kind. A page runs in a frame of opaque origin with no sign-in in it, may load from its own view and from nowhere else, and
may go nowhere. None of these is enough alone: a sandbox without a policy leaks by twenty ways, a policy without the shell's `frame-src` by
navigation, and without the list of connections by WebRTC and by what a browser looks up in advance.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from easel.errors import Forbidden, NotFound, WrongHost

VIEWS = "/canvas-view/"
SANDBOX = (
    "allow-scripts allow-forms"  # forms, so that a page hears of their submission; none of them is ever sent
)

Header = tuple[bytes, bytes]

_HOST = re.compile(r"[A-Za-z0-9_.\-]+(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?")
_V6 = re.compile(
    r"\[[^\]]*\]"
)  # Chromium 156 takes no such address in a list of connections, and then cuts off the shell with its frame
_FRAMED = frozenset(
    {"iframe", "document"}
)  # what our own pages may fetch of a view; everything else in it is its page's to fetch

_SHUT = "default-src 'none'; form-action 'none'; base-uri 'none'; sandbox"
# For every answer below VIEWS that does not say its own: a refusal, a redirect, a picture. Also when somebody opens it by itself.
VIEW_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),  # an address has its token in it
    (b"content-security-policy", f"{_SHUT}; frame-ancestors 'none'".encode()),
    (b"x-frame-options", b"DENY"),
    (b"connection-allowlist", b"()"),
    (b"x-dns-prefetch-control", b"off"),
    (
        b"permissions-policy",
        b"camera=(), microphone=(), geolocation=(), display-capture=(), clipboard-read=(), usb=(), serial=()",
    ),
)


@dataclass(frozen=True, slots=True)
class Places:
    """The addresses that browsers know this server by."""

    public_url: str = ""
    assets_url: str = ""  # where views are, if not beside everything else

    def shell(self, request: HTTPConnection) -> str:
        """The origin of the page that shows a view."""
        return _origin(self.public_url) if self.assets_url else self._here(request)

    def views(self, request: HTTPConnection) -> str:
        return _origin(self.assets_url) if self.assets_url else self._here(request)

    def _here(self, request: HTTPConnection) -> str:
        """As its browser sees it. Behind a proxy that speaks https, `http` in a policy means both."""
        host = request.headers.get("host", "")
        if not _HOST.fullmatch(host):
            raise WrongHost(host=host[:200])
        public = urlsplit(self.public_url)
        return f"{public.scheme}://{host}" if public.netloc == host else f"http://{host}"

    def check(self, request: HTTPConnection) -> None:
        """Views have a host name of their own where that is set, and nothing but views is there."""
        is_view = request.scope["path"].startswith(VIEWS)
        if is_view:
            check_fetcher(request)
        if self.assets_url and is_view is not self.is_assets_host(request.headers.get("host", "")):
            raise NotFound(what="page", id=request.scope["path"][:200])

    def is_assets_host(self, host: str) -> bool:
        return bool(self.assets_url) and host == urlsplit(self.assets_url).netloc


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def without_token(path: str) -> str:
    """For logs and records: whoever reads them has no use for a view's token, or one too many."""
    return f"{VIEWS}…/{path.removeprefix(VIEWS).partition('/')[2]}" if path.startswith(VIEWS) else path


def may_come_from(request: HTTPConnection, origin: str) -> bool:
    """A frame of opaque origin says `null`. It may fetch what its view has, and nothing else here. U9"""
    return origin == "null" and request.scope["path"].startswith(VIEWS)


def check_fetcher(request: HTTPConnection) -> None:
    """A script that came with a canvas is none of our own pages', whatever gets into them."""
    asked = request.headers
    if asked.get("sec-fetch-site") == "same-origin" and asked.get("sec-fetch-dest") not in _FRAMED:
        raise Forbidden(problem="what a canvas brings is for its own page alone.")


# --- policies -----------------------------------------------------------------------------------------------------------


def _source(address: str) -> str:
    """As a policy names it, which has no way to write an IPv6 address: there it is the whole origin."""
    return "'self'" if "[" in address else address


def shell_policy(view: str) -> str:
    """The page around a canvas: our own files, and in its frame this one view."""
    view = _source(view)
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src {view}; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )


def page_headers(view: str, shell: str, connect: Sequence[str], hashes: Iterable[str]) -> dict[str, str]:
    """The page of a canvas. `connect` are the origins that its spec lists, if a person stands for it."""
    lists = " ".join(f'"{one}"' for one in (f"{_V6.sub('*', view)}*", *connect))
    view, shell = _source(view), _source(shell)
    scripts = "".join(f" '{one}'" for one in hashes)
    pictures = "".join(f" {one}" for one in connect if one.startswith("https:"))
    anywhere = "".join(f" {one}" for one in connect)
    policy = (
        f"default-src 'none'; script-src {view}{scripts}; style-src {view} 'unsafe-inline'; img-src {view} data: blob:{pictures}; "
        f"font-src {view} data:; media-src {view} data: blob:; connect-src {view}{anywhere}; worker-src 'none'; frame-src 'none'; "
        f"object-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors {shell}; sandbox {SANDBOX}"
    )
    said = {
        "content-security-policy": policy,
        "connection-allowlist": f"({lists})",
        "cache-control": "no-store",
    }
    return {
        **said,
        "x-frame-options": "SAMEORIGIN",
    }  # for whoever does not know `frame-ancestors`, which else counts alone


def file_headers(request: HTTPConnection) -> dict[str, str]:
    """Any other file of a view, which its page may read: a font and a module are asked for in the name of its opaque origin."""
    allowed = (
        {"access-control-allow-origin": "null", "vary": "origin"}
        if request.headers.get("origin") == "null"
        else {}
    )
    return {"cross-origin-resource-policy": "cross-origin", "cache-control": "no-store", **allowed}
