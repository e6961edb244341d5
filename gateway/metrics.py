"""What turns did, as metrics. Counted once, from a turn's record at its end."""

from prometheus_client import Counter, Gauge, Histogram

from gateway.record import Json, Record
from gateway.turns import TURNS
from gateway.wire import Usage
from mcp_servers.source import SESSIONS
from orazaka.metrics import REGISTRY, SUM, follow, sampled
from orazaka.runtime import Runtime

# Whose tools and servers may be named: those that the operator set. All other names are chosen by
# callers, private, and without a bound on their number.
PUBLIC = {"registered", "platform"}
LONG = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
NONE = Usage()
SHORT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

turns = Counter(
    "orazaka_turns", "Turns that ended", ["wire", "provider", "status"], registry=REGISTRY
)
durations = Histogram(
    "orazaka_turn_duration_seconds",
    "From the request's body to the end of the answer",
    ["wire", "provider"],
    registry=REGISTRY,
    buckets=LONG,
)
first_outputs = Histogram(
    "orazaka_turn_first_output_seconds",
    "From the request's body to the first output for the client",
    ["wire", "provider"],
    registry=REGISTRY,
    buckets=LONG,
)
model_calls = Counter(
    "orazaka_model_calls", "Requests to providers", ["provider", "outcome"], registry=REGISTRY
)
tokens = Counter(
    "orazaka_tokens", "Tokens that providers reported", ["provider", "kind"], registry=REGISTRY
)
tool_calls = Counter(
    "orazaka_tool_calls",
    "Tool calls; server and tool are empty where callers choose them",
    ["origin", "server", "tool", "outcome"],
    registry=REGISTRY,
)
tool_durations = Histogram(
    "orazaka_tool_call_duration_seconds",
    "How long tool calls took",
    ["origin"],
    registry=REGISTRY,
    buckets=SHORT,
)
lists = Counter(
    "orazaka_mcp_tool_lists",
    "Tool lists of MCP servers that turns took: kept, listed, failed or late",
    ["outcome"],
    registry=REGISTRY,
)
running = Gauge(
    "orazaka_turns_running", "Turns under way", registry=REGISTRY, multiprocess_mode=SUM
)
sessions = Gauge(
    "orazaka_mcp_sessions",
    "Open sessions with MCP servers",
    registry=REGISTRY,
    multiprocess_mode=SUM,
)
sessions_opened = Counter(
    "orazaka_mcp_sessions_opened", "Sessions that were opened with MCP servers", registry=REGISTRY
)


def count(record: Record, *, wire: str, provider: str, status: str, usage: Usage) -> None:
    """Count a turn that has ended."""
    turns.labels(wire, provider, status).inc()
    durations.labels(wire, provider).observe(record.now() / 1000)
    if record.first_output is not None:
        first_outputs.labels(wire, provider).observe(record.first_output / 1000)
    for step in record.steps:
        kind, outcome = step["kind"], step["outcome"]
        if kind == "model":
            model_calls.labels(provider, outcome).inc()
        elif kind == "tool":
            _count_tool(step, outcome)
        elif kind == "server":
            lists.labels(outcome).inc()
    for name, amount in usage.since(NONE).items():
        tokens.labels(provider, name).inc(amount)


def _count_tool(step: dict[str, Json], outcome: str) -> None:
    detail = step["detail"]
    origin = detail["origin"]
    named = (step["server"], detail["tool"]) if origin in PUBLIC else ("", "")
    tool_calls.labels(origin, *named, outcome).inc()
    tool_durations.labels(origin).observe(step["duration_ms"] / 1000)


@sampled
def _state(runtime: Runtime) -> None:
    running.set(len(runtime[TURNS].running))
    pool = runtime[SESSIONS].pool
    sessions.set(pool.alive)
    follow(sessions_opened, pool.opened)
