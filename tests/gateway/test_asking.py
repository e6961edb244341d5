"""Asking from a terminal: the request, what is shown of the turn, and how it ends."""

import asyncio
import io
from contextlib import asynccontextmanager

import pytest
from rich.console import Console

from gateway import asking, trace
from gateway.models import Turn
from gateway.providers import ModelNotAllowed, UnknownModel
from mcp_servers import sample
from orazaka.caller import Caller
from orazaka.errors import OrazakaError
from orazaka.runtime import Runtime
from orazaka.writer import WRITER
from tests.mcp_servers.scripted import Scripted, hang, tool
from tests.mcp_servers.using import served

ANN = Caller(principal="user:1")
LOOK = 'SAY Let me look.\nCALL weekday {"day": "1969-07-20"}'


@asynccontextmanager
async def sampled():
    async with served(sample.build().streamable_http_app()) as base:
        yield base + "/mcp"


def request(question="Hi.", *, servers=(), stream=True, model="demo:demo", rounds=None):
    return asking.request(question, model=model, servers=servers, rounds=rounds, stream=stream)


class Seen:
    """A view that keeps what it is told, in order."""

    def __init__(self):
        self.told = []

    def text(self, piece):
        self.told.append(piece)

    def step(self, step):
        self.told.append((step["kind"], step["outcome"]))

    @property
    def steps(self):
        return [one for one in self.told if isinstance(one, tuple)]

    @property
    def text_shown(self):
        return "".join(one for one in self.told if isinstance(one, str))


# --- the request ---


def test_servers_are_named_after_their_hosts_and_no_two_alike():
    urls = ["http://a.example/mcp", "https://a.example:8443/mcp", "http://b.example", "http://["]
    body = request(servers=urls)
    names = [server["name"] for server in body["mcp_servers"]]
    assert names == ["a.example", "a.example_2", "b.example", "server"]


def test_a_password_in_a_url_does_not_become_a_name():
    [server] = request(servers=["https://ann:s3cret@a.example/mcp"])["mcp_servers"]
    assert server["name"] == "a.example"


# --- the turn ---


@pytest.mark.django_db
@pytest.mark.parametrize("stream", [True, False])
async def test_a_turn_shows_its_steps_and_its_text_and_is_recorded(stream, run_sync):
    async with sampled() as url, Runtime(run_sync=run_sync) as runtime:
        view, body = Seen(), request(LOOK, servers=[url], stream=stream)
        answer = await asking.ask(body, caller=ANN, runtime=runtime, view=view)
        assert await runtime[WRITER].flush(limit=5)
        row = await run_sync(lambda: Turn.objects.get())
    kinds = ["server", "model", "tool", "model"]
    assert [kind for kind, _ in view.steps] == kinds
    assert {outcome for _, outcome in view.steps} == {"listed", "ok"}
    assert view.text_shown == answer.text == "Let me look.\n\nThe tools answered:\n- Sunday"
    assert (answer.rounds, answer.tool_calls, answer.error) == (2, 1, None)
    assert [step["kind"] for step in answer.trace] == kinds
    assert (str(row.pk), row.streamed) == (answer.turn, stream)
    assert answer.usage["prompt_tokens"] == row.prompt_tokens > 0


@pytest.mark.django_db
async def test_text_of_a_round_is_shown_before_its_tools_ran(run_sync):
    async with sampled() as url, Runtime(run_sync=run_sync) as runtime:
        view, body = Seen(), request(LOOK, servers=[url])
        await asking.ask(body, caller=ANN, runtime=runtime, view=view)
    assert view.told.index("Let ") < view.told.index(("tool", "ok"))


