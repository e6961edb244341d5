"""Golden transcripts of `/v1/chat/completions`, played through the wire and the loop."""

import pytest

from gateway import sse
from tests.gateway.playing import play, tool_name
from tests.wires import transcripts
from tests.wires.checker import check_stream
from tools.base import ToolResult

CASES = transcripts.cases("chat")


async def played(case, *, step=4096):
    async def events(raw):
        return [e async for batch in sse.decode(cut(raw, step)) for e in batch]

    rounds = [await events(raw) for raw in case.raw]
    return await play(
        case.request,
        rounds,
        owned=sorted(case.owned),
        results=lambda call: ToolResult(case.results[call.id]),
    )


async def cut(raw, step):
    for at in range(0, len(raw), step):
        yield raw[at : at + step]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_provider_s_stream_becomes_what_the_client_must_get(case):
    turn = await played(case)
    assert transcripts.fold(turn.raw) == transcripts.fold(case.expected)
    if case.appended is not None:
        assert turn.appended == case.appended


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_stream_that_comes_byte_by_byte_says_the_same(case):
    bytewise = await played(case, step=1)
    assert transcripts.fold(bytewise.raw) == transcripts.fold(case.expected)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_every_stream_is_one_that_official_clients_can_read(case):
    turn = await played(case)
    check_stream(
        turn.raw,
        hidden=case.owned,
        callers={tool_name(tool) for tool in case.request.get("tools", [])},
        include_usage=case.request.get("stream_options", {}).get("include_usage", False),
        n=case.request.get("n", 1),
    )
