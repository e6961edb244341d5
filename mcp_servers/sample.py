"""A small real MCP server, made with the official SDK: for the first start and for trying out.

    python -m mcp_servers.sample --port 9000

It speaks streamable HTTP at /mcp, both eras, and prints its URL when it is ready.
"""

import argparse
import logging
import random
from datetime import date
from socket import socket
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

METRES = {
    "mm": 0.001, "cm": 0.01, "m": 1.0, "km": 1000.0,
    "inch": 0.0254, "foot": 0.3048, "yard": 0.9144, "mile": 1609.344,
}  # fmt: skip
LOOKS_ONLY = ToolAnnotations(read_only_hint=True)


class Roll(BaseModel):
    """What the dice showed."""

    dice: list[int]
    total: int


def weekday(day: Annotated[date, Field(description="The date as YYYY-MM-DD.")]) -> str:
    """Tell the day of the week of a date."""
    return f"{day:%A}"


def convert(
    value: Annotated[float, Field(description="How many of the first unit.")],
    unit: Annotated[str, Field(description=f"One of {', '.join(METRES)}.")],
    into: Annotated[str, Field(description="The unit wanted, one of the same.")],
) -> float:
    """Convert a length from one unit into another."""
    for name in (unit, into):
        if name not in METRES:
            raise ToolError(f"There is no unit {name!r}. The units are {', '.join(METRES)}.")
    return float(f"{value * METRES[unit] / METRES[into]:.10g}")


def roll(
    count: Annotated[int, Field(ge=1, le=100, description="How many dice.")] = 1,
    sides: Annotated[int, Field(ge=2, le=1000, description="Sides of each.")] = 6,
) -> Roll:
    """Roll dice."""
    dice = [random.randint(1, sides) for _ in range(count)]
    return Roll(dice=dice, total=sum(dice))


def build() -> MCPServer:
    """The server, not yet listening."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    server = MCPServer("sample", instructions="Dates, lengths and dice.", log_level="WARNING")
    root.handlers[:], root.level = before  # the SDK takes the root logger for itself
    for look in (weekday, convert):
        server.tool(annotations=LOOKS_ONLY)(look)
    server.tool()(roll)
    return server


class Announced(uvicorn.Server):
    """Prints the URL once it is listening."""

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"The sample MCP server listens at http://127.0.0.1:{port}/mcp", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="A sample MCP server on this machine only.")
    parser.add_argument("--port", type=int, default=9000, help="0 = any free one")
    app = build().streamable_http_app()
    config = uvicorn.Config(
        app, host="127.0.0.1", port=parser.parse_args().port, log_level="warning", ws="none"
    )
    Announced(config).run()


if __name__ == "__main__":
    main()
