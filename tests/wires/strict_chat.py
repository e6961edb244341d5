"""Chat completions as a strict provider speaks them: what it refuses, and what it answers."""

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from tests.wires.refusals import Refused, check_name, check_schema, demand
from tests.wires.script import Answer, Seen, words

Json = Any
OURS = re.compile(r"mcp_servers|mcp_server_ids|max_tool_iterations|tools_header|(orazaka|otari)_.*")


class Chat:
    """`/v1/chat/completions`: what it refuses, and its answers, whole or as events."""

    PARTS = {
        "user": {"text", "image_url", "input_audio", "file"},
        "assistant": {"text", "refusal"},
    }
    ROLES = {"system", "developer", "user", "assistant", "tool", "function"}

    def check(self, body: Json) -> None:
        """Raises Refused for what real providers refuse."""
        for name in body:
            demand(not OURS.fullmatch(name), f"Unrecognized request argument: {name}", name)
        demand(isinstance(body.get("model"), str), "you must provide a model parameter", "model")
        streams = body.get("stream") or "stream_options" not in body
        demand(streams, "'stream_options' is only allowed when 'stream' is on", "stream_options")
        self._check_messages(body.get("messages"))
        self._check_tools(body)

    def _check_messages(self, messages: Json) -> None:
        demand(messages and isinstance(messages, list), "[] is too short", "messages")
        waiting: list[str] = []
        for place, message in enumerate(messages):
            at = f"messages[{place}]"
            demand(isinstance(message, dict), "a message must be an object", at)
            demand(message.get("role") in self.ROLES, "no such role", f"{at}.role")
            if message["role"] == "tool":
                answers = message.get("tool_call_id")
                demand(
                    answers in waiting,
                    "role 'tool' must answer a preceding tool call",
                    f"{at}.role",
                )
                waiting.remove(answers)
            else:
                demand(not waiting, f"tool calls without a response: {waiting}", f"{at}.role")
                waiting = self._check_calls(message, at)
            self._check_content(message, at)
        demand(not waiting, f"tool calls without a response: {waiting}", "messages")

    def _check_calls(self, message: Json, at: str) -> list[str]:
        if "tool_calls" not in message:
            return []
        calls, at = message["tool_calls"], f"{at}.tool_calls"
        demand(message["role"] == "assistant", "only an assistant calls tools", at)
        demand(calls and isinstance(calls, list), "[] is too short", at)
        for place, call in enumerate(calls):
            function, here = call.get("function") or {}, f"{at}[{place}]"
            demand(call.get("id") and isinstance(call["id"], str), "id is required", f"{here}.id")
            demand(call.get("type") == "function", "no such type", f"{here}.type")
            check_name(function.get("name"), f"{here}.function.name")
            text = isinstance(function.get("arguments"), str)
            demand(text, "arguments must be a string", f"{here}.function.arguments")
        ids = [call["id"] for call in calls]
        demand(len(set(ids)) == len(ids), "duplicate tool call ids", at)
        return ids

    def _check_content(self, message: Json, at: str) -> None:
        content, at = message.get("content"), f"{at}.content"
        if content is None:
            instead = ("tool_calls", "function_call", "refusal", "audio")
            spoken = message["role"] == "assistant" and any(message.get(kind) for kind in instead)
            demand(spoken, "expected a string, got null", at)
        elif not isinstance(content, str):
            demand(content and isinstance(content, list), "must be a string or parts", at)
            allowed = self.PARTS.get(message["role"], {"text"})
            for place, part in enumerate(content):
                fits = isinstance(part, dict) and part.get("type") in allowed
                demand(fits, f"{message['role']} takes {sorted(allowed)} parts", f"{at}[{place}]")
                legal = part["type"] != "text" or isinstance(part.get("text"), str)
                demand(legal, "text must be a string", f"{at}[{place}].text")

    def _check_tools(self, body: Json) -> None:
        tools = body.get("tools")
        if tools is None:
            for name in ("tool_choice", "parallel_tool_calls"):
                demand(name not in body, f"'{name}' is only allowed when 'tools' are", name)
            return
        demand(tools and isinstance(tools, list), "[] is too short", "tools")
        demand(len(tools) <= 128, "array too long: at most 128 tools", "tools")
        names = []
        for place, tool in enumerate(tools):
            at = f"tools[{place}]"
            demand(isinstance(tool, dict), "a tool must be an object", at)
            demand(tool.get("type") == "function", "no such type of tool", f"{at}.type")
            function = tool.get("function") or {}
            names.append(check_name(function.get("name"), f"{at}.function.name"))
            described = isinstance(function.get("description", ""), str)
            demand(described, "description must be a string", f"{at}.function.description")
            if "parameters" in function:
                check_schema(function["parameters"], f"{at}.function.parameters")
        demand(len(set(names)) == len(names), "tool names must be unique", "tools")
        self._check_choice(body.get("tool_choice", "auto"), set(names))

    def _check_choice(self, choice: Json, names: set[str]) -> None:
        if isinstance(choice, str):
            demand(choice in ("none", "auto", "required"), "no such choice", "tool_choice")
            return
        demand(isinstance(choice, dict), "no such choice", "tool_choice")
        allowed = (choice.get("allowed_tools") or {}).get("tools") or []
        for one in allowed or [choice]:
            known = (one.get("function") or {}).get("name") in names
            demand(known, "tool_choice names a tool that is not in 'tools'", "tool_choice")

    def seen(self, body: Json) -> Seen:
        """Since the script. A user's images right after tool results are part of the results."""
        seen, before = Seen(), ""
        for message in body["messages"]:
            role, content = message["role"], message.get("content") or ""
            if role == "user" and not (before == "tool" and "image_url" in str(content)):
                seen = Seen(script=self._text(content))
            elif role == "tool":
                seen.results.append(self._text(content))
            elif calls := message.get("tool_calls"):
                seen.played += 1
                seen.called |= {call["function"]["name"] for call in calls}
            before = role
        seen.offered = {tool["function"]["name"] for tool in body.get("tools") or []}
        seen.may_call = body.get("tool_choice") != "none"
        return seen

    def _text(self, content: Json) -> str:
        if isinstance(content, str):
            return content
        return "\n".join(part["text"] for part in content if part["type"] == "text")

    def reply(self, answer: Answer, body: Json) -> Json:
        """The whole answer."""
        message: dict[str, Json] = {"role": "assistant", "content": answer.text or None}
        message["refusal"] = None
        if "THINK" in answer.round:
            message["reasoning_content"] = answer.round.said["THINK"]
        if answer.calls:
            message["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for id, name, arguments in answer.calls
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
        return {**self._frame("chat.completion", answer, body), "choices": [choice]} | (
            {} if "NOUSAGE" in answer.round else {"usage": self._usage(answer)}
        )

    def events(self, answer: Answer, body: Json) -> Iterator[bytes]:
        """The answer as server-sent events."""
        asked = bool((body.get("stream_options") or {}).get("include_usage"))
        frame = self._frame("chat.completion.chunk", answer, body)

        def event(choices: list[Json], usage: Json = None) -> bytes:
            chunk = {**frame, "choices": choices, **({"usage": usage} if asked else {})}
            return b"data: " + json.dumps(chunk).encode() + b"\n\n"

        def delta(fields: Json, finish: str | None = None) -> bytes:
            one = {"index": 0, "delta": fields, "logprobs": None, "finish_reason": finish}
            return event([one])

        yield delta({"role": "assistant", "content": "" if answer.text else None, "refusal": None})
        for word in words(answer.round.said.get("THINK", "")):
            yield delta({"reasoning_content": word})
        for word in words(answer.text):
            yield delta({"content": word})
        if "ERROR" in answer.round:
            failed = self.error(Refused(answer.round.said["ERROR"], status=500))
            yield b"data: " + json.dumps(failed).encode() + b"\n\n"
            return
        for fragment in self._fragments(answer):
            yield delta({"tool_calls": [fragment]})
        yield delta({}, answer.finish)
        if asked and "NOUSAGE" not in answer.round:
            yield event([], self._usage(answer))
        yield b"data: [DONE]\n\n"

    def _fragments(self, answer: Answer) -> Iterator[Json]:
        mixed, bare = "INTERLEAVE" in answer.round, "NOINDEX" in answer.round
        calls: list[list[Json]] = []
        for index, (id, name, arguments) in enumerate(answer.calls):
            where: dict[str, Json] = {} if bare else {"index": index}
            head = {"id": id, "type": "function", "function": {"name": name, "arguments": ""}}
            same = {"id": id} if bare and mixed else {}
            pieces = [{"arguments": part} for part in re.findall(r"(?s).{1,6}", arguments)]
            calls.append([where | head, *(where | same | {"function": part} for part in pieces)])
        order = zip_longest(*calls) if mixed else calls
        return (fragment for turn in order for fragment in turn if fragment)

    def _frame(self, kind: str, answer: Answer, body: Json) -> dict[str, Json]:
        return {
            "id": f"chatcmpl-{answer.serial}",
            "object": kind,
            "created": 1_790_000_000 + answer.serial,
            "model": body["model"],
            "system_fingerprint": "fp_strict",
        }

    def _usage(self, answer: Answer) -> Json:
        n = answer.number
        return {
            "prompt_tokens": 100 * n,
            "completion_tokens": 10 * n,
            "total_tokens": 110 * n,
            "prompt_tokens_details": {"cached_tokens": 5 * n},
            "completion_tokens_details": {"reasoning_tokens": 2 * n},
        }

    def error(self, refused: Refused) -> Json:
        """OpenAI's envelope."""
        kind = "invalid_request_error" if refused.status < 500 else "server_error"
        detail = {"message": refused.message, "type": kind, "param": refused.param, "code": None}
        return {"error": detail}
