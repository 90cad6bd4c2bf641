"""Addresses of pages, lists of hosts, and which IP addresses are public. RS-74"""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from easel.core.web.hosts import is_listed, may_connect, parse_host, parse_networks, parse_url
from easel.errors import BadInput
from tests.requirements import rule

PUBLIC = ["93.184.215.14", "8.8.8.8", "2606:2800:21f:cb07::1", "::ffff:8.8.8.8", "64:ff9b::808:808"]
NOT_PUBLIC = [
    *("0.0.0.0", "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("192.0.2.1", "198.18.0.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1"),
    # An IPv4 address that is not public, inside an IPv6 address.
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
    *("2002:7f00:1::1", "2002:a00:1::", "64:ff9b:1::7f00:1", "2001:0:7f00:1::1", "2001:db8::1"),
]


@rule("RS-74")
def test_only_public_addresses_may_be_connected_to() -> None:
    assert [text for text in PUBLIC if not may_connect(ip_address(text), [])] == []
    assert [text for text in NOT_PUBLIC if may_connect(ip_address(text), [])] == []


@rule("RS-74")
def test_setting_allows_networks_that_are_not_public_also_inside_ipv6() -> None:
    networks = parse_networks(" 10.0.0.0/8, ::1")
    assert all(may_connect(ip_address(text), networks) for text in ("10.1.2.3", "::ffff:10.1.2.3", "::1"))
    assert not may_connect(ip_address("192.168.0.1"), networks)
    with pytest.raises(BadInput, match=r"must be like 10\.0\.0\.0/8"):
        parse_networks("10.0.0.1/8")


@pytest.mark.parametrize(
    "text, read",
    [
        ("https://Example.COM", "https://example.com/"),
        ("HTTP://example.com:80/a?b=c#d", "http://example.com/a?b=c"),
        ("https://example.com?q=%2e%2e/../x", "https://example.com/?q=%2e%2e/../x"),
        ("https://[2001:DB8::1]:8443/", "https://[2001:db8::1]:8443/"),
        ("http://my_service:8080/x", "http://my_service:8080/x"),
    ],
)
def test_address_is_read_in_one_way(text: str, read: str) -> None:
    assert str(parse_url(text)) == read


@rule("RS-74")
@pytest.mark.parametrize(
    "text",
    [
        *("", "example.com", "//example.com/", "ftp://example.com/", "file:///etc/passwd", "easel:/readyz"),
        *("https://user@example.com/", "https://user:pw@example.com/", "https://example.com@evil.org/"),
        *("https://example.com\\@evil.org/", "https://example.com/\\..", "https:/example.com"),
        *("https://exam ple.com/", "https://example.com/a b", "https://example.com/\r\nX: y"),
        *("https://ü.de/", "https://", "https://\u212aube.example.com/", "https://example.com/\u017f"),
        *("https://example.com:0/", "https://example.com:65536/", "https://example.com:/", "https://a..b/"),
        *("https://example.com/../x", "https://example.com/%2e%2E/x", "https://example.com/a%2f..%2fb"),
        *("https://[::1]evil/", "https://-a.com/", "https://example.com/" + "a" * 8_000),
    ],
)
def test_other_address_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_url(text)


@rule("RS-74")
def test_list_names_hosts_exactly_or_below_a_domain_with_their_port() -> None:
    hosts = {"api.example.com", "*.example.org", "db.example.com:8443", "*.example.net:81"}
    hosts |= {"[::1]:80", "c.org:443"}
    listed = [
        *("https://api.example.com/x", "http://api.example.com/", "https://a.example.org/"),
        *("https://a.b.example.org/", "https://db.example.com:8443/", "http://c.example.net:81/"),
        *("http://[::1]/", "https://c.org/"),
    ]
    other = [
        *("https://example.com/", "https://x.api.example.com/", "https://api.example.com:8443/"),
        *("https://example.org/", "https://evilexample.org/", "https://db.example.com/"),
        *("https://a.example.org:444/", "https://api.example.com.evil.org/", "http://c.example.net/"),
        *("http://[::1]:81/", "http://c.org/"),
    ]
    assert [url for url in listed if not is_listed(parse_url(url), hosts)] == []
    assert [url for url in other if is_listed(parse_url(url), hosts)] == []


@pytest.mark.parametrize(
    "entry",
    [
        *("https://example.com", "example.com/", "*", "*.com", "a*.example.com", "*.*.example.com"),
        *("u@example.com", "", "example.com:0", "example.com:99999", "exa mple.com", "example..com", 7),
    ],
)
def test_entry_that_is_no_host_is_refused(entry: object) -> None:
    with pytest.raises(BadInput, match="is not a host"):
        parse_host(entry, "toolPolicy.hosts[0]")
