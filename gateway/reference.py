"""`/v1` in the OpenAPI description: the providers' own APIs, with what the gateway adds to them.

Of the providers' members only those are named that every client sends.
"""

from typing import Any

from pydantic.json_schema import models_json_schema

from gateway.fields import Fields

type Json = Any

TAG = "v1"
FIELDS = {
    "mcp_servers": "MCP servers of this request, whose tools the gateway offers and runs.",
    "mcp_server_ids": "Stored MCP servers that a platform resolves; 400 where there is none.",
    "max_tool_iterations": "The most model calls of the turn; 10 if not given.",
    "orazaka_tools": "The gateway's own tools: as its rules say, none, or exactly these.",
    "orazaka_servers": "Stored MCP servers: as their rules say, none, or exactly these.",
    "orazaka_commit": "Whether written files wait for a person or are kept when the turn is good.",
    "orazaka_trace": "Tell the steps of the turn: in a stream as comment lines `: trace {step}`, "
    "in a plain answer as `orazaka.trace`.",
    "tools_header": "The line before the servers' hints in the prompt.",
}
REASONS = {
    400: "The body is not JSON, a URL is refused, or members can't go together.",
    401: "No API key, or one that does not work.",
    403: "The key may not do this, or not use the model.",
    404: "There is no such model.",
    408: "The body stopped coming.",
    413: "The body is too large.",
    422: "A member has the wrong shape (`param` is its path), or the rounds are used up.",
    429: "The key's requests of this minute are used up, or the provider's limit is reached; "
    "Retry-After says when to come again.",
    502: "The provider or an MCP server of the request failed or can't be reached.",
    503: "The gateway is starting, stopping or at a limit of its own.",
    504: "The provider or an MCP server of the request took too long.",
}
LISTING = (401, 403, 429, 503)


def with_v1(result: Json, **_: Any) -> Json:
    """A hook of SPECTACULAR_SETTINGS: add the paths of `/v1` and what they refer to."""
    components = result["components"]
    components["schemas"] |= schemas()
    components["responses"] |= {f"Error{status}": _error(REASONS[status]) for status in REASONS}
    result["paths"] |= paths()
    return result


def paths() -> Json:
    """The operations, by path."""
    model = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "/v1/chat/completions": {"post": _turn("OpenAI's chat completions")},
        "/v1/models": {
            "get": _operation(
                "listModels", "The models that this key may use.", _json("ModelList"), LISTING
            )
        },
        "/v1/models/{model}": {
            "get": {
                **_operation("getModel", "One of them.", _json("Model"), (*LISTING, 404)),
                "parameters": [model],
            }
        },
    }


def _turn(what: str) -> Json:
    stream = {"text/event-stream": {"schema": {"type": "string"}}}
    words = (
        f"{what}, with tools that the gateway runs. Members that are not described here go to the "
        "provider untouched, as do `openai-beta`, `anthropic-beta` and `anthropic-version`."
    )
    operation = _operation("chatCompletions", words, _json("Completion") | stream, tuple(REASONS))
    operation["responses"]["200"]["headers"] = {
        "X-Orazaka-Turn": _header("The turn's id in /api/v1/turns.", "string"),
        "X-Orazaka-Rounds": _header("Model calls; on plain answers only.", "integer"),
        "X-Orazaka-Tool-Calls": _header("Tools run; on plain answers only.", "integer"),
    }
    body = {"required": True, "content": _json("ChatRequest")}
    return {**operation, "requestBody": body}


def _operation(name: str, words: str, content: Json, statuses: tuple[int, ...]) -> Json:
    errors = {str(s): {"$ref": f"#/components/responses/Error{s}"} for s in sorted(statuses)}
    return {
        "operationId": name,
        "description": words,
        "tags": [TAG],
        "security": [{"key": []}, {"cookieAuth": []}],
        "responses": {"200": {"description": "", "content": content}} | errors,
    }


def _json(name: str) -> Json:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _header(words: str, kind: str) -> Json:
    return {"description": words, "schema": {"type": kind}}


def _error(words: str) -> Json:
    return {"description": words, "content": _json("Error")}


def schemas() -> Json:
    """The bodies: the gateway's own members as they are checked, the rest in outline."""
    _, made = models_json_schema(
        [(Fields, "validation")], ref_template="#/components/schemas/{model}"
    )
    own = made["$defs"]
    for name, words in FIELDS.items():
        own["Fields"]["properties"][name]["description"] = words
    return own | OUTLINES


_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}
_STEP = {
    "type": "object",
    "description": "As in /api/v1/turns/{id}, with names in snake_case.",
    "required": ["kind", "name", "outcome", "started_ms", "duration_ms"],
    "properties": {
        "kind": {"enum": ["server", "model", "tool", "note"]},
        "name": _TEXT,
        "server": _TEXT,
        "outcome": _TEXT,
        "started_ms": _NUMBER,
        "duration_ms": _NUMBER,
        "detail": {"type": "object"},
    },
}
_MESSAGE = {"type": "object", "required": ["role"], "properties": {"role": _TEXT}}
OUTLINES = {
    "ChatRequest": {
        "allOf": [
            {
                "type": "object",
                "required": ["model", "messages"],
                "properties": {
                    "model": {"type": "string", "description": "`provider:model`."},
                    "messages": {"type": "array", "minItems": 1, "items": _MESSAGE},
                    "stream": {"type": ["boolean", "null"]},
                    "tools": {"type": "array", "items": {"type": "object"}},
                },
            },
            {"$ref": "#/components/schemas/Fields"},
        ],
        "examples": [{"model": "demo:demo", "messages": [{"role": "user", "content": "Hello"}]}],
    },
    "Completion": {
        "type": "object",
        "description": "The provider's answer, its usage summed over all rounds.",
        "properties": {
            "orazaka": {
                "type": "object",
                "properties": {
                    "trace": {"type": "array", "items": {"$ref": "#/components/schemas/TraceStep"}}
                },
            }
        },
    },
    "TraceStep": _STEP,
    "Model": {
        "type": "object",
        "required": ["id", "object", "owned_by"],
        "properties": {"id": _TEXT, "object": {"const": "model"}, "owned_by": _TEXT},
    },
    "ModelList": {
        "type": "object",
        "required": ["object", "data"],
        "properties": {
            "object": {"const": "list"},
            "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}},
        },
    },
    "Error": {
        "type": "object",
        "description": "OpenAI's envelope.",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": _TEXT,
                    "type": _TEXT,
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                    "usage": {"type": "object", "description": "Of rounds that were paid for."},
                },
            }
        },
    },
}
