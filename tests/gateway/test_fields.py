"""What a request may ask of the gateway: each malformed body, its status and path (spec 3.2)."""

from typing import Any

import orjson
import pytest

from gateway.fields import (
    NONE,
    BadField,
    Conflict,
    check_chat,
    check_conflicts,
    parse,
    take,
)
from orazaka.errors import OrazakaError

SECRET = "sk-SECRET-0123456789"
BODY = {"model": "openai:m", "messages": [{"role": "user", "content": "Hi."}]}
SERVER = {"name": "docs", "url": "https://mcp.example.org/mcp"}
UUID = "3b241101-e2bb-4255-8caf-4136c566a962"


def checked(raw):
    """All the checks that a chat completion's body goes through, in their order."""
    body = parse(raw if isinstance(raw, bytes) else orjson.dumps(raw))
    fields = take(body)
    check_chat(body)
    check_conflicts(body, fields)
    return body, fields


def refused(body):
    with pytest.raises(OrazakaError) as caught:
        checked(body)
    return caught.value


# --- fields that have the wrong shape

INLINE: dict[str, tuple[Any, str]] = {
    "a server that is a text": ("x", "mcp_servers[0]"),
    "a server that is null": (None, "mcp_servers[0]"),
    "a server without a name": ({"url": "https://a"}, "mcp_servers[0].name"),
    "a name that is empty": (SERVER | {"name": ""}, "mcp_servers[0].name"),
    "a name of 129": (SERVER | {"name": "n" * 129}, "mcp_servers[0].name"),
    "a name that is a number": (SERVER | {"name": 5}, "mcp_servers[0].name"),
    "a name that is null": (SERVER | {"name": None}, "mcp_servers[0].name"),
    "a server without a URL": ({"name": "a"}, "mcp_servers[0].url"),
    "a URL that is empty": (SERVER | {"url": ""}, "mcp_servers[0].url"),
    "a URL of 2049": (SERVER | {"url": "h" * 2049}, "mcp_servers[0].url"),
    "a URL that is a list": (SERVER | {"url": ["https://a"]}, "mcp_servers[0].url"),
    "a token that is a number": (
        SERVER | {"authorization_token": 5},
        "mcp_servers[0].authorization_token",
    ),
    "a token that is a list": (
        SERVER | {"authorization_token": []},
        "mcp_servers[0].authorization_token",
    ),
    "a token that is an object": (
        SERVER | {"authorization_token": {"value": SECRET}},
        "mcp_servers[0].authorization_token",
    ),
    "a hint of 2001": (SERVER | {"purpose_hint": "h" * 2001}, "mcp_servers[0].purpose_hint"),
    "a hint that is true": (SERVER | {"purpose_hint": True}, "mcp_servers[0].purpose_hint"),
    "allowed tools that are a text": (
        SERVER | {"allowed_tools": "search"},
        "mcp_servers[0].allowed_tools",
    ),
    "an allowed tool that is a number": (
        SERVER | {"allowed_tools": ["a", 5]},
        "mcp_servers[0].allowed_tools[1]",
    ),
    "a configuration that is a list": (
        SERVER | {"tool_configuration": []},
        "mcp_servers[0].tool_configuration",
    ),
    "enabled that is a text": (
        SERVER | {"tool_configuration": {"enabled": "yes"}},
        "mcp_servers[0].tool_configuration.enabled",
    ),
    "enabled that is a number": (
        SERVER | {"tool_configuration": {"enabled": 1}},
        "mcp_servers[0].tool_configuration.enabled",
    ),
    "configured tools that are an object": (
        SERVER | {"tool_configuration": {"allowed_tools": {}}},
        "mcp_servers[0].tool_configuration.allowed_tools",
    ),
}
WRONG = {name: ({"mcp_servers": [server]}, where) for name, (server, where) in INLINE.items()} | {
    "servers that are an object": ({"mcp_servers": {}}, "mcp_servers"),
    "servers that are a text": ({"mcp_servers": ""}, "mcp_servers"),
    "51 servers": (
        {"mcp_servers": [SERVER | {"name": f"n{n}"} for n in range(51)]},
        "mcp_servers",
    ),
    "the second of two": ({"mcp_servers": [SERVER, {"name": "b"}]}, "mcp_servers[1].url"),
    "the first of two": (
        {"mcp_servers": [{"name": 5}, SERVER | {"tool_configuration": {"enabled": 1}}]},
        "mcp_servers[0].name",
    ),
    "an id that is no UUID": ({"mcp_server_ids": [UUID, SECRET]}, "mcp_server_ids[1]"),
    "an id that is a number": ({"mcp_server_ids": [5]}, "mcp_server_ids[0]"),
    "an id that is null": ({"mcp_server_ids": [None]}, "mcp_server_ids[0]"),
    "ids that are a text": ({"mcp_server_ids": UUID}, "mcp_server_ids"),
    "51 ids": ({"mcp_server_ids": [UUID] * 51}, "mcp_server_ids"),
    "no rounds": ({"max_tool_iterations": 0}, "max_tool_iterations"),
    "negative rounds": ({"max_tool_iterations": -1}, "max_tool_iterations"),
    "26 rounds": ({"max_tool_iterations": 26}, "max_tool_iterations"),
    "rounds beyond all": ({"max_tool_iterations": 2**64 - 1}, "max_tool_iterations"),
    "half a round": ({"max_tool_iterations": 5.5}, "max_tool_iterations"),
    "rounds that are a text": ({"max_tool_iterations": "5"}, "max_tool_iterations"),
    "rounds that are true": ({"max_tool_iterations": True}, "max_tool_iterations"),
    "rounds that are a list": ({"max_tool_iterations": [5]}, "max_tool_iterations"),
    "tools by another word": ({"orazaka_tools": "all"}, "orazaka_tools"),
    "tools that are true": ({"orazaka_tools": True}, "orazaka_tools"),
    "a tool that is a number": ({"orazaka_tools": ["a", 5]}, "orazaka_tools[1]"),
    "servers by another word": ({"orazaka_servers": "all"}, "orazaka_servers"),
    "a stored server that is no UUID": ({"orazaka_servers": [SECRET]}, "orazaka_servers[0]"),
    "another way to commit": ({"orazaka_commit": "yes"}, "orazaka_commit"),
    "a commit that is true": ({"orazaka_commit": True}, "orazaka_commit"),
    "a trace that is a text": ({"orazaka_trace": "true"}, "orazaka_trace"),
    "a trace that is a number": ({"orazaka_trace": 1}, "orazaka_trace"),
    "a header of 4001": ({"tools_header": "h" * 4001}, "tools_header"),
    "a header that is a list": ({"tools_header": ["x"]}, "tools_header"),
    "a model that is null": ({"model": None}, "model"),
    "a model that is a number": ({"model": 5}, "model"),
    "a model that is empty": ({"model": ""}, "model"),
    "a model that is blank": ({"model": " \n"}, "model"),
    "messages that are null": ({"messages": None}, "messages"),
    "messages that are a text": ({"messages": "Hi."}, "messages"),
    "no messages": ({"messages": []}, "messages"),
    "a message that is a text": ({"messages": ["Hi."]}, "messages[0]"),
    "a message without a role": ({"messages": [{"content": "Hi."}]}, "messages[0].role"),
    "a role that is a number": ({"messages": [{"role": 5}]}, "messages[0].role"),
    "content that is a number": (
        {"messages": [*BODY["messages"], {"role": "user", "content": 5}]},
        "messages[1].content",
    ),
    "content that is an object": (
        {"messages": [{"role": "user", "content": {"text": "x"}}]},
        "messages[0].content",
    ),
    "a part that is a text": (
        {"messages": [{"role": "user", "content": ["x"]}]},
        "messages[0].content[0]",
    ),
    "calls that are an object": (
        {"messages": [{"role": "assistant", "tool_calls": {}}]},
        "messages[0].tool_calls",
    ),
    "a call that is a text": (
        {"messages": [{"role": "assistant", "tool_calls": ["x"]}]},
        "messages[0].tool_calls",
    ),
    "a stream that is a text": ({"stream": "yes"}, "stream"),
    "a stream that is a number": ({"stream": 1}, "stream"),
    "options that are a list": ({"stream_options": []}, "stream_options"),
    "a format that is a text": ({"response_format": "json"}, "response_format"),
    "n that is a text": ({"n": "2"}, "n"),
    "n that is true": ({"n": True}, "n"),
    "n that is a fraction": ({"n": 1.5}, "n"),
    "a choice that is a list": ({"tool_choice": []}, "tool_choice"),
    "tools that are null": ({"tools": None}, "tools"),
    "tools that are an object": ({"tools": {}}, "tools"),
    "tools that are a text": ({"tools": "search"}, "tools"),
    "a tool that is a text": ({"tools": ["search"]}, "tools[0]"),
    "a function that is a text": ({"tools": [{"function": "search"}]}, "tools[0].function"),
    "a custom tool that is a list": ({"tools": [{"custom": []}]}, "tools[0].custom"),
    "a tool's name that is a number": (
        {"tools": [{"type": "function", "function": {"name": 5}}]},
        "tools[0].function.name",
    ),
}


