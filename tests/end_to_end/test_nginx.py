"""The nginx site of docs/deploying.md, in a real nginx before a real server."""

import os
import re
import shutil
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.deployment import Deployment
from tests.end_to_end.processes import ROOT, child, done, free_port, until
from tests.wires.checker import StreamChecker
from tests.wires.strict import StrictProvider

pytestmark = pytest.mark.services
HOST = "llm.example.com"
NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
MAIN = """
{user}
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {site}
}}
"""


@dataclass
class Site:
    """Where nginx listens, and a key for the deployment behind it."""

    http_port: int
    https_port: int
    key: str
    certificate: Path

    def client(self) -> httpx.Client:
        """A client that trusts the site's certificate only."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        context.check_hostname = False  # it is the site's, and this is loopback
        headers = {"Host": HOST, "Authorization": f"Bearer {self.key}"}
        base = f"https://127.0.0.1:{self.https_port}"
        return httpx.Client(
            base_url=base, headers=headers, verify=context, trust_env=False, timeout=30
        )


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed one, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    named = ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"]
    done([*command, *named, "-out", str(cert), "-keyout", str(key)])
    return cert, key


def documented(changes: dict[str, str]) -> str:
    """The site as the documentation has it, on this test's ports and files."""
    found = re.search(r"```nginx\n(.*?)```", (ROOT / "docs/deploying.md").read_text(), re.DOTALL)
    assert found
    site = found[1]
    for old, new in changes.items():
        assert site.count(old) == 1, old
        site = site.replace(old, new)
    return site


@pytest.fixture(scope="module")
def site(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    assert NGINX, "nginx is not installed: apt-get install nginx-light"
    folder = tmp_path_factory.mktemp("nginx")
    cert, key = certificate(folder)
    http_port, https_port = free_port(), free_port()
    public = {"ORAZAKA_PUBLIC_URL": f"https://{HOST}", "ALLOWED_HOSTS": HOST}
    with deployment.serve(**public) as server:
        text = documented(
            {
                "listen 80;": f"listen 127.0.0.1:{http_port};",
                "listen 443 ssl": f"listen 127.0.0.1:{https_port} ssl",
                "server 127.0.0.1:8000;": f"server {server.url.removeprefix('http://')};",
                f"/etc/letsencrypt/live/{HOST}/fullchain.pem": str(cert),
                f"/etc/letsencrypt/live/{HOST}/privkey.pem": str(key),
            }
        )
        user = "user root;" if os.geteuid() == 0 else ""
        conf = folder / "nginx.conf"
        conf.write_text(MAIN.format(user=user, folder=folder, site=text))
        log = folder / "log"
        with child([NGINX, "-c", str(conf), "-e", "stderr"], log=log) as nginx:
            here = Site(http_port, https_port, deployment.key, cert)
            until(lambda: answers(here), 20, shown=lambda: nginx.said)
            yield here
            assert nginx.stop() == 0
        assert "[emerg]" not in log.read_text()
        assert "[error]" not in log.read_text()


def answers(site: Site) -> bool:
    try:
        with site.client() as client:
            return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def asked(script: str, **more: object) -> dict[str, object]:
    messages = [{"role": "user", "content": script}]
    return {"model": "openai:strict-1", "messages": messages, **more}


def test_events_arrive_one_by_one(site: Site, provider: StrictProvider) -> None:
    body = asked("TOKENS 8\nGAP 0.15", stream=True)
    checker, unfinished = StreamChecker(), 0
    with site.client() as client, client.stream("POST", "/v1/chat/completions", json=body) as got:
        assert got.headers["content-type"] == "text/event-stream"
        for piece in got.iter_raw():
            checker.feed(piece)
            assert piece.count(b"data: ") <= 3, "several events were held back"
            unfinished += provider.in_flight  # the model is still writing
    assert checker.close().text.split() == [f"t{n}" for n in range(8)]
    assert unfinished >= 6


def test_a_client_that_leaves_is_left_by_the_provider_too(
    site: Site, provider: StrictProvider
) -> None:
    before = provider.abandoned
    body = asked("TOKENS 500\nGAP 0.05", stream=True)
    with site.client() as client, client.stream("POST", "/v1/chat/completions", json=body) as got:
        next(got.iter_raw())
    provider.wait_until(lambda: provider.abandoned == before + 1, timeout=10)


def test_a_plain_turn_has_its_headers(site: Site, provider: StrictProvider) -> None:
    with site.client() as client:
        got = client.post(
            "/v1/chat/completions", json=asked("SAY hello"), headers={"X-Request-ID": "through"}
        )
    assert got.json()["choices"][0]["message"]["content"] == "hello"
    assert got.headers["x-request-id"] == "through"


def test_a_body_that_is_too_large_is_refused_in_the_gateways_words(site: Site) -> None:
    with site.client() as client:
        got = client.post("/v1/chat/completions", content=b" " * (21 * 2**20))
    assert got.status_code == 413
    assert got.json()["error"]["code"] == "body_too_large"


def test_http_is_sent_to_https(site: Site) -> None:
    url = f"http://127.0.0.1:{site.http_port}/admin/"
    got = httpx.get(url, headers={"Host": HOST}, trust_env=False)
    assert (got.status_code, got.headers["location"]) == (301, f"https://{HOST}/admin/")


def test_the_admin_knows_that_it_is_behind_https(site: Site) -> None:
    with site.client() as client:
        got = client.get("/admin/login/")
    assert got.status_code == 200
    assert "max-age=31536000" in got.headers["strict-transport-security"]
    assert "Secure" in got.headers["set-cookie"]
