"""The connections of `local__Fetch`: to the very address that was checked, after each redirect too. RS-74"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Any

from httpcore2 import AnyIOBackend, AsyncNetworkStream, ConnectError

from easel.core.web.hosts import FETCH, Networks, may_connect
from easel.errors import ToolFailed

Resolve = Callable[[str], Awaitable[Sequence[str]]]  # from a name to IP addresses
_LOOKUPS = ThreadPoolExecutor(8, "easel-fetch-names")  # separate threads: a lookup can block for long


async def resolve_name(host: str) -> Sequence[str]:
    """Return the IP addresses of a name. Raises `OSError`."""
    loop, kind = asyncio.get_running_loop(), socket.SOCK_STREAM
    found = await loop.run_in_executor(_LOOKUPS, lambda: socket.getaddrinfo(host, None, type=kind))
    return [str(address[0]) for *_, address in found]


def _refuse_fetch(host: str) -> Exception:
    reason = f"{host} has no public address, and EASEL_FETCH_PRIVATE of this server allows no other."
    return ToolFailed(tool=FETCH, reason=reason)


class CheckedNetwork(AnyIOBackend):
    """Connects to public addresses, and to those in networks that a setting allows.

    `refuse` makes the error for a name without such an address; it gets the name.
    """

    def __init__(
        self, private: Networks, resolve: Resolve, refuse: Callable[[str], Exception] = _refuse_fetch
    ) -> None:
        self._private = private
        self._resolve = resolve
        self._refuse = refuse

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> AsyncNetworkStream:
        """Connect to the first address that accepts. A name is resolved here only."""
        try:
            found = await self._resolve(host)
        except OSError as problem:
            raise ConnectError(f"its name has no address ({problem.strerror})") from None
        problem = self._refuse(host)
        for address in found:
            if may_connect(ip_address(address), self._private):
                try:
                    return await super().connect_tcp(address, port, timeout, local_address, socket_options)
                except ConnectError as failed:
                    problem = failed
        raise problem