@pytest.mark.django_db
async def test_a_turn_that_fails_says_why(run_sync):
    async with Runtime(run_sync=run_sync) as runtime:
        body = request(LOOK, servers=["http://127.0.0.1:1/mcp"])
        answer = await asking.ask(body, caller=ANN, runtime=runtime, view=Seen())
    assert answer.error is not None
    assert "can't be reached" in answer.error.message


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"model": "nobody:x"}, UnknownModel, "The providers here: demo"),
        ({"model": " "}, OrazakaError, "model: must not be empty"),
        ({"servers": ["http://a\x00b/"]}, OrazakaError, ""),
        ({"rounds": 26}, OrazakaError, "max_tool_iterations"),
    ],
)
async def test_a_request_that_makes_no_sense_begins_no_turn(more, error, words, run_sync, settings):
    settings.OPENAI_API_KEY = settings.ANTHROPIC_API_KEY = ""
    async with Runtime(run_sync=run_sync) as runtime:
        if "servers" in more:  # judged by the guard, inside the turn
            answer = await asking.ask(request(**more), caller=ANN, runtime=runtime, view=Seen())
            assert answer.error
            return
        with pytest.raises(error, match=words):
            await asking.ask(request(**more), caller=ANN, runtime=runtime, view=Seen())


@pytest.mark.django_db
async def test_a_callers_limits_hold(run_sync):
    limited = Caller(principal="user:1", models=frozenset())
    async with Runtime(run_sync=run_sync) as runtime:
        with pytest.raises(ModelNotAllowed):
            await asking.ask(request(), caller=limited, runtime=runtime, view=Seen())


@pytest.mark.django_db
async def test_cancelling_cancels_the_turn_and_leaves_a_record(run_sync):
    async with Scripted(tool("wait")) as server, Runtime(run_sync=run_sync) as runtime:
        server.on["tools/call"] = hang
        body = request("CALL wait {}", servers=[server.url])
        asking_it = asking.ask(body, caller=ANN, runtime=runtime, view=Seen())
        async with asyncio.timeout(5):
            task = asyncio.ensure_future(asking_it)
            await server.held.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await runtime[WRITER].flush(limit=5)
        assert (await run_sync(lambda: Turn.objects.get())).status == "cancelled"


# --- what is shown ---


def step(kind="tool", name="add", outcome="ok", server="sums", **detail):
    return {
        "kind": kind, "name": name, "server": server, "outcome": outcome,
        "started_ms": 1.0, "duration_ms": 12.4, "detail": detail,
    }  # fmt: skip


def shown(play, *, terminal):
    screen = io.StringIO()
    console = Console(file=screen, width=80, highlight=False)
    if terminal:
        tree = trace.Growing(console, "demo: question")
        play(tree)
        console.print(tree.tree())
    else:
        with trace.Lines(console) as lines:
            play(lines)
    return screen.getvalue()


def two_rounds(view):
    view.step(step("server", "sums", "listed", ""))
    view.text("I will ")
    view.text("add.")
    view.step(step("model", "m-1", round=1, usage={"prompt": 5, "completion": 7}))
    view.step(step())
    view.text("\n\n")
    view.text("Done.\n")
    view.step(step("model", "m-1", round=2, usage={}))


def test_the_tree_has_rounds_with_their_text_and_tools():
    tree = shown(two_rounds, terminal=True)
    lines = [line.strip(" │├└─") for line in tree.splitlines()]
    assert lines == [
        "demo: question",
        "server sums listed, 12 ms",
        "model call 1 of m-1 ok, 12 ms, 5 tokens in, 7 out",
        "I will add.",
        "tool add on sums ok, 12 ms",
        "model call 2 of m-1 ok, 12 ms, 0 tokens in, 0 out",
        "Done.",
        "…",
    ]


def test_without_a_terminal_the_same_are_plain_lines():
    assert shown(two_rounds, terminal=False) == (
        "[server sums listed, 12 ms]\n"
        "I will add.\n"
        "[model call 1 of m-1 ok, 12 ms, 5 tokens in, 7 out]\n"
        "[tool add on sums ok, 12 ms]\n"
        "Done.\n"
        "[model call 2 of m-1 ok, 12 ms, 0 tokens in, 0 out]\n"
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_that_a_model_or_a_tool_says_acts_on_the_terminal(terminal):
    def play(view):
        view.text("a\x1b]0;owned\x07b[red]c\u202e\x9b2J")
        view.step(step(name="x\x1b[2J", outcome="failed", error="no\x1b[31m"))
        view.step(step("note", "left \x1b out"))

    said = shown(play, terminal=terminal)
    assert not set("\x1b\x07\x9b\u202e") & set(said)
    assert "b[red]c" in said


def test_long_durations_are_in_seconds():
    assert (trace.took(9_999), trace.took(12_340)) == ("9999 ms", "12.3 s")
