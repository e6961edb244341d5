"""The two HTTP sessions on real sockets: what the guard lets through and what it stops."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.core.exceptions import ImproperlyConfigured

from orazaka import guard
from orazaka.http import open_http
from orazaka.outbound import Outbound, Redirected, explain, refused
from orazaka.urlsafety import Policy, UnresolvedHost, UnsafeURL
from tests.orazaka.http_server import serve, serve_bytes

STRICT = Policy(allow_loopback=False)


class Names:
    """A name server: each name's answers, one after the other, the last one for ever."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self.answers = {name.replace("_", "."): list(lists) for name, lists in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        lists = self.answers.get(host, [[]])
        return lists.pop(0) if len(lists) > 1 else lists[0]


@asynccontextmanager
async def outbound(policy: Policy | None = None, **options) -> AsyncIterator[Outbound]:
    async with asyncio.timeout(20), Outbound(policy=policy or Policy(), **options) as opened:
        yield opened


async def hello(request: web.BaseRequest) -> web.Response:
    return web.Response(text="hello")


async def refusal_of(outbound: Outbound, url: str) -> UnsafeURL:
    """How the guard refuses a connect; fails if it does not."""
    with pytest.raises(aiohttp.ClientError) as caught:
        await outbound.guarded.get(url)
    unsafe = refused(caught.value)
    assert unsafe, f"{url}: {caught.value!r}"
    return unsafe


# --- names ----------------------------------------------------------------------------------------


async def test_a_name_is_looked_up_once_for_the_check_and_the_connect():
    names = Names(mcp_test=[["127.0.0.1"]])
    async with serve(hello) as server, outbound(lookup=names) as out:
        url = f"http://MCP.test.:{server.port}/"
        form = await out.check(url, has_secret=False)
        async with out.guarded.get(form.url) as reply:
            assert await reply.text() == "hello"

    assert names.asked == ["mcp.test"]
    assert server.asked[0].headers["host"] == f"mcp.test:{server.port}"


async def test_a_name_that_turns_to_loopback_after_the_check_is_refused_at_the_connect():
    names = Names(rebind_test=[["93.184.216.34"], ["127.0.0.1"]])
    async with serve(hello) as server, outbound(STRICT, lookup=names, keep=0) as out:
        await out.check(f"http://rebind.test:{server.port}/", has_secret=False)
        unsafe = await refusal_of(out, f"http://rebind.test:{server.port}/")

    assert "loopback" in unsafe.message
    assert not server.connections


async def test_a_kept_answer_is_what_is_dialled_although_the_name_has_turned():
    names = Names(rebind_test=[["127.0.0.1"], ["169.254.169.254"]])
    async with serve(hello) as server, outbound(lookup=names) as out:
        await out.check(f"http://rebind.test:{server.port}/", has_secret=False)
        async with out.guarded.get(f"http://rebind.test:{server.port}/") as reply:
            assert reply.status == 200


async def test_no_answer_is_kept_longer_than_said():
    names = Names(mcp_test=[["127.0.0.1"]])
    async with serve(hello) as server, outbound(lookup=names, keep=0) as out:
        for _ in range(2):
            url, headers = f"http://mcp.test:{server.port}/", {"Connection": "close"}
            async with out.guarded.get(url, headers=headers) as reply:
                assert reply.status == 200

    assert names.asked == ["mcp.test"] * 2


async def test_every_address_of_a_name_must_be_allowed():
    names = Names(mixed_test=[["127.0.0.1", "10.0.0.1"]])
    async with serve(hello) as server, outbound(lookup=names) as out:
        url = f"http://mixed.test:{server.port}/"
        with pytest.raises(UnsafeURL, match="private"):
            await out.check(url, has_secret=False)
        assert "private" in (await refusal_of(out, url)).message

    assert not server.connections


