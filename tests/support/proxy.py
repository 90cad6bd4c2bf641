"""A TCP proxy on loopback that misbehaves on demand.

Owns delay, cuts at a byte, silence in one or both directions without a reset, refusal and recovery. Has no
protocol: it forwards bytes. It runs in a thread of its own, so that a test may be synchronous, asynchronous
or busy, and every method has taken effect when it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

Direction = Literal["to_client", "to_server"]
BOTH: tuple[Direction, Direction] = ("to_client", "to_server")

COMMAND_SECONDS = 30.0
# A command to the proxy's own loop only sets flags; a longer wait means that the loop hangs.

_T = TypeVar("_T")
_END = b""


def _never() -> None:
    """Return no cut for any connection."""


class Proxy:
    """Forwards each connection to `host:port`; `with Proxy(host, port) as proxy:` listens on `proxy.port`."""

    def __init__(self, host: str, port: int) -> None:
        self.targets = [(host, port)]
        """Each connection is forwarded to the next one."""
        self.port = 0
        self.accepted = 0
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._held_port: socket.socket | None = None
        self._refuses = False
        self._resets = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._delay = 0.0
        self._next_cut: Callable[[], int | None] = _never
        self._silent: frozenset[Direction] = frozenset()

    @classmethod
    def before(cls, url: str) -> Proxy:
        """Create a proxy in front of the server of a database or HTTP address."""
        parts = urlsplit(url)
        assert parts.hostname is not None, url
        assert parts.port is not None, url
        return cls(parts.hostname, parts.port)

    def url(self, direct: str) -> str:
        """Return the same address through the proxy."""
        parts = urlsplit(direct)
        credentials, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{credentials}{at}127.0.0.1:{self.port}"))

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(COMMAND_SECONDS)
        self._loop.close()

    # -- faults

    def delay(self, seconds: float) -> None:
        """Delay every chunk by this many seconds."""
        self._do(lambda: setattr(self, "_delay", seconds))

    def cut_after(self, byte_count: int) -> None:
        """Close each new connection after this many bytes were sent to its client."""
        self._do(lambda: setattr(self, "_next_cut", lambda: byte_count))

    def cut_in_turn(self, byte_counts: Iterable[int]) -> None:
        """Like `cut_after`, but each new connection takes the next number; after the last one connections are
        not cut.
        """
        counts = iter(byte_counts)
        self._do(lambda: setattr(self, "_next_cut", lambda: next(counts, None)))

    def cut_now(self) -> None:
        """Reset every present connection, as a crashed peer or a router does."""
        self._do(self._reset_all)

    def black_hole(self, *directions: Direction, new_connections: bool = True) -> None:
        """Stop forwarding without a reset, in both directions unless one is named.

        Bytes that were sent are held and delivered by `heal()`, as TCP's retransmission does: a late write is
        part of the fault. With `new_connections=False` only present connections are affected (a fail-over, a
        NAT that lost its state).
        """
        silent = frozenset(directions or BOTH)

        def silence() -> None:
            if new_connections:
                self._silent = silent
            for link in self._links:
                link.silence(silent)

        self._do(silence)

    def refuse(self) -> None:
        """Reset present connections and refuse new ones."""

        async def stop_listening() -> None:
            self._refuses = True
            self._reset_all()
            if self._server:
                # otherwise another process may take the port before it heals
                self._held_port = _bound(self.port)
                self._server.close()
                self._server = None

        self._run(stop_listening())

    def heal(self, *, deliver_held: bool = True) -> None:
        """End every fault. Held bytes are delivered now; with `deliver_held=False` their connections are
        reset instead.
        """

        async def mend() -> None:
            self._delay, self._next_cut, self._silent = 0.0, _never, frozenset()
            for link in list(self._links):
                if link.is_silent and not deliver_held:
                    link.reset()
                else:
                    link.speak()
            if self._server is None:
                await self._listen()

        self._run(mend())

    @property
    def held_bytes(self) -> int:
        """Return how many bytes are held on their way to the server."""
        return self._do(lambda: sum(link.held_bytes for link in self._links))

    @property
    def connections(self) -> int:
        return self._do(lambda: len(self._links))

    # -- inside the proxy's loop

    async def _listen(self) -> None:
        self._refuses = False
        place, self._held_port = self._held_port or _bound(self.port), None
        self._server = await asyncio.start_server(self._accept, sock=place)
        self.port = place.getsockname()[1]

    async def _accept(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.accepted += 1
        resets = self._resets
        try:
            target = self.targets[self.accepted % len(self.targets)]
            from_server, to_server = await asyncio.open_connection(*target)
        except (OSError, asyncio.CancelledError):  # no server, or the proxy is closing
            _reset(to_client)
            return
        if self._refuses or self._resets != resets:  # accepted while the proxy was being closed
            _reset(to_client)
            _reset(to_server)
            return
        link = _Link(self, to_client, to_server, self._next_cut())
        link.silence(self._silent)
        self._links.add(link)
        try:
            with contextlib.suppress(
                asyncio.CancelledError
            ):  # the proxy is closing; asyncio would report it as an error
                await link.carry(from_client, from_server)
        finally:
            self._links.discard(link)
            link.close()

    def _reset_all(self) -> None:
        self._resets += 1
        for link in list(self._links):
            link.reset()

    async def _close(self) -> None:
        if self._server:
            self._server.close()
        if self._held_port:
            self._held_port.close()
        self._reset_all()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _do(self, action: Callable[[], _T]) -> _T:
        async def acted() -> _T:
            return action()

        return self._run(acted())

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(COMMAND_SECONDS)

    @property
    def present_delay(self) -> float:
        return self._delay


class _Link:
    """One client's connection and its counterpart to the server."""

    def __init__(
        self,
        proxy: Proxy,
        to_client: asyncio.StreamWriter,
        to_server: asyncio.StreamWriter,
        cut_after: int | None,
    ) -> None:
        self._proxy = proxy
        self._writers: dict[Direction, asyncio.StreamWriter] = {
            "to_client": to_client,
            "to_server": to_server,
        }
        self._may_pass: dict[Direction, asyncio.Event] = {direction: asyncio.Event() for direction in BOTH}
        self._bytes_left = cut_after
        self.held_bytes = 0
        self.speak()

    @property
    def is_silent(self) -> bool:
        return any(not event.is_set() for event in self._may_pass.values())

    def silence(self, directions: frozenset[Direction]) -> None:
        for direction in directions:
            self._may_pass[direction].clear()

    def speak(self) -> None:
        for event in self._may_pass.values():
            event.set()

    async def carry(self, from_client: asyncio.StreamReader, from_server: asyncio.StreamReader) -> None:
        """Forward until both ends have closed, or the link is reset or cut."""
        await asyncio.gather(self._pump(from_client, "to_server"), self._pump(from_server, "to_client"))

    async def _pump(self, reader: asyncio.StreamReader, direction: Direction) -> None:
        # Reading does not depend on writing: during a black hole the sender must see its bytes acknowledged.
        waiting: asyncio.Queue[bytes] = asyncio.Queue()
        sender = asyncio.create_task(self._send(waiting, direction))
        try:
            with contextlib.suppress(OSError):
                while chunk := await reader.read(65536):
                    self.held_bytes += len(chunk) if direction == "to_server" else 0
                    waiting.put_nowait(chunk)
            waiting.put_nowait(_END)
            await sender
        finally:
            sender.cancel()

    async def _send(self, waiting: asyncio.Queue[bytes], direction: Direction) -> None:
        writer = self._writers[direction]
        with contextlib.suppress(OSError, RuntimeError):
            while True:
                chunk = await waiting.get()
                await self._may_pass[direction].wait()
                if self._proxy.present_delay:
                    await asyncio.sleep(self._proxy.present_delay)
                if chunk is _END:
                    writer.write_eof()
                    return
                if direction == "to_client" and self._bytes_left is not None:
                    chunk = chunk[: self._bytes_left]
                    self._bytes_left -= len(chunk)
                    writer.write(chunk)
                    await writer.drain()
                    if self._bytes_left == 0:
                        self.close()
                        return
                    continue
                writer.write(chunk)
                self.held_bytes -= len(chunk) if direction == "to_server" else 0
                await writer.drain()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def reset(self) -> None:
        for writer in self._writers.values():
            _reset(writer)


def _bound(port: int) -> socket.socket:
    """Bind a port (0: any) without listening yet, with SO_REUSEPORT, so that it stays ours in between."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    place.bind(("127.0.0.1", port))
    return place


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN, so that the peer sees an error and not an orderly end."""
    raw = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
