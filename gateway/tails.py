"""Tails: nothing of a turn is lost when its client goes on with the results of its own calls.

A turn with rounds that the client did not see ends in a call of the client's: what it appended is
kept as a row under each of those calls' ids, and replaces the client's copy of that answer when it
comes back (design, decision 9). Providers repeat call ids and clients write arguments anew, so a
row is found by caller and id, and recognised by the calls themselves and by the words that they
answered, unless the client has trimmed those away.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.utils import timezone

from gateway.models import Tail as Row
from gateway.wire import Tail
from orazaka.writer import storable
from tools.base import ToolCall

Json = Any

KEPT = timedelta(hours=24)
LOOKED_UP = 1000  # call ids of one conversation; databases limit what one query may name


def save(
    tail: Tail,
    calls: Sequence[ToolCall],
    *,
    principal: str,
    wire: str,
    turn_id: UUID,
    messages: Sequence[Json],
) -> None:
    """Keep what the turn appended under each of the client's calls (blocking, one insert)."""
    now = timezone.now()
    content = storable({"messages": tail.messages, "after": tail.after})
    digest, words = calls_digest(calls), words_digest(messages)
    Row.objects.bulk_create(
        Row(
            principal=principal,
            wire=wire,
            call_id=_key(call.id),
            calls_digest=digest,
            words_digest=words,
            turn_id=turn_id,
            content=content,
            created_at=now,
        )
        for call in calls
    )


def find(ids: Iterable[str], *, principal: str, wire: str) -> list[Row]:
    """The caller's rows for these call ids, newest first (blocking)."""
    return list(
        Row.objects.filter(
            principal=principal,
            wire=wire,
            call_id__in={_key(id) for id in ids},
            created_at__gte=timezone.now() - KEPT,
        ).order_by("-created_at", "-pk")
    )


def calls_of(message: Json) -> list[ToolCall]:
    """The calls in an assistant's chat message, as the client sent it back."""
    if message.get("role") != "assistant":
        return []
    calls = []
    for call in message.get("tool_calls") or []:
        body = call.get("function") or call.get("custom")
        if isinstance(call.get("id"), str) and isinstance(body, dict):
            arguments = body.get("arguments", body.get("input"))
            said = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
            calls.append(ToolCall(call["id"], str(body.get("name")), said))
    return calls


def ids_in(messages: Sequence[Json]) -> list[str]:
    """The ids of the calls in a conversation, the last LOOKED_UP of them."""
    ids = dict.fromkeys(call.id for message in messages for call in calls_of(message))
    return list(ids)[-LOOKED_UP:]


def restored(messages: Sequence[Json], rows: Sequence[Row]) -> list[Json]:
    """The conversation with the client's copies of such answers replaced by all that stood there.

    The client's results follow what was kept, and then the images that must not stand between.
    """
    whole: list[Json] = []
    after: list[Json] = []
    for at, message in enumerate(messages):
        if after and message.get("role") != "tool":
            whole, after = whole + after, []
        row = _match(calls_of(message), messages[:at], rows)
        if row is None:
            whole.append(message)
        else:
            whole += row.content["messages"]
            after = row.content["after"]
    return whole + after


def _match(calls: Sequence[ToolCall], before: Sequence[Json], rows: Sequence[Row]) -> Row | None:
    if not calls:
        return None
    digest, ids = calls_digest(calls), {_key(call.id) for call in calls}
    same = [row for row in rows if row.call_id in ids and row.calls_digest == digest]
    words = words_digest(before)
    return next((row for row in same if row.words_digest == words or not words), None)


def calls_digest(calls: Iterable[ToolCall]) -> str:
    """What the calls ask for, however the client writes their arguments or orders them."""
    said = sorted((call.id, call.name, _canonical(call.arguments)) for call in calls)
    return sha256(repr(said).encode(errors="replace")).hexdigest()


def words_digest(messages: Sequence[Json]) -> str:
    """The user's last words, without regard to white space and to how their parts are written."""
    for message in reversed(messages):
        if message.get("role") == "user":
            content = message.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            words = " ".join(str(part.get("text") or "") for part in parts)
            return sha256(" ".join(words.split()).encode(errors="replace")).hexdigest()
    return ""


def _canonical(arguments: str) -> str:
    """The arguments as any writer of JSON means them: to some 1.0 is 1."""
    try:
        return json.dumps(json.loads(arguments or "{}", parse_float=_number), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number


def _key(id: str) -> str:
    """A call's id as a column of the table holds it."""
    return id.replace("\0", "\ufffd")[:255]
