"""SIGTERM to a server that works: what runs is finished and recorded, nothing new begins."""

import signal
import threading
import time
from contextlib import contextmanager

import httpx

from tests.end_to_end.processes import Stuck, until
from tests.wires.checker import StreamChecker

STREAM = "SAY Once upon a time.\nGAP 0.02\nTOKENS 150"


def request(script, **more):
    messages = [{"role": "user", "content": script}]
    return {"model": "openai:strict-1", "messages": messages, **more}


@contextmanager
def streaming(server, script, request_id, **more):
    """A streamed turn whose first piece of text has come: its bytes, and what has come so far."""
    with (
        server.http(**{"X-Request-ID": request_id}) as client,
        client.stream(
            "POST", "/v1/chat/completions", json=request(script, stream=True, **more)
        ) as response,
    ):
        assert response.status_code == 200
        pieces = response.iter_raw()
        checker = StreamChecker()
        while not checker.reply.text:
            checker.feed(next(pieces))
        yield pieces, checker


def takes_no_turns(client) -> bool:
    """Whether a turn that is asked for now is refused, or there is nobody to ask."""
    try:
        response = client.post("/v1/chat/completions", json=request("SAY Hello."))
    except httpx.TransportError:
        return True
    return response.status_code == 503


def test_running_turns_are_finished_and_recorded_and_no_turn_begins(deployment, provider, mcp):
    started, answers = mcp["modern"].count("started"), []
    in_a_tool = request(
        'CALL wait {"seconds": 1}\nTHEN\nSAY Done.', mcp_servers=[mcp["modern"].inline()]
    )
    given = [mcp["session"].inline()]

    def ask() -> None:
        with server.http(**{"X-Request-ID": "stopped-plain"}) as client:
            answers.append(client.post("/v1/chat/completions", json=in_a_tool))

    with deployment.serve() as server, server.http() as idle, server.http() as stranger:
        assert idle.get("/healthz").status_code == 200  # its connection is kept
        with streaming(server, STREAM, "stopped-stream", mcp_servers=given) as (pieces, checker):
            asking = threading.Thread(target=ask)
            asking.start()
            mcp["modern"].reach("started", started + 1)
            began = time.monotonic()
            server.process.signal(signal.SIGTERM)
            until(lambda: takes_no_turns(stranger), 2)
            assert takes_no_turns(idle)
            assert not checker.over, "the stream is still running"
            for piece in pieces:
                checker.feed(piece)
        asking.join(30)
        assert server.process.ended(30) in (0, -signal.SIGTERM)
        assert time.monotonic() - began < 30
    assert checker.close().text.endswith("t149")
    assert checker.reply.finish_reason == "stop"
    assert deployment.turn("stopped-stream")["status"] == "ok"
    [answer] = answers
    assert answer.json()["choices"][0]["message"]["content"] == "Done."
    record = deployment.turn("stopped-plain")
    assert (record["status"], record["tool_calls"]) == ("ok", 1)
    assert mcp["session"].seen[-1]["verb"] == "DELETE", "the session is ended at its server"


def test_a_turn_that_outlasts_the_drain_is_ended_and_recorded(deployment, provider):
    with deployment.serve(ORAZAKA_DRAIN_SECONDS="1") as server:
        with streaming(server, "GAP 0.05\nTOKENS 5000", "too-long") as (pieces, checker):
            server.process.signal(signal.SIGTERM)
            reader = threading.Thread(target=lambda: _read(pieces, checker))
            reader.start()
            try:
                code = server.process.ended(10)
            except Stuck:
                server.process.process.kill()
                raise
            finally:
                reader.join(10)
        assert code in (0, -signal.SIGTERM)
        assert checker.reply.finish_reason is None
    record = deployment.turn("too-long")
    assert (record["status"], record["rounds"]) == ("cancelled", 1)


def _read(pieces, checker) -> None:
    try:
        for piece in pieces:
            checker.feed(piece)
    except httpx.TransportError:
        pass  # the server had to break off