@pytest.mark.parametrize(("wrong", "where"), WRONG.values(), ids=WRONG)
def test_a_field_of_the_wrong_shape_is_422_and_the_path_is_said(wrong, where):
    error = refused(BODY | wrong)
    assert isinstance(error, BadField)
    assert (error.status, error.code, error.param) == (422, "invalid_field", where)
    assert error.message.startswith(f"{where}: ")


@pytest.mark.parametrize("name", ["model", "messages"])
def test_what_is_required_is_missed(name):
    error = refused({k: v for k, v in BODY.items() if k != name})
    assert (error.status, error.param) == (422, name)


SERVERS = {"mcp_servers": [SERVER]}
CONFLICTS = {
    "code execution": ({"tools": [{"type": "otari_code_execution"}]}, "tools[0].type"),
    "web search": ({"tools": [{}, {"type": "otari_web_search"}]}, "tools[1].type"),
    "code execution with servers": (
        SERVERS | {"tools": [{"type": "otari_code_execution"}]},
        "tools[0].type",
    ),
    "web search with ids": (
        {"mcp_server_ids": [UUID], "tools": [{"type": "otari_web_search"}]},
        "tools[0].type",
    ),
    "two servers of one name": (
        {"mcp_servers": [SERVER, SERVER | {"name": "b"}, SERVER | {"url": "https://b"}]},
        "mcp_servers[2].name",
    ),
    "a toolset that names an inline server": (
        SERVERS | {"tools": [{"type": "mcp_toolset", "mcp_server_name": "docs"}]},
        "tools[0].mcp_server_name",
    ),
}


