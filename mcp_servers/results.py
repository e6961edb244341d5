"""What a `tools/call` gave, as a `ToolResult`: text for the model, images apart, the rest as notes.

Binding: spec 2.2 "Results". Nothing that a server puts into a result raises here (case B26).
"""

from collections.abc import Mapping
from typing import Any

from mcp_servers.encoding import encoded
from tools.base import Image, Json, ToolResult

BROKEN_NOTE = "[part of the result could not be read]"


def to_result(raw: Mapping[str, Json], *, max_chars: int, note: str = "") -> ToolResult:
    """The result for the model (`text`, `images`) and for REST (`content`, `structured`).

    `raw` is the result object as the server sent it. `note` is put after the text. Text over
    `max_chars` is cut, marker included.
    """
    content = raw.get("content")
    blocks = content if isinstance(content, list) else []
    images = tuple(image for block in blocks if (image := _image(block)))
    parts = [text for block in blocks if (text := _text(block)) is not None]
    structured = raw.get("structuredContent")
    if structured is not None and not any(map(_is_text, blocks)):
        parts.append(_serialised(structured))
    if note:
        parts.append(note)
    return ToolResult(
        cut("\n".join(parts).replace("\x00", "\ufffd"), max_chars),
        is_error=raw.get("isError") is True,
        images=images,
        content=content,
        structured=structured,
    )


def cut(text: str, limit: int) -> str:
    """`text` in at most `limit` characters; a cut one ends in a marker with the full size."""
    if len(text) <= limit:
        return text
    marker = f"\n[cut: the whole result has {len(text)} characters]"
    return text[: max(0, limit - len(marker))] + marker


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text"


def _image(block: Any) -> Image | None:
    if not isinstance(block, dict) or block.get("type") != "image":
        return None
    kind, data = block.get("mimeType"), block.get("data")
    return Image(kind, data) if isinstance(kind, str) and isinstance(data, str) else None


def _text(block: Any) -> str | None:
    """What a block says in text; None for an image, which goes its own way."""
    if not isinstance(block, dict):
        return BROKEN_NOTE
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image", "mimeType": str(), "data": str()}:
            return None
        case {"type": "audio", "data": str(data)}:
            return f"[audio, {block.get('mimeType')}, {_bytes(data)} bytes: not shown]"
        case {"type": "resource", "resource": dict(resource)}:
            return _resource(resource)
        case {"type": "resource_link"}:
            return _link(block)
    return f"[{_word(block.get('type'))}, {len(_serialised(block))} bytes: not shown]"


def _resource(resource: dict[str, Any]) -> str:
    uri, text, blob = resource.get("uri"), resource.get("text"), resource.get("blob")
    if isinstance(text, str):
        return f"[resource {uri}]\n{text}"
    size = _bytes(blob) if isinstance(blob, str) else 0
    return f"[resource {uri}, {resource.get('mimeType')}, {size} bytes: not shown]"


def _link(block: dict[str, Any]) -> str:
    known = [block.get(key) for key in ("name", "title", "description", "mimeType")]
    size = block.get("size")
    words = [str(word) for word in known if word] + ([f"{size} bytes"] if size else [])
    return f"[link to resource {block.get('uri')}{': ' if words else ''}{', '.join(words)}]"


def _bytes(base64_text: str) -> int:
    return len(base64_text.rstrip("=")) * 3 // 4


def _word(kind: Any) -> str:
    return kind[:40] if isinstance(kind, str) else "unknown kind"


def _serialised(value: Json) -> str:
    return encoded(value).decode()
