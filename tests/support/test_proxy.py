"""The misbehaving proxy: a drill that passes because its fault never happened proves nothing."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.proxy import Proxy
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

SILENCE_SECONDS = 0.3
# Long enough for an answer over loopback, short enough to wait for.
ANSWER_SECONDS = 30.0
# For an answer that does arrive; the machine may pause.


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):  # some tests expect a reset
            while data := self.request.recv(65536):
                self.request.sendall(data)


class _EchoServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with _EchoServer(("127.0.0.1", 0), _Echo) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        with Proxy("127.0.0.1", server.server_address[1]) as proxy:
            yield proxy
        server.shutdown()


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=ANSWER_SECONDS)


def ask(peer: socket.socket, text: bytes) -> bytes:
    peer.sendall(text)
    return peer.recv(65536)


def test_bytes_pass_both_ways(proxy: Proxy) -> None:
    with connect(proxy) as peer:
        assert ask(peer, b"hello") == b"hello"


def test_half_closed_connection_still_receives_its_answer(proxy: Proxy) -> None:
    with connect(proxy) as peer:
        peer.sendall(b"last words")
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(100) == b"last words"
        assert peer.recv(100) == b""


def test_delay_holds_each_chunk(proxy: Proxy) -> None:
    with connect(proxy) as peer:
        proxy.delay(0.1)
        began = time.monotonic()
        assert ask(peer, b"slow") == b"slow"
        assert time.monotonic() - began >= 0.2  # there and back


@pytest.mark.parametrize("byte_count", [1, 4, 10])
def test_cut_lets_exactly_that_many_bytes_through(proxy: Proxy, byte_count: int) -> None:
    proxy.cut_after(byte_count)
    with connect(proxy) as peer:
        peer.sendall(b"0123456789")
        received = b""
        while chunk := peer.recv(100):
            received += chunk
    assert received == b"0123456789"[:byte_count]


def test_connections_can_be_cut_each_at_its_own_byte(proxy: Proxy) -> None:
    proxy.cut_in_turn([2, 3])
    received: list[bytes] = []
    for _ in range(3):
        with connect(proxy) as peer:
            received.append(b"")
            peer.sendall(b"0123")
            while len(received[-1]) < 4 and (chunk := peer.recv(100)):
                received[-1] += chunk
    assert received == [b"01", b"012", b"0123"]


def test_cut_now_resets_the_client(proxy: Proxy) -> None:
    with connect(proxy) as peer:
        assert ask(peer, b"x") == b"x"
        proxy.cut_now()
        with pytest.raises(ConnectionResetError):
            peer.recv(1)


def test_black_hole_to_the_client_is_no_reset_and_heals_with_the_held_bytes(proxy: Proxy) -> None:
    with connect(proxy) as peer:
        assert ask(peer, b"before") == b"before"
        proxy.black_hole("to_client")
        peer.sendall(b"unheard")
        peer.settimeout(SILENCE_SECONDS)
        with pytest.raises(TimeoutError):
            peer.recv(100)
        proxy.heal()
        peer.settimeout(ANSWER_SECONDS)
        assert peer.recv(100) == b"unheard"


def test_bytes_held_on_the_way_to_the_server_are_counted(proxy: Proxy) -> None:
    with connect(proxy) as peer:
        assert ask(peer, b"before") == b"before"
        proxy.black_hole()
        peer.sendall(b"late")
        wait_for_sync(lambda: proxy.held_bytes == 4, within=20, what="the proxy holds what was sent")
        proxy.heal()
        assert peer.recv(100) == b"late"
        assert proxy.held_bytes == 0


def test_black_hole_for_new_connections_lets_them_connect_without_data(proxy: Proxy) -> None:
    proxy.black_hole()
    with connect(proxy) as peer:
        peer.settimeout(SILENCE_SECONDS)
        with pytest.raises(TimeoutError):
            ask(peer, b"anyone?")


def test_black_hole_can_affect_present_connections_only(proxy: Proxy) -> None:
    with connect(proxy) as old:
        assert ask(old, b"1") == b"1"
        proxy.black_hole(new_connections=False)
        with connect(proxy) as new:
            assert ask(new, b"2") == b"2"
        old.settimeout(SILENCE_SECONDS)
        with pytest.raises(TimeoutError):
            ask(old, b"3")


def test_heal_may_reset_silent_connections(proxy: Proxy) -> None:
    with connect(proxy) as peer:
        assert ask(peer, b"1") == b"1"
        proxy.black_hole()
        proxy.heal(deliver_held=False)
        with pytest.raises(ConnectionResetError):
            peer.recv(1)


def test_refuse_fails_at_once_and_heals_on_the_same_port(proxy: Proxy) -> None:
    port = proxy.port
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.heal()
    assert proxy.port == port
    with connect(proxy) as peer:
        assert ask(peer, b"back") == b"back"


def test_address_keeps_its_credentials_path_and_query(proxy: Proxy) -> None:
    assert (
        proxy.url("postgresql://me:pw@db.example:5432/easel?x=1")
        == f"postgresql://me:pw@127.0.0.1:{proxy.port}/easel?x=1"
    )
