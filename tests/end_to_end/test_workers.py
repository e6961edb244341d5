"""Several workers: what changes for one changes for all, and a stop or a death loses nothing."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import psutil  # type: ignore[import-untyped]
import pytest
from django.conf import settings

from tests.end_to_end.asking import Http
from tests.end_to_end.deployment import Deployment
from tests.end_to_end.processes import child, free_port, run, until
from tests.end_to_end.workers import STOP_SECONDS, Workers, workers
from tests.orazaka.test_metrics import samples
from tests.wires.checker import StreamChecker
from tests.wires.strict import StrictProvider

pytestmark = pytest.mark.services
needs_sharing = pytest.mark.skipif(
    settings.DATABASES["default"]["ENGINE"].endswith("sqlite3")
    or "locmem" in settings.CACHES["default"]["BACKEND"],
    reason="several workers need PostgreSQL and Redis",
)
EFFECTIVE_SECONDS = 1.0  # design, decision 5
STREAMS = 50


@pytest.fixture
def two(deployment: Deployment) -> Iterator[Workers]:
    with workers(deployment, 2) as server:
        yield server


def chat(client: httpx.Client, script: str, **headers: str) -> httpx.Response:
    body = {"model": "openai:strict-1", "messages": [{"role": "user", "content": script}]}
    return client.post("/v1/chat/completions", json=body, headers=headers)


@needs_sharing
def test_a_revoked_key_opens_nothing_at_any_worker_a_second_later(two: Workers) -> None:
    key = two.deployment.new_key("revoked")
    headers = {"Authorization": f"Bearer {key}"}
    with two.each() as clients:
        for client in clients.values():
            assert client.get("/v1/models", headers=headers).status_code == 200
        changed = two.deployment.database.change(
            "UPDATE orazaka_apikey SET revoked_at = now() WHERE user_id = "
            "(SELECT id FROM auth_user WHERE username = ?)",
            "revoked",
        )
        assert changed == 1
        until(
            lambda: all(
                client.get("/v1/models", headers=headers).status_code == 401
                for client in clients.values()
            ),
            EFFECTIVE_SECONDS,
        )


@needs_sharing
def test_a_changed_provider_is_the_one_that_every_worker_asks(two: Workers) -> None:
    with StrictProvider() as one, StrictProvider() as other, two.each() as clients:
        two.deployment.manage(
            "shell",
            "--command",
            "from gateway.models import Provider; "
            f"Provider.objects.create(name='moving', chat_url='{one.url}/v1', api_key='k')",
        )

        def asked(provider: StrictProvider) -> bool:
            for client in clients.values():
                before = len(provider.bodies)
                body = {"model": "moving:strict-1", "messages": [{"role": "user", "content": "hi"}]}
                client.post("/v1/chat/completions", json=body)
                if len(provider.bodies) == before:
                    return False
            return True

        until(lambda: asked(one), EFFECTIVE_SECONDS)
        two.deployment.database.change(
            "UPDATE gateway_provider SET chat_url = ? WHERE name = ?", f"{other.url}/v1", "moving"
        )
        until(lambda: asked(other), EFFECTIVE_SECONDS)


def streamed(url: str, key: str, script: str, name: str, begun: threading.Event) -> StreamChecker:
    """Read one streamed turn to its end, strictly."""
    body = {
        "model": "openai:strict-1",
        "stream": True,
        "messages": [{"role": "user", "content": script}],
    }
    headers = {"Authorization": f"Bearer {key}", "X-Request-ID": name}
    checker = StreamChecker()
    with (
        httpx.Client(trust_env=False, timeout=60) as client,
        client.stream("POST", f"{url}/v1/chat/completions", json=body, headers=headers) as response,
    ):
        assert response.status_code == 200
        for piece in response.iter_raw():
            checker.feed(piece)
            begun.set()
    return checker


def stopped_under_streams(server: Workers, script: str, label: str) -> list[StreamChecker]:
    """SIGTERM while STREAMS turns run: what each client had in the end. The exit is clean."""
    begun = [threading.Event() for _ in range(STREAMS)]
    with ThreadPoolExecutor(STREAMS) as pool:
        reading = [
            pool.submit(streamed, server.url, server.key, script, f"{label}-{n}", begun[n])
            for n in range(STREAMS)
        ]
        assert all(event.wait(30) for event in begun)
        asked_at = time.monotonic()
        server.process.signal(signal.SIGTERM)
        assert server.process.ended(STOP_SECONDS) == 0, server.process.said
        assert time.monotonic() - asked_at < STOP_SECONDS
        return [future.result(timeout=10) for future in reading]


@needs_sharing
def test_a_stop_lets_every_stream_end_and_keeps_every_record(two: Workers) -> None:
    checkers = stopped_under_streams(two, "TOKENS 30\nGAP 0.1", "drained")
    replies = [checker.close() for checker in checkers]  # which demands [DONE]
    assert {reply.finish_reason for reply in replies} == {"stop"}
    assert {len(reply.text.split()) for reply in replies} == {30}
    rows = two.deployment.database.rows(
        "SELECT status FROM gateway_turn WHERE request_id LIKE ?", "drained-%"
    )
    assert [row["status"] for row in rows] == ["ok"] * STREAMS


@needs_sharing
def test_a_turn_that_outlasts_the_drain_is_ended_in_words(deployment: Deployment) -> None:
    with workers(deployment, 2, ORAZAKA_DRAIN_SECONDS="1") as server:
        checkers = stopped_under_streams(server, "TOKENS 600\nGAP 0.1", "cut")
        replies = [checker.close() for checker in checkers]
    assert {reply.error["code"] for reply in replies} == {"stopping"}
    rows = deployment.database.rows(
        "SELECT status, error_code FROM gateway_turn WHERE request_id LIKE ?", "cut-%"
    )
    assert len(rows) == STREAMS
    assert {(row["status"], row["error_code"]) for row in rows} == {("cancelled", "stopping")}


@needs_sharing
def test_a_worker_that_is_killed_is_replaced_while_the_other_serves(two: Workers) -> None:
    before = two.pids
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(victim) or victim not in two.pids)
    with two.http() as client:
        assert chat(client, "SAY still here").json()["choices"][0]["message"]["content"]
    until(lambda: len(two.pids - {victim}) == 2, 60, shown=lambda: two.process.said)
    with two.each() as clients:
        assert clients.keys() & before == before - {victim}
        for client in clients.values():
            assert chat(client, "SAY hello").status_code == 200
    assert two.process.stop(STOP_SECONDS) == 0


@needs_sharing
def test_a_reload_gives_no_error_to_who_comes_again_when_told(two: Workers) -> None:
    before, over, statuses = two.pids, threading.Event(), []

    def keep_asking() -> None:
        while not over.is_set():
            with two.http() as client:
                answer = chat(client, "SAY hello")
            if answer.status_code == 503:  # a worker that is leaving says when to come again
                over.wait(float(answer.headers["Retry-After"]))
            else:
                statuses.append(answer.status_code)

    begun = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        script = "TOKENS 30\nGAP 0.1"
        reading = pool.submit(streamed, two.url, two.key, script, "reloaded", begun)
        asking = pool.submit(keep_asking)
        assert begun.wait(10)
        try:
            two.process.signal(signal.SIGHUP)
            until(lambda: len(two.pids - before) == 2, 60, shown=lambda: two.process.said)
        finally:
            over.set()
        asking.result(timeout=30)
        assert reading.result(timeout=30).close().finish_reason == "stop"
    assert statuses
    assert set(statuses) == {200}
    assert two.process.stop(STOP_SECONDS) == 0


@needs_sharing
def test_a_stop_refuses_whoever_comes_after_it(two: Workers) -> None:
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        script = "TOKENS 20\nGAP 0.2"
        reading = pool.submit(streamed, two.url, two.key, script, "last", begun)
        assert begun.wait(10)
        two.process.signal(signal.SIGTERM)
        until(lambda: not two.ready, 3)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{two.url}/healthz", trust_env=False)
        assert reading.result(timeout=30).close().finish_reason == "stop"
    assert two.process.ended(STOP_SECONDS) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_worker_ends_cleanly_too(deployment: Deployment, number: signal.Signals) -> None:
    port = free_port()
    command = [sys.executable, "manage.py", "serve", "--port", str(port)]
    log = deployment.folder / f"alone-{number}.log"
    with child(command, log=log, env=deployment.env) as process:
        server = Workers(f"http://127.0.0.1:{port}", process, deployment)
        until(lambda: server.ready, 60, shown=lambda: process.said)
        with server.http() as client:
            answer = Http(client)("SAY hello")
        process.signal(number)
        assert process.ended(STOP_SECONDS) == 0
    assert answer.reply.text == "hello"
    assert all(line.startswith("{") for line in process.said.splitlines()), "only JSON lines"
    assert deployment.turn(answer.request_id)["status"] == "ok"


def test_two_workers_do_not_start_on_sqlite_and_local_memory(deployment: Deployment) -> None:
    env = {**deployment.env, "DATABASE_URL": "sqlite:///x.sqlite3", "CACHE_URL": "locmemcache://"}
    ran = run([sys.executable, "manage.py", "serve", "--workers", "2", "--port", "0"], env=env)
    assert ran.returncode == 1
    assert "Several workers or hosts can't share an SQLite database" in ran.stderr
    assert "orazaka.E004" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_port_that_is_taken_stops_the_start(running: Workers) -> None:
    port = running.url.rpartition(":")[2]
    ran = run([sys.executable, "manage.py", "serve", "--port", port], env=running.deployment.env)
    assert ran.returncode != 0
    assert "ddress already in use" in ran.stderr
    assert "Traceback" not in ran.stderr


@needs_sharing
def test_metrics_add_up_what_the_workers_did_and_never_fall(deployment: Deployment) -> None:
    before = set(deployment.folder.glob("orazaka-metrics-*"))
    with workers(deployment, 2, ORAZAKA_METRICS_TOKEN="only-for-metrics") as server:
        with server.each() as clients:
            for client in clients.values():
                for _ in range(3):
                    assert chat(client, "SAY hello").status_code == 200
            for client in clients.values():  # whichever is asked
                until(partial(all_counted, client), 20, shown=partial(counted, client))
            victim = min(clients)
            os.kill(victim, signal.SIGKILL)
        until(lambda: len(server.pids - {victim}) == 2, 60, shown=lambda: server.process.said)
        with server.http() as client:
            until(partial(all_counted, client), 60, shown=partial(counted, client))
            assert set(deployment.folder.glob("orazaka-metrics-*")) > before
            assert server.process.stop(STOP_SECONDS) == 0
    left = set(deployment.folder.glob("orazaka-metrics-*"))
    assert left == before, "a run that is stopped leaves nothing behind"


def counted(client: httpx.Client) -> tuple[float, float]:
    """How many workers live, and the turns that were counted."""
    headers = {"Authorization": "Bearer only-for-metrics"}
    try:
        values = samples(client.get("/metrics", headers=headers).raise_for_status().text)
    except httpx.TransportError:
        return 0, 0  # the worker at the other end was killed
    turns = sum(value for name, value in values.items() if name.startswith("orazaka_turns_total"))
    return values["orazaka_workers"], turns


def all_counted(client: httpx.Client) -> bool:
    """Whether two workers live, and the six turns of the test are counted."""
    return counted(client) == (2, 6)