async def test_a_name_without_an_address_is_told_from_a_refused_one():
    async with outbound(lookup=Names()) as out:
        with pytest.raises(UnresolvedHost) as caught:
            await out.check("https://nowhere.test/", has_secret=True)
        assert isinstance(await refusal_of(out, "http://nowhere.test/"), UnresolvedHost)

    assert (caught.value.status, caught.value.code) == (400, "unresolved_host")


async def test_a_lookup_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(guard, "LOOKUP_SECONDS", 0.02)

    async def hang(host: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    async with outbound(lookup=hang) as out:
        with pytest.raises(UnresolvedHost):
            await out.check("https://slow.test/", has_secret=False)


async def test_callers_at_once_share_a_lookup_and_one_who_leaves_spoils_nothing():
    asked, answer = [], asyncio.Event()

    async def lookup(host: str) -> Sequence[str]:
        asked.append(host)
        await answer.wait()
        return ["8.8.8.8"]

    async with outbound(lookup=lookup) as out:
        first, *others = [
            asyncio.ensure_future(out.check("https://mcp.test/", has_secret=False))
            for _ in range(5)
        ]
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        answer.set()
        assert len(await asyncio.gather(*others)) == 4

    assert asked == ["mcp.test"]
    assert first.cancelled()


async def test_a_failed_lookup_is_not_kept():
    names = Names(new_test=[[], ["8.8.8.8"]])
    async with outbound(lookup=names) as out:
        with pytest.raises(UnresolvedHost):
            await out.check("https://new.test/", has_secret=False)
        assert await out.check("https://new.test/", has_secret=False)


async def test_kept_answers_are_bounded(monkeypatch):
    monkeypatch.setattr(guard, "_MAX_KEPT", 10)
    async with outbound(lookup=Names(**{f"n{n}": [["8.8.8.8"]] for n in range(30)})) as out:
        for n in range(30):
            await out.check(f"https://n{n}/", has_secret=False)
        assert len(out._names._kept) == 10


async def test_the_system_resolver_is_judged_too():
    async with serve(hello) as server, outbound() as open_, outbound(STRICT) as strict:
        url = f"http://localhost:{server.port}/"
        assert (await open_.check(url, has_secret=False)).host == "localhost"
        with pytest.raises(UnsafeURL, match="loopback"):
            await strict.check(url, has_secret=False)
        with pytest.raises(UnresolvedHost):
            await open_.check("https://no-such-name.invalid/", has_secret=False)


# --- the socket -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost", "0x7f.1"]
)
async def test_the_socket_is_the_last_gate_without_any_check(host):
    async with serve(hello) as server, outbound(STRICT) as out:
        unsafe = await refusal_of(out, f"http://{host}:{server.port}/")

    assert "loopback" in unsafe.message
    assert not server.connections


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "0.0.0.0", "10.0.0.1", "100.64.0.1", "[fe80::1]", "[::]", "[64:ff9b::1]"],
)
async def test_local_addresses_are_refused_at_once_by_default(host):
    async with outbound() as out:
        unsafe = await refusal_of(out, f"http://{host}/")

    assert host.strip("[]") not in str(unsafe)


@pytest.mark.parametrize("host", ["127.1", "2130706433", "017700000001", "0177.0.0.1"])
async def test_a_number_for_an_address_never_gets_round_the_guard(host):
    async with serve(hello) as server, outbound(STRICT) as out:
        with pytest.raises(aiohttp.ClientError):
            await out.guarded.get(f"http://{host}:{server.port}/")

    assert not server.connections


async def test_what_is_merely_unreachable_is_not_a_refusal():
    async with outbound() as out:
        with pytest.raises(aiohttp.ClientConnectorError) as caught:
            await out.guarded.get("http://127.0.0.1:1/")

    assert refused(caught.value) is None
    assert refused(ExceptionGroup("several", [ValueError(), caught.value])) is None
    assert explain(caught.value) == "it can't be reached: Connection refused"


