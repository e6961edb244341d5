"""`/api/v1/turns`: whose turns one sees, filters, pages, and a turn with its steps."""

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from gateway.models import Turn
from tests.factories import UserFactory
from tests.gateway.rows import START, step, turn
from tests.rest import Rest, by_key, problem, staff

pytestmark = pytest.mark.django_db
Json = Any


def ids(response: Any) -> list[str]:
    assert response.status_code == 200, response.content
    return [result["id"] for result in response.json()["results"]]


def named(*turns: Turn) -> list[str]:
    return [str(turn.pk) for turn in turns]


# --- Whose ----------------------------------------------------------------------------------------
def test_the_owner_sees_the_turns_of_all_its_keys_the_newest_first() -> None:
    user = UserFactory.create()
    first, third, second = turn(user, key_id=1), turn(user, at=2), turn(user, at=1, key_id=2)
    turn()
    for caller in (by_key(user), Rest(user=user)):
        assert ids(caller.get("turns")) == named(third, second, first)


def test_staff_with_the_permission_sees_everyones() -> None:
    users = [UserFactory.create() for _ in range(2)]
    turns = [turn(user, at=-at) for at, user in enumerate(users)]
    for caller in (by_key(staff("view_turn")), Rest(user=staff("view_turn"))):
        response = caller.get("turns")
        assert ids(response) == named(*turns)
        assert [r["user"] for r in response.json()["results"]] == [user.username for user in users]
        assert caller.get(f"turns/{turns[0].pk}").status_code == 200


def others() -> list[User]:
    """Users who may see only their own."""
    permitted = staff("view_turn")
    permitted.is_staff = False
    permitted.save()
    return [UserFactory.create(), staff(), staff("view_tail", "view_provider"), permitted]


def test_others_see_only_their_own() -> None:
    theirs = turn()
    for user in others():
        own = turn(user)
        caller = by_key(user)
        assert ids(caller.get("turns")) == named(own)
        assert caller.get("turns").json()["count"] == 1
        problem(caller.get(f"turns/{theirs.pk}"), 404)
        assert caller.get(f"turns/{own.pk}").status_code == 200


def test_without_a_key_it_is_a_401() -> None:
    problem(Rest().get("turns"), 401)
    problem(Rest().get(f"turns/{turn().pk}"), 401)
    problem(by_key(scopes=["gateway"]).get("turns"), 403)


