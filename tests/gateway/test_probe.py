"""Testing a provider: what is found is said in plain words, in time, without its key."""

import asyncio
import json

import pytest
from aiohttp import web
from django.core.management import CommandError, call_command

from gateway.models import Provider, ProviderTest
from gateway.probe import probe, probe_alone, session
from gateway.providers import Peer, from_environment
from tests.orazaka.http_server import serve

KEY = "sk-SECRET-0123456789"


def peer(port, *, key=KEY, wire="chat", models=None, headers=None):
    return Peer(
        name="acme",
        bases={wire: f"http://127.0.0.1:{port}/v1"},
        key=key,
        models=models,
        headers=headers or {},
    )


def replying(status=200, body='{"data": []}', headers=None):
    async def answer(request):
        return web.Response(status=status, text=body, headers=headers)

    return answer


def listing(*names):
    return replying(body=json.dumps({"data": [{"id": name} for name in names]}))


async def outcome_of(answer, *, seconds=5, **more):
    async with serve(answer) as server, session() as own:
        outcome = await probe(peer(server.port, **more), own, seconds=seconds)
    assert KEY not in repr(outcome)
    return outcome, server


async def test_a_provider_that_works_says_what_it_has():
    outcome, server = await outcome_of(listing("b", "a", "d", "c"))
    assert outcome.ok
    assert outcome.words == "Works: 4 models (a, b, c, …)."
    [asked] = server.asked
    assert (asked.method, asked.target) == ("GET", "/v1/models")
    assert asked.headers["authorization"] == f"Bearer {KEY}"


async def test_a_model_that_the_row_names_and_the_provider_has_not_is_named():
    outcome, _ = await outcome_of(listing("models/a"), models=("a", "b"))
    assert outcome.ok
    assert outcome.words == "Works: 1 model (models/a). It does not list b."


async def test_the_messages_api_gets_its_own_headers():
    _, server = await outcome_of(listing("a"), wire="messages")
    headers = server.asked[0].headers
    assert headers["x-api-key"] == KEY
    assert headers["anthropic-version"]
    assert "authorization" not in headers


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (replying(401, f'{{"error": "bad key {KEY}"}}'), "The provider refused the key (401)."),
        (replying(403), "The provider refused the key (403)."),
        (replying(402), "wants to be paid first"),
        (replying(429), "its limit is used up"),
        (replying(404), "no list of models at this URL (404)"),
        (replying(500, f'{{"error": {{"message": "no {KEY}."}}}}'), "status 500: no ***."),
        (replying(500, "<html>"), "The provider answered with the status 500."),
        (replying(302, headers={"location": "http://x/"}), "redirect (HTTP 302)"),
        (replying(200, "<html>hello"), "is not JSON"),
        (replying(200, "[1]"), "no list of models"),
        (replying(200, '{"data": [1]}'), "no list of models"),
        (replying(200, '{"data": 5}'), "no list of models"),
        (replying(200, "x" * 5_000_000), "too large"),
    ],
)
async def test_what_is_wrong_is_one_plain_sentence(answer, words):
    outcome, _ = await outcome_of(answer)
    assert not outcome.ok
    assert words in outcome.words
    assert outcome.words[0].isupper()


async def test_without_a_key_the_provider_wants_one():
    outcome, server = await outcome_of(replying(401), key="")
    assert outcome.words == "The provider wants a key, and none is stored (401)."
    assert "authorization" not in server.asked[0].headers


async def test_a_header_that_is_repeated_is_hidden_too():
    answer = replying(500, '{"error": "no hush-hush-hush here"}')
    outcome, _ = await outcome_of(answer, headers={"x-team": "hush-hush-hush"})
    assert "hush" not in outcome.words


async def test_nobody_there_is_said():
    outcome = await probe_alone(peer(1))
    assert outcome.words == "It can't be reached: Connection refused."


async def test_silence_has_an_end():
    async def silent(request):
        await asyncio.sleep(60)

    outcome, _ = await outcome_of(silent, seconds=0.1)
    assert outcome.words == "No answer within 0.1 seconds."


async def test_a_provider_without_a_list_is_asked_for_one_token():
    async def answer(request):
        if request.method == "GET":
            return web.Response(status=404)
        return web.json_response({"choices": []})

    outcome, server = await outcome_of(answer, models=("m-1",))
    assert outcome.words == "Works: m-1 answered. The provider lists no models."
    sent = json.loads(server.asked[1].body)
    assert (server.asked[1].target, sent["model"], sent["max_tokens"]) == (
        "/v1/chat/completions",
        "m-1",
        1,
    )


@pytest.mark.parametrize("body", ["<html>", "[]"])
async def test_an_answer_that_is_none_is_not_taken_for_one(body):
    async def answer(request):
        return web.Response(status=404 if request.method == "GET" else 200, text=body)

    outcome, _ = await outcome_of(answer, models=("m-1",))
    assert not outcome.ok


async def test_a_provider_without_urls_is_told_so():
    outcome = await probe_alone(Peer(name="acme", bases={}))
    assert outcome.words == "It has no base URL: give one for a wire that it speaks."


async def test_the_built_in_model_needs_no_network():
    assert (await probe_alone(from_environment()["demo"])).ok


# --- the command ---


@pytest.mark.django_db
def test_the_command_says_what_was_found_and_remembers_it(capsys):
    row = Provider.objects.create(name="acme", chat_url="http://127.0.0.1:1/v1", api_key=KEY)
    with pytest.raises(CommandError, match="can't be reached"):
        call_command("testprovider", "acme")
    test = ProviderTest.objects.get(provider=row)
    assert (test.ok, test.words) == (False, "It can't be reached: Connection refused.")


@pytest.mark.django_db
def test_the_command_names_the_providers_that_there_are(settings):
    settings.OPENAI_API_KEY = settings.ANTHROPIC_API_KEY = ""
    with pytest.raises(CommandError, match="no provider 'nobody'; there are: demo"):
        call_command("testprovider", "nobody")


@pytest.mark.django_db
def test_the_command_tests_the_environments_providers_too(capsys):
    call_command("testprovider", "demo")
    assert "Works" in capsys.readouterr().out
