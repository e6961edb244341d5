"""A client that leaves, in every phase of a turn: what ran for it is ended, and recorded."""

import asyncio
import json
import socket
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psutil  # type: ignore[import-untyped]
import pytest

from tests.end_to_end.asking import MODEL
from tests.end_to_end.processes import until

KINDS = ("session", "stateless", "modern", "sse")
# By what a server of the kind sees that nobody waits for a call: without a session and answering
# as JSON, the SDK's does not look, but the connection is closed.
SIGN = {"session": "cancelled", "stateless": "left", "modern": "cancelled", "sse": "cancelled"}
MIB = 2**20
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
WAITS = 'SAY go\nCALL wait {"seconds": 60}\nTHEN\nSAY Never said.'


SLACK = 8  # threads and pooled connections come and go by a few; what leaks, leaks by the hundred


def request_of(server, script, *, request_id, **body) -> bytes:
    """A chat completion as it goes over the wire."""
    messages = [{"role": "user", "content": script}]
    raw = json.dumps({"model": MODEL, "messages": messages, **body}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {server.key}\r\nX-Request-ID: {request_id}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    return head.encode() + raw


def port_of(server) -> int:
    return int(server.url.rpartition(":")[2])


class Impatient:
    """A client on a bare socket."""

    def __init__(self, server, script, **body) -> None:
        self.request_id = uuid.uuid4().hex
        self.socket = socket.create_connection(("127.0.0.1", port_of(server)), timeout=10)
        self.socket.sendall(request_of(server, script, request_id=self.request_id, **body))

    def read_to(self, word: bytes) -> None:
        """Read until this has come."""
        got = b""
        while word not in got:
            part = self.socket.recv(4096)
            assert part, got
            got += part


@contextmanager
def client(server, script, *, rude: bool = False, **body) -> Iterator[Impatient]:
    given = Impatient(server, script, **body)
    try:
        yield given
    finally:
        if rude:
            reset = struct.pack("ii", 1, 0)
            given.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        given.socket.close()


def leavers(provider) -> int:
    """How many replies of the provider nobody waited for, so far."""
    return provider.abandoned


@STREAMS
@pytest.mark.parametrize("rude", [False, True], ids=["closing", "reset"])
def test_before_the_first_event(server, deployment, provider, stream, rude):
    before = leavers(provider)
    with client(server, "FIRST 60\nSAY Late.", stream=stream, rude=rude) as left:
        provider.wait_until(lambda: provider.in_flight == 1)
    provider.wait_until(lambda: provider.abandoned == before + 1)
    record = deployment.turn(left.request_id)
    assert (record["status"], record["rounds"]) == ("cancelled", 1)
    [step] = record["steps"]
    assert (step["kind"], step["outcome"]) == ("model", "cancelled")


def test_around_the_moment_when_the_body_begins(server, deployment, provider):
    # The first event comes ever later after the model was called, and the client leaves at once:
    # before the view has answered, between it and the body, and in the body.
    before, left = leavers(provider), []
    for n in range(20):
        script = f"FIRST {n / 1000}\nGAP 0.002\nTOKENS 5000"
        with client(server, script, stream=True, rude=bool(n % 2)) as one:
            provider.wait_until(lambda n=n: len(provider.requests) == n + 1)
        left.append(one.request_id)
    provider.wait_until(lambda: provider.abandoned == before + 20, timeout=10)
    assert {deployment.turn(name)["status"] for name in left} == {"cancelled"}


def test_when_the_headers_have_come(server, deployment, provider):
    before = leavers(provider)
    with client(server, "GAP 0.2\nTOKENS 500", stream=True) as left:
        left.read_to(b"\r\n\r\n")
    provider.wait_until(lambda: provider.abandoned == before + 1)
    assert deployment.turn(left.request_id)["status"] == "cancelled"


@pytest.mark.parametrize("rude", [False, True], ids=["closing", "reset"])
def test_in_the_middle_of_a_stream(server, deployment, provider, rude):
    before = leavers(provider)
    with client(server, "GAP 0.01\nTOKENS 5000", stream=True, rude=rude) as left:
        left.read_to(b"t5 ")
    provider.wait_until(lambda: provider.abandoned == before + 1)
    record = deployment.turn(left.request_id)
    assert record["status"] == "cancelled"
    assert record["first_output_ms"] is not None


def test_a_client_that_stops_reading_holds_back_its_own_turn_alone(
    server, deployment, provider, ask
):
    process, before = psutil.Process(server.process.pid), leavers(provider)
    held_before = process.memory_info().rss
    with client(server, "TOKENS 200000", stream=True) as left:  # over 50 MB, if one read it
        left.read_to(b"t5 ")
        for n in range(20):
            assert ask(f"SAY Number {n}.").reply.text == f"Number {n}."
        assert process.memory_info().rss - held_before < 24 * MIB
        assert provider.abandoned == before
    provider.wait_until(lambda: provider.abandoned == before + 1)
    assert deployment.turn(left.request_id)["status"] == "cancelled"


@STREAMS
@pytest.mark.parametrize("kind", KINDS)
def test_in_the_middle_of_a_tool(server, deployment, provider, mcp, ask, kind, stream):
    started, cancelled = mcp[kind].count("started"), mcp[kind].count(SIGN[kind])
    given = [mcp[kind].inline()]
    with client(server, WAITS, stream=stream, mcp_servers=given) as left:
        mcp[kind].reach("started", started + 1)
    mcp[kind].reach(SIGN[kind], cancelled + 1)
    record = deployment.turn(left.request_id)
    assert (record["status"], record["rounds"]) == ("cancelled", 1)
    assert (record["prompt_tokens"], record["completion_tokens"]) == (100, 10), "it was used"
    outcomes = [(s["kind"], s["outcome"]) for s in record["steps"] if s["kind"] != "server"]
    assert outcomes == [("model", "ok"), ("tool", "cancelled")]
    again = ask('CALL add {"a": 2, "b": 3}\nTHEN', mcp_servers=given)
    assert again.reply.text == 'GOT ["5"]', "the session is as good as before"


@STREAMS
def test_in_the_middle_of_several_tools_on_several_servers(
    server, deployment, provider, mcp, stream
):
    before = {kind: [mcp[kind].count(c) for c in ("started", SIGN[kind])] for kind in KINDS}
    given = [mcp[kind].inline() for kind in KINDS]
    names = ["wait", *(f"{kind}__wait" for kind in KINDS[1:])]
    script = "\n".join(f'CALL {name} {{"seconds": 60}}' for name in names)
    with client(server, script, stream=stream, mcp_servers=given) as left:
        for kind in KINDS:
            mcp[kind].reach("started", before[kind][0] + 1)
    for kind in KINDS:
        mcp[kind].reach(SIGN[kind], before[kind][1] + 1)
    assert deployment.turn(left.request_id)["status"] == "cancelled"


@STREAMS
def test_while_a_server_is_asked_for_its_tools(server, deployment, provider, stream):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(10)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        given = [{"name": "silent", "url": url}]
        with client(server, "SAY Hello.", stream=stream, mcp_servers=given) as left:
            asked, _ = silent.accept()
        with asked:
            record = deployment.turn(left.request_id)
    assert (record["status"], record["rounds"]) == ("cancelled", 0)
    assert provider.bodies == []


def test_with_half_a_body_sent(server, provider, ask):
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=10) as half:
        half.sendall(request_of(server, "SAY Hello.", request_id="half")[:-10])
    assert ask("SAY Still here.").reply.text == "Still here."
    assert [body["messages"][0]["content"] for body in provider.bodies] == ["SAY Still here."]