# --- The list -------------------------------------------------------------------------------------
def test_a_listed_turn_says_what_it_was_and_used() -> None:
    user = UserFactory.create(username="ada")
    kept = turn(
        user,
        request_id="r1",
        key_id=7,
        wire="messages",
        streamed=True,
        status="error",
        error_code="upstream_error",
        error="the provider failed",
        rounds=2,
        tool_calls=3,
        prompt_tokens=100,
        completion_tokens=20,
        cached_tokens=10,
        cache_write_tokens=5,
        reasoning_tokens=2**40,
        first_output_ms=3.5,
    )
    assert by_key(user).get("turns").json() == {
        "count": 1,
        "next": None,
        "previous": None,
        "results": [
            {
                "id": str(kept.pk),
                "requestId": "r1",
                "user": "ada",
                "keyId": 7,
                "wire": "messages",
                "model": "demo:demo",
                "streamed": True,
                "status": "error",
                "errorCode": "upstream_error",
                "error": "the provider failed",
                "rounds": 2,
                "toolCalls": 3,
                "usage": {
                    "promptTokens": 100,
                    "completionTokens": 20,
                    "cachedTokens": 10,
                    "cacheWriteTokens": 5,
                    "reasoningTokens": 2**40,
                },
                "startedAt": "2026-11-01T00:00:00Z",
                "durationMs": 12.5,
                "firstOutputMs": 3.5,
            }
        ],
    }


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ({}, [3, 2, 1, 0]),
        ({"status": "error"}, [3, 1]),
        ({"wire": "messages"}, [3, 2]),
        ({"model": "openai:gpt-5"}, [2]),
        ({"model": "gpt-5"}, []),
        ({"since": "2026-11-01T00:00:02Z"}, [3, 2]),
        ({"since": "2026-11-01T03:00:03+03:00"}, [3]),
        ({"since": "2026-11-01T00:00:02"}, [3, 2]),
        ({"since": "2999-01-01T00:00:00Z"}, []),
        ({"status": "error", "wire": "chat", "since": "2026-11-01"}, [1]),
        ({"unknown": "x"}, [3, 2, 1, 0]),
    ],
)
def test_filters_narrow_the_list_and_its_count(query: Json, numbers: list[int]) -> None:
    user = UserFactory.create()
    turns = [
        turn(user, at=0),
        turn(user, at=1, status="error"),
        turn(user, at=2, wire="messages", model="openai:gpt-5"),
        turn(user, at=3, wire="messages", status="error"),
    ]
    response = by_key(user).get("turns", **query)
    assert ids(response) == named(*(turns[number] for number in numbers))
    assert response.json()["count"] == len(numbers)


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ({"status": "fine"}, "status"),
        ({"status": ""}, "status"),
        ({"wire": "\0"}, "wire"),
        ({"model": ""}, "model"),
        ({"model": "a\0b"}, "model"),
        ({"model": "x" * 256}, "model"),
        ({"since": "yesterday"}, "since"),
        ({"since": "0001-01-01T00:00:00+14:00"}, "since"),
        ({"pageSize": "0"}, "pageSize"),
        ({"pageSize": "201"}, "pageSize"),
        ({"pageSize": "-1"}, "pageSize"),
        ({"pageSize": "9" * 5000}, "pageSize"),
        ({"pageSize": "²"}, "pageSize"),
        ({"pageSize": ""}, "pageSize"),
        ({"cursor": "x"}, "cursor"),
        ({"cursor": "é"}, "cursor"),
        ({"cursor": "cD14"}, "cursor"),  # p=x
        ({"cursor": "cD0lMDA="}, "cursor"),  # p=%00
        ({"cursor": "cD0yMDI2LTEzLTAx"}, "cursor"),  # p=2026-13-01
        ({"cursor": "bz14"}, "cursor"),  # o=x
    ],
)
def test_a_filter_or_page_that_makes_no_sense_is_a_400_that_names_it(
    query: Json, path: str
) -> None:
    body = problem(by_key().get("turns", **query), 400)
    assert [error["path"] for error in body["errors"]] == [path]


@pytest.mark.parametrize("cursor", ["", "bz05OTk5", "cj0x", "cD0wMDAxLTAxLTAxKzE0OjAw"])
def test_odd_cursors_are_an_answer_or_a_400(cursor: str) -> None:
    """Nothing, a far offset, backwards from nowhere, before the first of all times."""
    user = UserFactory.create()
    turn(user)
    assert by_key(user).get("turns", cursor=cursor).status_code in (200, 400)


# --- Pages ----------------------------------------------------------------------------------------
def walk(caller: Rest, link: str, *, by: str) -> list[list[str]]:
    """The pages that the links lead to, from the first on."""
    pages = []
    while link:
        response = caller.client.get(link)
        pages.append(ids(response))
        link = response.json()[by]
    return pages


def test_links_lead_through_all_pages_and_back() -> None:
    user = UserFactory.create()
    turns = [turn(user, at=at) for at in range(7, 0, -1)]
    caller = by_key(user)
    pages = walk(caller, "/api/v1/turns?pageSize=3", by="next")
    expected = named(*turns)
    assert pages == [expected[:3], expected[3:6], expected[6:]]
    last = caller.get("turns", pageSize=3)
    while link := last.json()["next"]:
        last = caller.client.get(link)
    assert walk(caller, last.json()["previous"], by="previous") == [expected[3:6], expected[:3]]


def test_turns_of_one_moment_are_each_on_one_page() -> None:
    user = UserFactory.create()
    turns = [turn(user) for _ in range(7)]
    pages = walk(by_key(user), "/api/v1/turns?pageSize=2", by="next")
    assert sorted(id for page in pages for id in page) == sorted(named(*turns))


