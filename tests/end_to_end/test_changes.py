"""What an operator changes while the server runs takes effect within a second."""

import httpx
import pytest

from tests.end_to_end.processes import until
from tests.wires.strict import StrictProvider

SOON = 1.0  # seconds (spec 3.1, design decision 5)


def ask(server, key, model="openai:strict-1") -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "SAY Hello."}]}
    with server.http(Authorization=f"Bearer {key}") as client:
        return client.post("/v1/chat/completions", json=body)


def test_what_becomes_of_a_key_is_effective_at_once(server, deployment):
    key = deployment.new_key("passing")
    until(lambda: ask(server, key).status_code == 200, SOON)
    change = "UPDATE auth_user SET is_active = ? WHERE username = ?"
    assert deployment.database.change(change, False, "passing") == 1
    until(lambda: ask(server, key).status_code == 401, SOON)
    assert deployment.database.change(change, True, "passing") == 1
    until(lambda: ask(server, key).status_code == 200, SOON)

    deployment.manage("revokekey", key)
    refused = until(lambda: _refusal(server, key), SOON)
    assert refused.status_code == 401
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert ask(server, server.key).status_code == 200, "other keys are as good as before"


def _refusal(server, key) -> httpx.Response | None:
    response = ask(server, key)
    return response if response.status_code != 200 else None


@pytest.fixture
def other():
    """Another provider, which knows another key."""
    with StrictProvider(key="sk-other-provider") as provider:
        yield provider


def test_a_provider_changed_in_the_database_is_used_as_it_is_now(
    server, deployment, provider, other
):
    made = (
        "from gateway.models import Provider; Provider.objects.create(name='rows', "
        f"chat_url='{provider.url}/v1', api_key='sk-other-provider')"
    )
    deployment.manage("shell", "-c", made)
    try:
        # The first one does not know the key, and the gateway says whose fault that is.
        until(lambda: ask(server, server.key, "rows:strict-1").status_code == 502, SOON)
        change = "UPDATE gateway_provider SET chat_url = ? WHERE name = ?"
        assert deployment.database.change(change, f"{other.url}/v1", "rows") == 1
        until(lambda: ask(server, server.key, "rows:strict-1").status_code == 200, SOON)
        assert other.bodies[-1]["model"] == "strict-1"

        change = "UPDATE gateway_provider SET enabled = ? WHERE name = ?"
        assert deployment.database.change(change, False, "rows") == 1
        until(lambda: ask(server, server.key, "rows:strict-1").status_code == 404, SOON)
    finally:
        deployment.database.change("DELETE FROM gateway_provider WHERE name = ?", "rows")