async def leave_at(server, script, word, *, rude=False, **body) -> str:
    """One streamed turn that is left as soon as this word has come; its request id."""
    name = f"left-{uuid.uuid4().hex}"
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
    writer.write(request_of(server, script, request_id=name, stream=True, **body))
    await writer.drain()
    if word:
        await reader.readuntil(word)
    if rude:
        writer.transport.abort()
    writer.close()
    return name


async def leave(server, mcp, at: int, gate: asyncio.Semaphore) -> str:
    """One turn that is left, in a phase that depends on `at`; its request id."""
    script, word = [
        ("FIRST 60", None),  # at once
        ("FIRST 0.05\nGAP 0.2\nTOKENS 500", b"\r\n\r\n"),  # when the headers have come
        ("GAP 0.01\nTOKENS 5000", b"t3 "),  # in the middle of the stream
        (WAITS, b"go"),  # as the tool is called
        ('CALL add {"a": 1, "b": 1}\nTHEN\n' + WAITS, b"go"),  # in a second round
    ][at % 5]
    given = [mcp[KINDS[at // 5 % 4]].inline()]
    async with gate, asyncio.timeout(30):
        return await leave_at(server, script, word, rude=bool(at % 2), mcp_servers=given)


async def leave_all(server, mcp, count: int) -> list[str]:
    gate = asyncio.Semaphore(25)
    return await asyncio.gather(*(leave(server, mcp, at, gate) for at in range(count)))


def held(process: psutil.Process) -> dict[str, int]:
    """What a process holds of the machine."""
    states = [connection.status for connection in process.net_connections(kind="tcp")]
    return {
        "connections": sum(state != psutil.CONN_LISTEN for state in states),
        "descriptors": process.num_fds(),
        "threads": process.num_threads(),
    }


def unrest(provider, mcp) -> dict[str, int]:
    """What the provider and the servers still have under way."""
    return {"model calls": provider.in_flight, **{kind: going(mcp, kind) for kind in KINDS}}


def going(mcp, kind) -> int:
    """How many calls a server works on."""
    ended = mcp[kind].count(SIGN[kind]) + mcp[kind].count("finished")
    return mcp[kind].count("started") - ended


def calm(provider, mcp) -> bool:
    return not any(count > 0 for count in unrest(provider, mcp).values())


@pytest.mark.parametrize("kind", KINDS)
def test_at_the_very_moment_when_a_tool_is_called(server, deployment, provider, mcp, kind):
    # A cancellation that overtakes its call is lost on the server, which works on for nobody.
    async def all_at_once() -> list[str]:
        given = [mcp[kind].inline()]
        turns = (leave_at(server, WAITS, b"go", mcp_servers=given) for _ in range(60))
        async with asyncio.timeout(30):
            return await asyncio.gather(*turns)

    before = going(mcp, kind)
    names = asyncio.run(all_at_once())
    assert {deployment.turn(name)["status"] for name in names} == {"cancelled"}
    provider.wait_until(lambda: provider.in_flight == 0)
    until(lambda: going(mcp, kind) <= before, 5, shown=lambda: going(mcp, kind))


def test_250_turns_that_are_left_leave_nothing_behind(server, deployment, provider, mcp, ask):
    process = psutil.Process(server.process.pid)
    asyncio.run(leave_all(server, mcp, 50))  # what is kept for good is there after these
    until(lambda: calm(provider, mcp), 20, shown=lambda: unrest(provider, mcp))
    before = held(process)

    names = asyncio.run(leave_all(server, mcp, 250))
    until(lambda: calm(provider, mcp), 20, shown=lambda: unrest(provider, mcp))
    until(
        lambda: all(held(process)[what] <= before[what] + SLACK for what in before),
        20,
        shown=lambda: f"{before} before, {held(process)} now",
    )
    assert {deployment.turn(name)["status"] for name in names} == {"cancelled"}
    for kind in KINDS:
        answer = ask('CALL add {"a": 2, "b": 3}\nTHEN', mcp_servers=[mcp[kind].inline()])
        assert answer.reply.text == 'GOT ["5"]'