@pytest.mark.parametrize(("wrong", "where"), CONFLICTS.values(), ids=CONFLICTS)
def test_what_can_not_go_together_is_400_and_the_path_is_said(wrong, where):
    error = refused(BODY | wrong)
    assert isinstance(error, Conflict)
    assert (error.status, error.code, error.param) == (400, "invalid_request", where)


def test_tools_of_the_seed_say_whether_they_are_refused_alone_or_with_servers():
    alone = refused(BODY | {"tools": [{"type": "otari_web_search"}]})
    together = refused(BODY | SERVERS | {"tools": [{"type": "otari_web_search"}]})
    assert "not served" in alone.message
    assert "combined" in together.message


def test_a_secret_is_in_no_message_wherever_it_stands_and_in_no_repr():
    wrong = [
        {"mcp_servers": [SERVER | {"authorization_token": SECRET, "url": 5}]},
        {"mcp_servers": [SERVER | {"authorization_token": [SECRET]}]},
        {"mcp_servers": [{"name": SECRET * 9, "url": "x", "authorization_token": SECRET}]},
        {"mcp_servers": SECRET},
        {"mcp_servers": {SECRET: SECRET}},
        {"mcp_server_ids": [SECRET]},
        {"orazaka_tools": SECRET},
        {"orazaka_servers": SECRET},
        {"orazaka_commit": SECRET},
        {"max_tool_iterations": SECRET},
        {"tools": SECRET},
        {"tools": [SECRET]},
        {"stream": SECRET},
        {"messages": [{"role": "user", "content": [SECRET]}]},
        {"messages": [SECRET]},
    ]
    for body in wrong:
        error = refused(BODY | body)
        told = f"{error.message} {error!r} {error.param} {error.__cause__!r}"
        assert not any(SECRET[at : at + 4] in told for at in range(len(SECRET) - 3))
        assert error.__cause__ is None or not isinstance(error, BadField)
    broken = refused(b'{"authorization_token": "' + SECRET.encode() + b'", ')
    assert SECRET not in f"{broken.message} {broken!r}"
    fields = take(parse(orjson.dumps({"mcp_servers": [SERVER | {"authorization_token": SECRET}]})))
    assert SECRET not in f"{fields!r} {fields} {fields.model_dump()} {fields.model_dump_json()}"


# --- what must be accepted