def test_a_turn_that_comes_meanwhile_shifts_nothing() -> None:
    user = UserFactory.create()
    turns = [turn(user, at=at) for at in range(4, 0, -1)]
    caller = by_key(user)
    link = caller.get("turns", pageSize=2).json()["next"]
    turn(user, at=9)
    assert ids(caller.client.get(link)) == named(*turns[2:])


def test_links_keep_the_filters() -> None:
    user = UserFactory.create()
    errors = [turn(user, at=at, status="error") for at in (5, 3, 1)]
    for at in (4, 2, 0):
        turn(user, at=at)
    query = urlencode({"status": "error", "pageSize": 1, "since": "2026-10-01T00:00:00+02:00"})
    pages = walk(by_key(user), f"/api/v1/turns?{query}", by="next")
    assert pages == [[id] for id in named(*errors)]


def test_a_page_has_50_turns_and_at_most_200() -> None:
    user = UserFactory.create()
    Turn.objects.bulk_create(turn_of(user, at) for at in range(210))
    caller = by_key(user)
    assert len(ids(caller.get("turns"))) == 50
    assert len(ids(caller.get("turns", pageSize=200))) == 200
    assert caller.get("turns").json()["count"] == 210


def turn_of(user: User, at: int) -> Turn:
    return Turn(
        principal=f"user:{user.pk}",
        wire="chat",
        model="m",
        streamed=False,
        status="ok",
        started_at=START + timedelta(seconds=at),
        duration_ms=1,
    )


def test_a_count_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orazaka.pages.MOST_COUNTED", 3)
    user = UserFactory.create()
    for _ in range(5):
        turn(user)
    body = by_key(user).get("turns").json()
    assert (body["count"], len(body["results"])) == (3, 5)


def test_a_page_takes_the_same_queries_however_many_turns_it_has(
    django_assert_num_queries,
) -> None:
    caller = Rest(user=staff("view_turn"))
    for _ in range(5):
        turn()
    with django_assert_num_queries(6):  # session, user, two of permissions, page, count
        assert len(ids(caller.get("turns"))) == 5


# --- One turn -------------------------------------------------------------------------------------
def test_a_turn_has_its_steps_in_the_order_of_their_starts() -> None:
    user = UserFactory.create()
    offered = [{"name": "weekday", "source": "inline:sample", "reason": "named in the request"}]
    kept = turn(user, offered=offered)
    step(kept, 1, server="sample", started_ms=5.25, detail={"arguments": ["date"]})
    step(kept, 0, kind="model", name="demo", outcome="late", detail={"round": 1, "usage": None})
    step(turn(user), 0)
    whole = by_key(user).get(f"turns/{kept.pk}").json()
    listed = by_key(user).get("turns").json()["results"]
    assert whole.pop("offered") == offered
    assert whole.pop("steps") == [
        {
            "kind": "model",
            "name": "demo",
            "server": "",
            "outcome": "late",
            "startedMs": 1.0,
            "durationMs": 2.0,
            "detail": {"round": 1, "usage": None},
        },
        {
            "kind": "tool",
            "name": "weekday",
            "server": "sample",
            "outcome": "ok",
            "startedMs": 5.25,
            "durationMs": 2.0,
            "detail": {"arguments": ["date"]},
        },
    ]
    assert whole in listed


def test_a_turn_outlives_its_user() -> None:
    kept = turn(user_id=4711, user=None, principal="user:4711", offered=[{"name": "t"}])
    whole = by_key(staff("view_turn")).get(f"turns/{kept.pk}").json()
    assert whole["user"] is None


@pytest.mark.parametrize("id", [str(UUID(int=1)), "x", "1", "0" * 32, "%00", f"{UUID(int=2)}/"])
def test_a_turn_that_is_not_there_is_a_404(id: str) -> None:
    problem(by_key(staff("view_turn")).get(f"turns/{id}"), 404)