async def test_a_refusal_is_found_inside_groups_and_causes():
    async with outbound(STRICT) as out:
        with pytest.raises(aiohttp.ClientError) as caught:
            await out.guarded.get("http://127.0.0.1/")

    wrapped = RuntimeError()
    wrapped.__cause__ = ExceptionGroup("outer", [ExceptionGroup("inner", [caught.value])])
    assert isinstance(refused(wrapped), UnsafeURL)
    assert explain(caught.value) == "the URL leads to a loopback address, which is refused"


async def test_operators_urls_are_not_guarded():
    async with (
        serve(hello) as server,
        outbound(STRICT) as out,
        out.trusted.get(server.url) as reply,
    ):
        assert await reply.text() == "hello"


# --- redirects, cookies, proxies ------------------------------------------------------------------


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
@pytest.mark.parametrize("session", ["guarded", "trusted"])
async def test_a_redirect_is_an_error_that_says_so(session, status):
    async with serve(hello) as target:

        async def redirect(request: web.BaseRequest) -> web.Response:
            return web.Response(status=status, headers={"Location": target.url})

        async with serve(redirect) as server, outbound() as out:
            for allow in (True, False):
                with pytest.raises(Redirected, match="redirects are not followed") as caught:
                    await getattr(out, session).post(
                        server.url, data=b"x", headers={"X": "secret"}, allow_redirects=allow
                    )
                assert caught.value.status == status
                assert explain(caught.value).startswith("it answered with a redirect")

    assert not target.connections
    assert "secret" not in repr(caught.value)


@pytest.mark.parametrize("session", ["guarded", "trusted"])
async def test_cookies_are_not_kept(session):
    async def bake(request: web.BaseRequest) -> web.Response:
        return web.Response(headers={"Set-Cookie": "session=1; Path=/"})

    async with serve(bake) as server, outbound() as out:
        for _ in range(2):
            async with getattr(out, session).get(server.url):
                pass

    assert "cookie" not in server.asked[1].headers


@pytest.mark.parametrize("session", ["guarded", "trusted"])
async def test_proxies_of_the_environment_are_ignored(session, monkeypatch):
    async with serve(hello) as proxy, serve(hello) as server, outbound() as out:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        async with getattr(out, session).get(server.url) as reply:
            assert reply.status == 200

    assert not proxy.connections