ACCEPTED = {
    "nothing of ours": {},
    "nulls for all of ours": dict.fromkeys(
        [
            "mcp_servers",
            "mcp_server_ids",
            "max_tool_iterations",
            "orazaka_tools",
            "orazaka_servers",
            "orazaka_commit",
            "orazaka_trace",
            "tools_header",
        ]
    ),
    "no servers": {"mcp_servers": [], "mcp_server_ids": []},
    "50 servers": {"mcp_servers": [SERVER | {"name": f"n{n}"} for n in range(50)]},
    "50 ids": {"mcp_server_ids": [UUID] * 50},
    "the longest name, URL and hint": {
        "mcp_servers": [{"name": "n" * 128, "url": "h" * 2048, "purpose_hint": "h" * 2000}]
    },
    "nulls in a server": {
        "mcp_servers": [
            SERVER
            | dict.fromkeys(
                ["authorization_token", "purpose_hint", "allowed_tools", "tool_configuration"]
            )
        ]
    },
    "unknown members of a server": {"mcp_servers": [SERVER | {"type": "url", "x": {"y": [None]}}]},
    "a name of any kind": {"mcp_servers": [SERVER | {"name": "Wetter ☀ / §"}]},
    "the limits of rounds": {"max_tool_iterations": 25},
    "one round": {"max_tool_iterations": 1},
    "the longest header": {"tools_header": "h" * 4000},
    "words": {"orazaka_tools": "none", "orazaka_servers": "auto", "orazaka_commit": "manual"},
    "lists": {"orazaka_tools": ["a", "b"], "orazaka_servers": [UUID.upper()]},
    "a trace": {"orazaka_trace": True},
    "unknown fields": {"x_vendor": {"deep": [1, None]}, "temperature": None, "metadata": {}},
    "a stream": {"stream": True, "stream_options": {"include_usage": True, "x": 1}},
    "nulls for the provider's": dict.fromkeys(
        ["stream", "stream_options", "response_format", "n", "tool_choice"]
    ),
    "no tools": {"tools": []},
    "the provider's own kinds of tools": {
        "tools": [
            {"type": "mcp", "server_label": "x", "server_url": "https://a"},
            {"type": "web_search_preview"},
            {"type": "custom", "custom": {"name": "sql"}},
            {"name": "f", "input_schema": {}},
            {"type": "mcp_toolset", "mcp_server_name": "another"},
        ]
    },
    "an assistant's answer of any kind": {
        "messages": [
            {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "x": 1}]},
            {"role": "assistant", "tool_calls": None, "refusal": "no"},
            {"role": "assistant", "content": [{"type": "text", "text": "x"}]},
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}]},
        ]
    },
}


@pytest.mark.parametrize("more", ACCEPTED.values(), ids=ACCEPTED)
def test_what_is_sound_is_accepted_and_only_ours_is_taken_out(more):
    body, _ = checked(BODY | more)
    ours = ("mcp_", "orazaka_", "max_tool_iterations", "tools_header")
    assert body == {k: v for k, v in (BODY | more).items() if not k.startswith(ours)}


def test_a_body_with_nothing_of_ours_has_the_defaults():
    _, fields = checked(BODY)
    assert fields is NONE
    assert fields.rounds == 10
    assert checked(BODY | {"max_tool_iterations": None})[1].rounds == 10
    assert checked(BODY | {"max_tool_iterations": 3})[1].rounds == 3


@pytest.mark.parametrize("token", ["", None])
def test_an_empty_token_is_none(token):
    _, fields = checked(BODY | {"mcp_servers": [SERVER | {"authorization_token": token}]})
    assert fields.mcp_servers[0].authorization_token is None


ALLOWED = {
    "all": ({}, None),
    "null": ({"allowed_tools": None}, None),
    "none": ({"allowed_tools": []}, set()),
    "some": ({"allowed_tools": ["a", "b", "a"]}, {"a", "b"}),
    "some as Anthropic says it": ({"tool_configuration": {"allowed_tools": ["a"]}}, {"a"}),
    "none as Anthropic says it": ({"tool_configuration": {"allowed_tools": []}}, set()),
    "not enabled": ({"allowed_tools": ["a"], "tool_configuration": {"enabled": False}}, set()),
    "enabled": ({"tool_configuration": {"enabled": True}}, None),
    "both": (
        {"allowed_tools": ["a", "b"], "tool_configuration": {"allowed_tools": ["b", "c"]}},
        {"b"},
    ),
    "an empty configuration": ({"allowed_tools": ["a"], "tool_configuration": {}}, {"a"}),
}


@pytest.mark.parametrize(("more", "allowed"), ALLOWED.values(), ids=ALLOWED)
def test_the_tools_that_a_server_may_bring(more, allowed):
    _, fields = checked(BODY | {"mcp_servers": [SERVER | more]})
    assert fields.mcp_servers[0].allowed() == allowed


def test_a_body_of_a_million_values_is_refused_before_it_is_read():
    with pytest.raises(OrazakaError, match="at most"):
        parse(b'{"a": [' + b"[]," * 1_000_000 + b"[]]}")
