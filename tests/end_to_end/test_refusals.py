"""What a client gets that asked for something wrong, or whose provider fails."""

import pytest

from tests.end_to_end.asking import Http, Sdk

HELLO = [{"role": "user", "content": "SAY Hello."}]
STREAMS = pytest.mark.parametrize("stream", [False, True])

# what is asked, the SDK's exception, status, code
REFUSALS = [
    pytest.param(
        {"model": "nobody:nothing"}, "NotFoundError", 404, "model_not_found", id="unknown model"
    ),
    pytest.param(
        {"messages": "hello"}, "UnprocessableEntityError", 422, "invalid_field", id="text"
    ),
    pytest.param({"messages": []}, "UnprocessableEntityError", 422, "invalid_field", id="empty"),
    pytest.param(
        {"max_tool_iterations": 99}, "UnprocessableEntityError", 422, "invalid_field", id="rounds"
    ),
    pytest.param(
        {"mcp_servers": [{"name": "a", "url": "http://169.254.169.254/mcp"}]},
        "BadRequestError",
        400,
        "unsafe_url",
        id="metadata address",
    ),
    pytest.param(
        {
            "mcp_servers": [
                {"name": "a", "url": "http://127.0.0.1:9/mcp", "authorization_token": "tok-secret"}
            ]
        },
        "BadRequestError",
        400,
        "unsafe_url",
        id="secret over http",
    ),
    pytest.param(
        {"mcp_servers": [{"name": "gone", "url": "http://127.0.0.1:9/mcp"}]},
        "InternalServerError",
        502,
        None,
        id="unreachable server",
    ),
    pytest.param(
        {"messages": [{"role": "user", "content": "STATUS 400"}]},
        "BadRequestError",
        400,
        "upstream_refused",
        id="provider says 400",
    ),
    pytest.param(
        {"messages": [{"role": "user", "content": "STATUS 404"}]},
        "NotFoundError",
        404,
        "upstream_refused",
        id="provider says 404",
    ),
    pytest.param(
        {"messages": [{"role": "user", "content": "STATUS 401"}]},
        "InternalServerError",
        502,
        None,
        id="provider refuses our key",
    ),
    pytest.param(
        {"messages": [{"role": "user", "content": "STATUS 500"}]},
        "InternalServerError",
        502,
        None,
        id="provider fails",
    ),
    pytest.param(
        {"messages": [{"role": "user", "content": "STATUS 429 17"}]},
        "RateLimitError",
        429,
        "rate_limit_exceeded",
        id="provider is busy",
    ),
]


@STREAMS
@pytest.mark.parametrize(("asked", "_error", "status", "code"), REFUSALS)
def test_a_refusal_has_its_status_and_openais_envelope(
    http, provider, asked, _error, status, code, stream
):
    body = {"model": "openai:strict-1", "messages": HELLO, "stream": stream, **asked}
    response = http.post("/v1/chat/completions", json=body)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    if code:
        assert error["code"] == code
    assert "tok-secret" not in response.text
    if status == 429:
        assert response.headers["retry-after"] == "17"
    assert response.headers["x-request-id"]


@pytest.mark.services
@STREAMS
@pytest.mark.parametrize(("asked", "error", "status", "code"), REFUSALS)
def test_the_sdk_raises_the_exception_that_a_program_expects(
    sdk, provider, asked, error, status, code, stream
):
    body = {"model": "openai:strict-1", "messages": HELLO, "stream": stream, **asked}
    given = sdk.do("chat", body=body)
    assert (given["error"], given["status"]) == (error, status), given
    assert code in (None, given["code"])
    if status == 429:
        assert given["headers"]["retry-after"] == "17"


def test_a_key_that_opens_nothing_is_a_401(server):
    with server.http(Authorization="Bearer ozk_nobody") as client:
        response = client.post(
            "/v1/chat/completions", json={"model": "openai:strict-1", "messages": HELLO}
        )
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert "ozk_nobody" not in response.text


@pytest.mark.services
def test_the_sdk_knows_a_key_that_opens_nothing(sdk_process, server):
    stranger = Sdk(sdk_process, base_url=server.url, api_key="ozk_nobody")
    given = stranger.do("chat", body={"model": "openai:strict-1", "messages": HELLO})
    assert (given["error"], given["status"]) == ("AuthenticationError", 401)


@pytest.mark.parametrize("way", ["streamed", "streamed with usage"])
def test_an_error_in_the_middle_of_a_stream_is_an_event_that_ends_it(
    http, deployment, provider, way
):
    answer = Http(http)("SAY So far so good.\nERROR the model fell over", way=way)
    assert answer.reply.text == "So far so good."
    assert "the model fell over" in answer.reply.error["message"]
    assert answer.reply.finish_reason is None
    assert deployment.turn(answer.request_id)["status"] == "error"


@pytest.mark.services
def test_the_sdk_raises_an_error_in_the_middle_of_a_stream(sdk, provider):
    answer = sdk("SAY So far so good.\nERROR the model fell over", way="streamed")
    assert answer.error == "APIError"
    assert "the model fell over" in answer.reply.error["message"]


@pytest.mark.parametrize("way", ["streamed", "streamed with usage"])
def test_a_provider_that_breaks_off_is_an_error_and_not_a_short_answer(
    http, deployment, provider, way
):
    answer = Http(http)("SAY one two three four five\nCUT 3", way=way)
    assert answer.reply.error
    assert answer.reply.finish_reason is None
    assert deployment.turn(answer.request_id)["status"] == "error"


def test_a_provider_that_is_busy_for_a_moment_is_asked_again(ask, provider):
    answer = ask("STATUS 503 0 2\nSAY Back again.")
    assert answer.reply.text == "Back again."
    assert len(provider.bodies) == 3
