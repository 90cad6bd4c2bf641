"""The connections of `local__Fetch`: to the very address that was checked. RS-74

Owns resolving names. A name is resolved once for each connection, so that a second answer cannot lead
elsewhere.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Any

from httpcore2 import AnyIOBackend, AsyncNetworkBackend, AsyncNetworkStream, ConnectError

from easel.core.web.hosts import FETCH, Networks, may_connect
from easel.errors import ToolFailed

Resolve = Callable[[str], Awaitable[Sequence[str]]]  # from a name to IP addresses
MAX_ADDRESSES = 8  # of one name that are tried

# Separate threads, because a lookup can block for a long time.
_LOOKUPS = ThreadPoolExecutor(8, "easel-fetch-names")


async def resolve_name(host: str) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(
        _LOOKUPS, lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    )
    return [str(address[0]) for *_, address in found]


class CheckedNetwork(AsyncNetworkBackend):
    """Connects to public addresses, and to those in networks that a setting allows."""

    def __init__(self, private: Networks, resolve: Resolve) -> None:
        self._private = private
        self._resolve = resolve
        self._sockets = AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> AsyncNetworkStream:
        try:
            found = list(dict.fromkeys(await self._resolve(host)))[:MAX_ADDRESSES]
        except OSError as problem:
            raise ConnectError(f"its name has no address ({problem.strerror})") from None
        allowed = [address for address in found if may_connect(ip_address(address), self._private)]
        if not allowed:
            reason = f"{host} has no public address, and EASEL_FETCH_PRIVATE of this server allows no other."
            raise ToolFailed(tool=FETCH, reason=reason)
        for address in allowed[:-1]:
            try:
                return await self._sockets.connect_tcp(address, port, timeout, local_address, socket_options)
            except ConnectError:
                continue
        return await self._sockets.connect_tcp(allowed[-1], port, timeout, local_address, socket_options)
