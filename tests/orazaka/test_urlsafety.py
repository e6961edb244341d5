# ruff: noqa: RUF001 (look-alike characters are the point)
"""Spec 2.6 as tables: what each spelling of a URL or an address is judged as."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orazaka.urlsafety import (
    Policy,
    UnsafeURL,
    answer_refusal,
    check_form,
    refusal,
)

DEFAULT = Policy()
STRICT = Policy(allow_loopback=False)
PRIVATE = Policy(allow_loopback=False, allow_private=True)
OPEN = Policy(allow_loopback=True, allow_private=True)
POLICIES = [DEFAULT, STRICT, PRIVATE, OPEN]

# what an address counts as -> the policies that allow it
ALLOWED_BY = {
    "public": POLICIES,
    "loopback": [DEFAULT, OPEN],
    "private": [PRIVATE, OPEN],
    "never": [],
}

ADDRESSES = {
    "public": """
        1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 93.184.216.34 100.63.255.255 100.128.0.0
        126.255.255.255 128.0.0.0 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0
        168.63.129.15 168.63.129.17 191.255.255.255 192.0.1.0 192.0.3.0 192.167.255.255 192.169.0.0
        198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0
        223.255.255.255
        2000:: 2001:200::1 2001:470::1 2001:4860:4860::8888 2001:db7:: 2001:db9:: 2003::1 2400::1
        2606:4700:4700::1111 2620:4f:8001::1 2a00:1450:4001::1 3ffd:: 3fff:1000::
        2606:4700:4700::1111%eth0
        ::ffff:8.8.8.8 ::ffff:808:808 0:0:0:0:0:ffff:8.8.8.8
        64:ff9b::8.8.8.8 64:ff9b::808:808 64:ff9b:1::8.8.8.8 64:ff9b:1:808:8:800::
        ::8.8.8.8 ::ffff:0:8.8.8.8 2002:808:808:: 2002:808:808::1
        2001:0:808:808::f7f7:f7f7 2001:0:808:808:8000:63bf:f7f7:f7f7
    """,
    "loopback": """
        127.0.0.0 127.0.0.1 127.0.0.2 127.1.2.3 127.255.255.254 127.255.255.255
        ::1 0:0:0:0:0:0:0:1 ::1%lo ::ffff:127.0.0.1 ::ffff:7f00:1 ::FFFF:127.255.0.1
    """,
    "private": """
        10.0.0.0 10.0.0.1 10.255.255.255 172.16.0.0 172.16.0.1 172.31.255.255
        192.168.0.0 192.168.1.1 192.168.255.255
        100.64.0.0 100.64.0.1 100.100.100.199 100.127.255.255
        fc00:: fc00::1 fd00::1 fd00:ec1::254 fd12:3456:789a::1 fdff:ffff::1
        ::ffff:10.0.0.1 ::ffff:192.168.0.1 ::ffff:100.64.0.1 ::ffff:a00:1
        64:ff9b::10.0.0.1 64:ff9b::c0a8:1 64:ff9b:1::10.0.0.1 64:ff9b:1:a00:0:100::
        ::10.0.0.1 ::ffff:0:10.0.0.1 2002:a00:1:: 2002:c0a8:101::1 2002:6440:1::
        2001:0:808:808::f5ff:fffe 2001:0:a00:1::f7f7:f7f7
    """,
    "never": """
        0.0.0.0 0.0.0.1 0.255.255.255
        169.254.0.0 169.254.0.1 169.254.169.254 169.254.169.253 169.254.170.2 169.254.255.255
        168.63.129.16 100.100.100.200 192.0.0.192
        192.0.0.0 192.0.0.1 192.0.0.8 192.0.0.9 192.0.0.10 192.0.0.170 192.0.0.255
        192.0.2.0 192.0.2.1 192.0.2.255 198.51.100.1 203.0.113.1 203.0.113.255
        192.88.99.1 192.31.196.1 192.52.193.1 192.175.48.1
        198.18.0.0 198.18.0.1 198.19.255.255
        224.0.0.0 224.0.0.1 233.252.0.1 239.255.255.250 239.255.255.255
        240.0.0.0 240.0.0.1 255.255.255.254 255.255.255.255
        :: ::ffff:0.0.0.0 ::ffff:169.254.169.254 ::ffff:a9fe:a9fe ::ffff:168.63.129.16
        ::ffff:224.0.0.1 ::ffff:255.255.255.255 ::ffff:100.100.100.200
        fe80:: fe80::1 fe80::1%eth0 fe80::a9fe:a9fe febf::1 fec0::1 feff::1
        ff00:: ff01::1 ff02::1 ff02::fb ff05::1:3 ff0e::1 ff1e::1
        fd00:ec2::254 fd00:ec2::253 fd00:ec2::23 fd20:ce::254 fd00:c1::a9fe:a9fe fd00:42::42
        100::1 100:0:0:1::1 200::1 400::1 1fff::1 4000::1 5f00::1 8000::1 c000::1 e000::1 fe00::1
        2001:db8::1 2001:db8:ffff::1 3fff::1 3fff:fff::1 3ffe::1
        2001:1::1 2001:2::1 2001:3::1 2001:4:112::1 2001:10::1 2001:20::1 2001:30::1 2001:1ff::1
        2620:4f:8000::1
        ::2 ::127.0.0.1 ::7f00:1 ::169.254.169.254
        64:ff9b:: 64:ff9b::1 64:ff9b::127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::e000:1
        64:ff9b::a83f:8110 64:ff9b::6464:64c8 64:ff9b:0:1::1 64:ff9b:2::8.8.8.8
        64:ff9b:1:: 64:ff9b:1::1 64:ff9b:1::127.0.0.1 64:ff9b:1::a9fe:a9fe
        64:ff9b:1:7f00:0:100:: 64:ff9b:1:7f00:0:100:808:808 64:ff9b:1:a9fe:a9:fe00::
        64:ff9b:1:7f:0:1:: 64:ff9b:1:0:7f:0:100:0
        ::ffff:0:127.0.0.1 ::ffff:0:169.254.169.254
        2002:: 2002:7f00:1:: 2002:a9fe:a9fe:: 2002:a9fe:a9fe::1 2002:e000:1:: 2002:0:1::
        2001:: 2001:0:808:808::80ff:fffe 2001:0:7f00:1::f7f7:f7f7 2001:0:a9fe:a9fe::f7f7:f7f7
        2001:0:808:808::5601:5601
    """,
}

# hosts of URLs, in spellings that some resolver or parser reads as an address
HOSTS = {
    "public": """
        example.com EXAMPLE.com example.com. xn--bcher-kva.example bücher.example faß.example
        a_b.example -a.example 1a.example 0x.example 127.0.0.1.nip.io localhost.example
        8.8.8.8 8.8.8.8. 134744072 0x08080808 010.8.8.8 8.8.2056 ８.８.８.８ %38.8.8.8
        [2606:4700:4700::1111] [64:ff9b::808:808] [::ffff:8.8.8.8] [2606:4700:4700::1111%25eth0]
    """,
    "loopback": """
        127.0.0.1 127.0.0.1. 127.1 127.0.1 127.0.0.01 127.0.0.0x1 127.255.255.254
        2130706433 0x7f000001 0X7F000001 0x7f.1 0x7F.0x0.0x0.0x1 017700000001 0177.0.0.1 0177.1
        0x7f.0.1 127.0x1 00000000177.0.0.1
        １２７.０.０.１ 127。0。0。1 127．0．0．1 127｡0｡0｡1 ①②⑦.⓪.⓪.① １２７.1
        %31%32%37.0.0.1 127%2e0%2e0%2e1 127.0.0.1%2e %EF%BC%91%EF%BC%92%EF%BC%97.0.0.1
        [::1] [0:0:0:0:0:0:0:1] [0000::0001] [::1%25lo] [::1%lo] [::ffff:127.0.0.1] [::FFFF:7F00:1]
        [%3a%3a1]
    """,
    "private": """
        10.0.0.1 10.1 0xa.1 012.0.0.1 167772161 0x0a000001 172.16.1 0xac.0x10.1 192.168.257
        3232235777 0xc0a80101 0300.0250.1.1 192.168.1.1. １０.0.0.1 100.64.1 1681915905
        [fd00::1] [fc00::1%25eth1] [::ffff:10.0.0.1] [::ffff:c0a8:101] [64:ff9b::10.0.0.1]
    """,
    "never": """
        0 0.0.0.0 0.0 0x0 00 0.1 ⓪ 169.254.169.254 169.254.43518 2852039166 0xa9fea9fe
        0xA9.0xFE.0xA9.0xFE 0251.0376.0251.0376 025177524776 169.254.169.254. 169。254。169。254
        168.63.129.16 0xa83f8110 100.100.100.200 255.255.255.255 4294967295 0xffffffff
        224.1 3758096385 240.1 198.18.1 192.0.2.1 192.0.0.192
        [::] [0::0] [::%25lo] [fe80::1%25eth0] [fe80::1%1] [ff02::1] [fec0::1] [::127.0.0.1]
        [::ffff:169.254.169.254] [64:ff9b::127.0.0.1] [64:ff9b::a9fe:a9fe] [64:ff9b:1::7f00:1]
        [2002:7f00:1::] [2001:db8::1] [fd00:ec2::254] [2001:0:7f00:1::]
        256.1.1.1 1.2.3.4.5 1.2.3.256 4294967296 0x100000000 08.8.8.8 0x7f.0.0.08 127.0.0.0xg.0
        1..1 999 256.256.256.256 99999999999999999999 0x 1.0x 127.0.0.1..
    """,
}


def each(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(text, kind) for kind, texts in table.items() for text in texts.split()]


@pytest.mark.parametrize(("address", "kind"), each(ADDRESSES))
def test_an_address_is_judged_by_where_it_leads(address, kind):
    allowed_by = [policy for policy in POLICIES if refusal(address, policy) is None]

    assert allowed_by == ALLOWED_BY[kind]


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(("host", "kind"), each(HOSTS))
def test_a_host_is_judged_by_what_it_resolves_to(host, kind, scheme):
    assert [policy for policy in POLICIES if allows(f"{scheme}://{host}/mcp", policy)] == (
        ALLOWED_BY[kind]
    )


def allows(url: str, policy: Policy) -> bool:
    try:
        check_form(url, has_secret=False, policy=policy)
    except UnsafeURL as error:
        assert error.status == 400
        return False
    return True


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("", "malformed"),
        ("mcp", "malformed"),
        ("/mcp", "malformed"),
        ("//example.com/mcp", "malformed"),
        ("example.com:443", "malformed"),
        ("http:example.com", "malformed"),
        ("http:/example.com", "malformed"),
        ("://example.com", "malformed"),
        ("1http://example.com", "malformed"),
        ("javascript:alert(1)", "malformed"),
        ("ftp://example.com", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("gopher://example.com", "only http and https"),
        ("ws://example.com", "only http and https"),
        ("unix:///run/x.sock", "only http and https"),
        ("http+unix://x", "only http and https"),
        ("data://example.com", "only http and https"),
        ("http://", "no host"),
        ("http:///path", "no host"),
        ("http://:80/", "no host"),
        ("http://?x", "no host"),
        ("http://#x", "no host"),
        ("http://./", "no host"),
        ("http://[bad/", "malformed"),
        ("http://bad]/", "malformed"),
        ("http://[]/", "malformed"),
        ("http://[bad]/", "malformed"),
        ("http://[127.0.0.1]/", "malformed"),
        ("http://[v1.x]/", "malformed"),
        ("http://[::1", "malformed"),
        ("http://[::1]x/", "malformed"),
        ("http://[::1]:x/", "malformed"),
        ("http://x[::1]/", "malformed"),
        ("http://::1/", "malformed"),
        ("http://[::１]/", "malformed"),
        ("http://[%ff::1]/", "malformed"),
        ("http://[12345::]/", "malformed"),
        ("http://[1:2:3:4:5:6:7:8:9]/", "malformed"),
        ("http://example.com:port/", "malformed"),
        ("http://example.com:80:80/", "malformed"),
        ("http://example.com:-1/", "malformed"),
        ("http://example.com:+80/", "malformed"),
        ("http://example.com:８０/", "malformed"),
        ("http://example.com:123456/", "malformed"),
        ("http://example.com:0/", "port"),
        ("http://example.com:65536/", "port"),
        ("http://example.com:99999/", "port"),
        ("http://user@example.com/", "user information"),
        ("http://user:pw@example.com/", "user information"),
        ("http://@example.com/", "user information"),
        ("http://:@example.com/", "user information"),
        ("http://example.com@127.0.0.1/", "user information"),
        ("http://example.com:80@127.0.0.1/", "user information"),
        ("http://a@b@c/", "user information"),
        ("http://user%40example.com/", "malformed"),
        ("http://example.com%2f@x/", "user information"),
        ("http://exa%2fmple.com/", "malformed"),
        ("http://exa%3fmple.com/", "malformed"),
        ("http://exa%23mple.com/", "malformed"),
        ("http://exa%3ample.com/", "malformed"),
        ("http://exa%20mple.com/", "malformed"),
        ("http://exa%00mple.com/", "malformed"),
        ("http://exa%0d%0ample.com/", "malformed"),
        ("http://exa%ffmple.com/", "malformed"),
        ("http://exa%mple.com/", "malformed"),
        ("http://%25%33%31.example/", "malformed"),
        ("http://exa!mple.com/", "malformed"),
        ("http://exa$mple.com/", "malformed"),
        ("http://exa*mple.com/", "malformed"),
        ("http://exa<mple.com/", "malformed"),
        ("http://a..b/", "malformed"),
        ("http://.example.com/", "malformed"),
        ("http://example.com../", "malformed"),
        ("http://xn--\u00fc.example/", "malformed"),
        ("http://" + "a" * 64 + ".example/", "malformed"),
        ("http://" + "a." * 127 + "example/", "malformed"),
        ("http://" + "\u00fc" * 300 + "/", "malformed"),
        ("http://exam\u2100ple.com/", "malformed"),
        ("http://example.com\\@127.0.0.1/", "backslash"),
        ("http:\\\\example.com\\", "backslash"),
        ("http://example.com/a\\b", "backslash"),
        (" http://example.com", "white space"),
        ("http://example.com ", "white space"),
        ("http://exa mple.com/", "white space"),
        ("http://example.com/a b", "white space"),
        ("http://example.com/\t", "white space"),
        ("http://example.com/\n", "white space"),
        ("http://example.com/\r\nX-Evil: 1", "white space"),
        ("http://example.com/\x00", "white space"),
        ("http://exam\x00ple.com/", "white space"),
        ("http://example.com/\x7f", "white space"),
        ("http://example.com/\x85", "white space"),
        ("http://example.com/\xa0", "white space"),
        ("http://example.com/\u2028", "white space"),
        ("http://exam\u200bple.com/", "white space"),
        ("http://127.0.0\u00ad.1/", "white space"),
        ("http://example.com/\u202e", "white space"),
        ("http://example.com/\ud800", "white space"),
        ("http://example.com/" + "a" * 2030, "longer than 2048"),
        ("http://" + "a" * 1_000_000, "longer than 2048"),
    ],
)
def test_an_illegal_form_is_refused_under_every_policy(url, rule):
    for policy in POLICIES:
        with pytest.raises(UnsafeURL, match=rule):
            check_form(url, has_secret=False, policy=policy)


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("HTTP://Example.COM", "http://example.com/"),
        ("https://example.com:443/mcp", "https://example.com/mcp"),
        ("http://example.com:443/mcp", "http://example.com:443/mcp"),
        ("http://example.com:/", "http://example.com/"),
        ("http://example.com:00080/", "http://example.com/"),
        ("http://example.com?a=b", "http://example.com/?a=b"),
        ("http://example.com/a/../b?c=%2F&d=1+2#top", "http://example.com/a/../b?c=%2F&d=1+2"),
        ("http://example.com/ü?ß", "http://example.com/%C3%BC?%C3%9F"),
        ("http://bücher.example./", "http://xn--bcher-kva.example/"),
        ("http://faß.example/", "http://xn--fa-hia.example/"),
        ("http://0x7f.1:8080/x", "http://127.0.0.1:8080/x"),
        ("http://[0:0::1%25lo]:8080", "http://[::1]:8080/"),
        ("http://example.com/" + "a" * 2029, "http://example.com/" + "a" * 2029),
    ],
)
def test_the_canonical_form_is_what_is_asked_for(url, canonical):
    form = check_form(url, has_secret=False, policy=DEFAULT)

    assert form.url == canonical
    assert check_form(canonical, has_secret=False, policy=DEFAULT) == form


@pytest.mark.parametrize("host", ["example.com", "localhost", "127.0.0.1", "[::1]"])
def test_a_secret_goes_over_https_only_even_to_loopback(host):
    assert check_form(f"https://{host}/", has_secret=True, policy=OPEN)
    with pytest.raises(UnsafeURL, match="use https"):
        check_form(f"http://{host}/", has_secret=True, policy=OPEN)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@example.com/",
        "http://example.com/\nhunter2",
        "http://[hunter2]/",
        "ftp://example.com/?key=hunter2",
        "http://192.168.1.77/hunter2",
        "http://0xc0a8014d/?hunter2",
    ],
)
def test_a_refusal_shows_neither_secrets_nor_addresses(url):
    with pytest.raises(UnsafeURL) as caught:
        check_form(url, has_secret=False, policy=DEFAULT)

    assert caught.value.code == "unsafe_url"
    assert "hunter2" not in repr(caught.value)
    assert "192.168" not in str(caught.value)


def test_one_refused_address_refuses_the_name():
    assert answer_refusal(["8.8.8.8", "2606:4700::1"], STRICT) is None
    assert answer_refusal(["8.8.8.8", "10.0.0.1"], STRICT) == "a private address"
    assert answer_refusal(["127.0.0.1", "::1", "169.254.169.254"], OPEN) == (
        "a cloud metadata address"
    )


@pytest.mark.parametrize("text", ["", "example.com", "127.1", "2130706433", "1.2.3.4/32", "\u0661"])
def test_what_is_no_address_is_refused(text):
    assert refusal(text, OPEN) == "something that is no IP address"


@given(st.ip_addresses(v=4))
def test_no_ipv4_address_that_python_calls_local_is_public(address: IPv4Address):
    verdict = refusal(str(address), STRICT)

    assert verdict or address.is_global
    assert refusal(f"::ffff:{address}", STRICT) == verdict
    assert refusal(f"64:ff9b::{address}", STRICT) == verdict


@given(st.ip_addresses(v=6))
def test_no_ipv6_address_that_python_calls_local_is_public(address: IPv6Address):
    assert refusal(str(address), STRICT) or address.is_global or hides_ipv4(address)


def hides_ipv4(address: IPv6Address) -> bool:
    high = int(address) >> 80
    return address.ipv4_mapped is not None or high >> 32 == 0x2002 or high == 0x64FF9B0001


@given(st.text(max_size=60))
def test_any_text_at_all_gets_a_verdict(text):
    for url in (text, f"http://{text}", f"http://[{text}]/", f"http://example.com:{text}"):
        try:
            form = check_form(url, has_secret=False, policy=STRICT)
        except UnsafeURL:
            continue
        assert form.url.isascii()
        assert not form.literal or ip_address(form.host)