async def test_operators_urls_go_through_the_operators_proxy_and_callers_urls_do_not():
    async with serve(hello) as proxy, serve(hello) as server:
        names = Names(mcp_test=[["127.0.0.1"]])
        url = f"http://op:pass@127.0.0.1:{proxy.port}"
        async with outbound(proxy=url, lookup=names) as out:
            async with out.trusted.get("http://models.test/v1/models") as reply:
                assert reply.status == 200
            async with out.guarded.get(f"http://mcp.test:{server.port}/") as reply:
                assert reply.status == 200

    assert [asked.target for asked in proxy.asked] == ["http://models.test/v1/models"]
    assert proxy.asked[0].headers["proxy-authorization"].startswith("Basic ")
    assert len(server.asked) == 1
    assert "proxy-authorization" not in server.asked[0].headers


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_this_hosts_own_servers_are_reached_past_the_proxy(host):
    async with (
        serve(hello) as proxy,
        serve(hello) as server,
        outbound(proxy=f"http://127.0.0.1:{proxy.port}") as out,
        out.trusted.get(f"http://{host}:{server.port}/") as reply,
    ):
        assert reply.status == 200

    assert not proxy.connections


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for mcp.test alone: its file, and the key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mcp.test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(subject_name=name, issuer_name=name, public_key=key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("mcp.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "mcp.test.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return str(path)


@pytest.fixture
def tls(certificate):
    """A server's TLS that remembers, in `names`, which name each client asked for."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    context.names = names = []
    context.sni_callback = lambda _, name, __: names.append(name)
    return context


async def test_tls_asks_for_and_checks_the_name_while_the_address_is_dialled(certificate, tls):
    trust = ssl.create_default_context(cafile=certificate)
    names = Names(mcp_test=[["127.0.0.1"]], other_test=[["127.0.0.1"]])
    async with serve(hello, tls=tls) as server, outbound(lookup=names) as out:
        async with out.guarded.get(f"https://mcp.test:{server.port}/", ssl=trust) as reply:
            assert reply.status == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError) as caught:
            await out.guarded.get(f"https://other.test:{server.port}/", ssl=trust)

    assert tls.names == ["mcp.test", "other.test"]
    assert explain(caught.value) == (
        "its TLS certificate is not accepted:"
        " Hostname mismatch, certificate is not valid for 'other.test'"
    )


async def test_an_unknown_authority_is_not_accepted(tls):
    names = Names(mcp_test=[["127.0.0.1"]])
    async with serve(hello, tls=tls) as server, outbound(lookup=names) as out:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await out.guarded.get(f"https://mcp.test:{server.port}/")


async def test_a_ca_bundle_is_for_operators_urls_and_adds_to_the_systems(certificate, tls):
    async with serve(hello, tls=tls) as server, outbound(ca_bundle=certificate) as out:
        url = f"https://127.0.0.1:{server.port}/"
        async with out.trusted.get(url, server_hostname="mcp.test") as reply:
            assert reply.status == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await out.guarded.get(url, server_hostname="mcp.test")
        assert len(out._certificates.get_ca_certs()) > 1


async def test_a_ca_bundle_that_can_not_be_read_stops_the_start(settings, tmp_path):
    for bundle in (tmp_path / "missing.pem", tmp_path):
        settings.ORAZAKA_CA_BUNDLE = str(bundle)
        with pytest.raises(ImproperlyConfigured, match="ORAZAKA_CA_BUNDLE"):
            async with open_http(None):
                pass


# --- settings and words ---------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [True, False])
async def test_the_settings_say_what_is_allowed(settings, allowed):
    settings.OTARI_MCP_ALLOW_LOOPBACK = settings.OTARI_MCP_ALLOW_PRIVATE_HOSTS = allowed
    async with open_http(None) as out:
        for url in ("http://127.0.0.1/", "http://192.168.0.1/"):
            if allowed:
                assert await out.check(url, has_secret=False)
            else:
                with pytest.raises(UnsafeURL):
                    await out.check(url, has_secret=False)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ([], "it closed the connection without an answer"),
        ([b"SSH-2.0-OpenSSH\r\n"], "its answer is not valid HTTP"),
        ([b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000 + b"\r\n\r\n"], "its answer is not valid HTTP"),
        (
            [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b"half"],
            "the connection broke in the middle of its answer",
        ),
    ],
)
async def test_a_failure_is_put_in_words_without_address_or_secret(written, words):
    async with serve_bytes(*written) as server, outbound() as out:
        with pytest.raises(aiohttp.ClientError) as caught:
            headers = {"Authorization": "Bearer hunter2"}
            async with out.guarded.post(server.url, headers=headers) as reply:
                await reply.read()

    assert explain(caught.value) == words


async def test_tls_with_what_speaks_none_is_put_in_words():
    async with serve(hello) as server, outbound() as out:
        with pytest.raises(aiohttp.ClientSSLError) as caught:
            await out.guarded.get(f"https://127.0.0.1:{server.port}/")

    assert explain(caught.value) == "TLS with it failed"


async def test_a_name_of_the_operators_that_does_not_resolve_is_put_in_words():
    async with outbound() as out:
        with pytest.raises(aiohttp.ClientConnectorDNSError) as caught:
            await out.trusted.get("http://no-such-name.invalid/")

    assert explain(caught.value) == "its name does not resolve"


async def test_silence_is_put_in_words():
    limit = aiohttp.ClientTimeout(sock_read=0.02)
    async with serve_bytes(hold=True) as server, outbound() as out:
        with pytest.raises(TimeoutError) as caught:
            await out.guarded.get(server.url, timeout=limit)

    assert explain(caught.value) == "it sent nothing for too long"
