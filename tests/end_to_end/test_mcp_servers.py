"""How the gateway speaks to real MCP servers, and what becomes of a turn whose server is broken."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.end_to_end.asking import WAYS
from tests.end_to_end.processes import child

SUM = 'CALL add {"a": 2, "b": 3}\nTHEN\nSAY It is five.'
EVENTS, JSON = "text/event-stream", "application/json"

Answer = Callable[[BaseHTTPRequestHandler], None]


# kind, version spoken, whether calls carry a session, how they are answered
@pytest.mark.parametrize(
    ("kind", "version", "session", "answered"),
    [
        ("session", "2025-11-25", True, EVENTS),
        ("stateless", "2025-11-25", False, JSON),
        ("modern", "2026-07-28", False, JSON),
        ("sse", "", False, ""),  # the answer comes on another stream
    ],
)
def test_each_server_is_spoken_to_in_its_own_way(
    ask, provider, mcp, kind, version, session, answered
):
    assert ask(SUM, mcp_servers=[mcp[kind].inline()]).reply.text == "It is five."
    call = [request for request in mcp[kind].seen if request.get("rpc") == "tools/call"][-1]
    assert (call["version"], call["session"]) == (version, session)
    assert call["kind"].startswith(answered), call


@pytest.mark.parametrize("kind", ["session", "stateless", "modern", "sse"])
def test_a_kept_list_and_session_cost_one_request_a_call(ask, provider, mcp, kind):
    fresh = mcp[kind].fresh()
    ask(SUM, mcp_servers=[fresh])
    before = len(mcp[kind].seen)
    ask(SUM, mcp_servers=[fresh])
    assert [request.get("rpc") for request in mcp[kind].seen[before:]] == ["tools/call"]


def test_a_list_is_read_to_its_last_page_once(ask, provider, mcp):
    before, fresh = len(mcp["pages"].seen), mcp["pages"].fresh(allowed_tools=["tool_43"])
    for _ in range(2):
        ask("SAY Hello.", mcp_servers=[fresh])
    asked = [request.get("rpc") for request in mcp["pages"].seen[before:]]
    assert asked.count("tools/list") == 3
    [tool] = provider.bodies[-1]["tools"]
    assert tool["function"]["name"] == "tool_43"


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """A web server that answers everything in one way; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer(self)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()


def html(request: BaseHTTPRequestHandler) -> None:
    page = b"<!doctype html><title>Welcome</title>"
    request.send_response(200)
    request.send_header("Content-Type", "text/html")
    request.send_header("Content-Length", str(len(page)))
    request.end_headers()
    request.wfile.write(page)


def redirect(request: BaseHTTPRequestHandler) -> None:
    request.send_response(307)
    request.send_header("Location", "http://127.0.0.1:9/elsewhere")
    request.send_header("Content-Length", "0")
    request.end_headers()


def unauthorized(request: BaseHTTPRequestHandler) -> None:
    request.send_response(401)
    request.send_header("WWW-Authenticate", "Bearer")
    request.send_header("Content-Length", "0")
    request.end_headers()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("answer", "word"), [(html, "html"), (redirect, "redirect"), (unauthorized, "401")]
)
def test_a_server_that_can_not_be_used_is_a_502_that_names_it(
    client, deployment, provider, way, answer, word
):
    with serving(answer) as url:
        got = client("SAY Hello.", way=way, mcp_servers=[{"name": "odd-one", "url": url}])
    assert got.status == 502
    assert "odd-one" in got.reply.error["message"]
    assert word in got.reply.error["message"].lower()
    assert provider.bodies == [], "the model is not called"
    record = deployment.turn(got.request_id)
    assert (record["status"], record["rounds"]) == ("error", 0)
    assert [(step["kind"], step["outcome"]) for step in record["steps"]] == [("server", "failed")]


def test_a_server_that_never_answers_is_a_504(silence, deployment):
    answer = silence.result(30)
    assert answer.status == 504
    assert "silent" in answer.reply.error["message"]
    record = deployment.turn(answer.request_id)
    assert (record["status"], record["rounds"]) == ("error", 0)
    [step] = record["steps"]
    assert (step["kind"], step["outcome"]) == ("server", "late")
    assert step["duration_ms"] < 16_000


@pytest.mark.parametrize("way", ["plain", "streamed"])
def test_a_server_that_dies_between_rounds_is_an_error_for_the_model(
    ask, deployment, provider, tmp_path, way
):
    command = [sys.executable, "-m", "tests.end_to_end.servers.official", "session"]
    with child(command, log=tmp_path / "log", talks=True) as dying:
        url = f"http://127.0.0.1:{dying.line().strip()}/mcp"
        # The second round begins after the tool's result is there, and its first byte is late:
        # time to end the server in between.
        script = (
            'CALL add {"a": 1, "b": 1}\nTHEN\nFIRST 0.5\nCALL add {"a": 2, "b": 2}\nTHEN\nSAY Oh.'
        )
        killer = threading.Thread(target=_kill_after_a_round, args=(provider, dying))
        killer.start()
        answer = ask(script, way=way, mcp_servers=[{"name": "dying", "url": url}])
        killer.join(10)
    assert answer.reply.text == "Oh."
    alive, dead = [m["content"] for m in provider.bodies[-1]["messages"] if m["role"] == "tool"]
    assert alive == "2"
    assert dead.startswith("Error:")
    assert "dying" in dead
    steps = [s for s in deployment.turn(answer.request_id)["steps"] if s["kind"] == "tool"]
    assert [step["outcome"] for step in steps] == ["ok", "error"]


def _kill_after_a_round(provider, dying) -> None:
    provider.wait_until(lambda: len(provider.requests) == 2)
    dying.process.kill()


def test_a_server_that_was_restarted_is_met_anew(ask, provider, tmp_path):
    command = [sys.executable, "-m", "tests.end_to_end.servers.official", "session"]
    with child(command, log=tmp_path / "log", talks=True) as first:
        port = first.line().strip()
        given = [{"name": "again", "url": f"http://127.0.0.1:{port}/mcp"}]
        assert ask(SUM, mcp_servers=given).reply.text == "It is five."
    with child([*command, "--port", port], log=tmp_path / "log", talks=True) as second:
        second.line()
        assert ask(SUM, mcp_servers=given).reply.text == "It is five."
        assert provider.bodies[-1]["messages"][-1]["content"] == "5"
