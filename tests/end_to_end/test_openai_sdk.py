"""What only the official OpenAI SDK can show: its accumulation, parsing, asynchronous client."""

import pytest

HIDDEN = ("add", "shout", "weather", "refuse", "meet", "wait")
SUM = 'SAY Let me see.\nCALL add {"a": 2, "b": 3}\nTHEN\nSAY It is five.'

pytestmark = pytest.mark.services


def asked(script, mcp, kind="session", **more):
    return {
        "model": "openai:strict-1",
        "messages": [{"role": "user", "content": script}],
        "mcp_servers": [mcp[kind].inline()],
        **more,
    }


def test_the_models_are_listed(sdk):
    assert {"demo:demo", "openai:strict-1"} <= set(sdk.do("models")["models"])


@pytest.mark.parametrize("usage", [False, True])
def test_the_sdks_own_accumulation_of_a_stream_gives_the_whole_reply(sdk, provider, mcp, usage):
    options = {"stream_options": {"include_usage": True}} if usage else {}
    given = sdk.do("accumulated", body=asked(SUM, mcp, **options))
    assert given.get("error") is None, given
    assert given["message"]["content"] == "Let me see.\n\nIt is five."
    assert given["finish_reason"] == "stop"
    assert (given["usage"] or {}).get("total_tokens") == (330 if usage else None)
    assert "content.done" in given["events"]


def test_the_sdks_own_accumulation_gives_the_callers_calls(sdk, provider, mcp):
    lookup = {
        "type": "function",
        "function": {
            "name": "lookup_order",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"number": {"type": "integer"}},
                "required": ["number"],
                "additionalProperties": False,
            },
        },
    }
    script = 'CALL add {"a": 1, "b": 2}\nCALL lookup_order {"number": 7}'
    given = sdk.do("accumulated", body=asked(script, mcp, tools=[lookup]))
    assert given.get("error") is None, given
    [call] = given["message"]["tool_calls"]
    assert call["function"]["name"] == "lookup_order"
    assert call["function"]["arguments"] == '{"number": 7}'
    done = "tool_calls.function.arguments.done"
    assert given["events"].count(done) == 1


def test_structured_output_is_parsed_into_an_object(sdk, provider, mcp):
    script = (
        'SAY Let me look.\nCALL weather {"city": "Oslo"}\nTHEN\n'
        'SAY {"city": "Oslo", "degrees": 21.5}'
    )
    given = sdk.do("parsed", body=asked(script, mcp))
    assert given.get("parsed") == {"city": "Oslo", "degrees": 21.5}, given


def test_fifty_turns_at_once_over_an_asynchronous_client(sdk, provider, mcp):
    bodies = [
        asked(
            f'CALL add {{"a": {n}, "b": 1000}}\nTHEN',
            mcp,
            ("session", "stateless", "modern", "sse")[n % 4],
            stream=bool(n % 2),
        )
        for n in range(50)
    ]
    given = sdk.do("many", bodies=bodies)
    assert given.get("error") is None, given
    assert given["texts"] == [f'GOT ["{n + 1000}"]' for n in range(50)]


def test_a_program_can_read_what_a_turn_did_from_the_headers(sdk, deployment, provider, mcp):
    given = sdk.do("chat", body=asked(SUM, mcp), headers={"X-Request-ID": "seen-by-the-sdk"})
    headers = given["headers"]
    assert headers["x-request-id"] == "seen-by-the-sdk"
    assert (headers["x-orazaka-rounds"], headers["x-orazaka-tool-calls"]) == ("2", "1")
    turn = deployment.turn("seen-by-the-sdk")
    assert str(turn["id"]).replace("-", "") == headers["x-orazaka-turn"].replace("-", "")


def test_a_retry_of_the_sdk_is_a_turn_like_any_other(sdk, provider):
    # The gateway does not wait for so long, the SDK does as it is told.
    body = {
        "model": "openai:strict-1",
        "messages": [{"role": "user", "content": "STATUS 500 0 1\nSAY At last."}],
    }
    given = sdk.do("chat", body=body, retries=2)
    assert given.get("error") is None, given
    assert given["message"]["content"] == "At last."


@pytest.mark.parametrize("stream", [False, True])
def test_the_demo_model_answers_the_sdk(sdk, mcp, stream):
    body = asked('CALL add {"a": 2, "b": 3}', mcp) | {"model": "demo:demo", "stream": stream}
    given = sdk.do("chat", body=body)
    assert "5" in given["message"]["content"]
