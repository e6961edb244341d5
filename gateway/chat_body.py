"""What the gateway changes in a chat completion's body: hints, tool results, tool choice."""

from collections.abc import Collection, Sequence
from typing import Any

from tools.base import Image, ToolCall, ToolResult

Json = Any


def hinted(messages: list[Json], hints: str) -> list[Json]:
    """The conversation with the hints before its first system (or developer) text (spec 3.4)."""
    if not hints:
        return messages
    for at, message in enumerate(messages):
        if message["role"] in ("system", "developer"):
            content = message.get("content")
            if isinstance(content, list):
                content = [{"type": "text", "text": hints}, *content]
            else:
                content = f"{hints}\n\n{content}" if content else hints
            return [*messages[:at], {**message, "content": content}, *messages[at + 1 :]]
    return [{"role": "system", "content": hints}, *messages]


def tool_message(call: ToolCall, result: ToolResult, *, images: bool) -> Json:
    """A result as chat has it: there is no member that marks a failure, so its text says it.

    Its images follow in a message of their own where the model takes `images`, else it says what
    there was (B24).
    """
    lines = [f"Error: {result.text}" if result.is_error else result.text]
    if not images:
        lines += [
            f"[{image.media_type} image, {size(image)} bytes: not shown]" for image in result.images
        ]
    content = "\n".join(line for line in lines if line)
    return {"role": "tool", "tool_call_id": call.id, "content": content}


def size(image: Image) -> int:
    """Bytes of an image, from its base64 text."""
    return len(image.data.rstrip("=")) * 3 // 4


def image_messages(results: Sequence[tuple[ToolCall, ToolResult]]) -> list[Json]:
    """Tool messages hold text only: the images of one answer's results follow as the user's (B53).

    None or one message.
    """
    parts: list[Json] = []
    for call, result in results:
        if result.images:
            parts.append({"type": "text", "text": f"Images that {call.name} returned:"})
        for image in result.images:
            url = f"data:{image.media_type};base64,{image.data}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
    return [{"role": "user", "content": parts}] if parts else []


def relaxed(choice: Json) -> Json:
    """A `tool_choice` that forces nothing any more; its other members stay."""
    if isinstance(inner := _allowed(choice), dict):
        return {**choice, "allowed_tools": {**inner, "mode": "auto"}}
    return choice if choice in (None, "auto", "none") else "auto"


def only_among(choice: Json, names: Collection[Json]) -> Json:
    """A relaxed `tool_choice` for a call that offers just these tools: it must name no other."""
    if not isinstance(inner := _allowed(choice), dict):
        return choice
    tools = inner.get("tools")
    left = [t for t in tools if tool_name(t) in names] if isinstance(tools, list) else []
    return {**choice, "allowed_tools": {**inner, "tools": left}} if left else "none"


def tool_name(tool: Json) -> str | None:
    """The name in a `tools` entry, or in a choice of one; None if it has none."""
    inner = (tool.get("function") or tool.get("custom")) if isinstance(tool, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else None


def _allowed(choice: Json) -> Json:
    return choice.get("allowed_tools") if isinstance(choice, dict) else None
