"""Run the benchmark: `python -m benchmarks [--seconds 2] [--scenarios plain,poured] …`.

It starts a scripted model, a scripted MCP server and the project's own server (one worker, SQLite),
plays each scenario at each concurrency without the server and with it, and prints a table. The exit
code is 1 if any answer was wrong, 2 if something did not start.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import aiohttp

from benchmarks import report
from benchmarks.load import Cell, Player, measure
from benchmarks.players import Floor, Relay, Server
from benchmarks.processes import CannotStart, Running, fake, gateway
from benchmarks.scenarios import BY_NAME, Scenario

Rows = list[tuple[Cell, Cell | None]]


def main(arguments: Sequence[str] | None = None) -> int:
    """The whole run; gives the exit code."""
    options = _parser().parse_args(arguments)
    try:
        rows = _run(options)
    except CannotStart as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print(" ".join(f"{name}={value}" for name, value in report.machine().items()))
    print(report.table(rows))
    cells = [cell for row in rows for cell in row if cell]
    if options.json:
        figures = {"machine": report.machine(), "cells": [cell.as_json() for cell in cells]}
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=1)
    wrong = [cell for cell in cells if cell.errors]
    for cell in wrong:
        where = f"{cell.scenario} x{cell.concurrency} {cell.player}"
        print(f"{where}: {cell.errors} of {cell.turns} failed, e.g. {cell.error}", file=sys.stderr)
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add = parser.add_argument
    kinds = "\n".join(f"  {one.name}: {one.about}" for one in BY_NAME.values())
    add("--scenarios", type=_scenarios, default=list(BY_NAME.values()), help=f"some of\n{kinds}")
    add("--concurrency", type=_numbers, default=[1, 16, 64], help="turns at once, as 1,16,64")
    add("--seconds", type=float, default=2.0, help="length of each measurement")
    add("--json", metavar="FILE", help="write the figures here, too")
    add("--log", metavar="FILE", type=Path, help="where the server's log goes (else nowhere)")
    add("--floor-only", action="store_true", help="measure without any server")
    add(
        "--against",
        metavar="URL",
        help="a gateway that is running: its OPENAI_BASE_URL must be\n"
        "http://127.0.0.1:PORT/v1 with the PORT of --upstream-port",
    )
    add("--pid", type=int, help="of that gateway, to see its CPU and memory")
    add("--key", default="", help="one of its keys")
    add("--model", default="openai:bench", help="the name of the model there")
    add("--upstream-port", type=int, default=0, help="where the scripted model listens")
    return parser


def _scenarios(text: str) -> list[Scenario]:
    try:
        return [BY_NAME[name] for name in text.split(",")]
    except KeyError as error:
        raise argparse.ArgumentTypeError(f"no scenario {error}") from None


def _numbers(text: str) -> list[int]:
    numbers = [int(word) for word in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("at least one turn at once")
    return numbers


def _run(options: argparse.Namespace) -> Rows:
    with ExitStack() as stack:
        upstream = stack.enter_context(fake("benchmarks.upstream:app", port=options.upstream_port))
        mcp = stack.enter_context(fake("benchmarks.mcp_server:app"))
        relay = stack.enter_context(fake("benchmarks.relay:app"))
        server: Running | None = None
        if options.against:
            server = Running(options.against.rstrip("/"), options.pid, options.key)
        elif not options.floor_only:
            server = stack.enter_context(gateway(upstream=upstream.url, log=options.log))
        return asyncio.run(_measured(options, upstream, mcp, relay, server))


async def _measured(
    options: argparse.Namespace,
    upstream: Running,
    mcp: Running,
    relay: Running,
    server: Running | None,
) -> Rows:
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=300)
    async with aiohttp.ClientSession(connector=connector, trust_env=False) as http:
        assert relay.pid is not None
        direct = Floor(http, upstream=upstream.url, mcp=mcp.url)
        through = Relay(http, relay.url, upstream=upstream.url, pid=relay.pid)
        tested: Player | None = None
        if server:
            tested = Server(
                http,
                server.url,
                key=server.key,
                model=options.model,
                mcp=mcp.url,
                pid=server.pid,
            )
        rows: Rows = []
        cells = [(one, n) for one in options.scenarios for n in options.concurrency]
        for done, (scenario, at_once) in enumerate(cells):
            print(f"[{done + 1}/{len(cells)}] {scenario.name} x{at_once}", file=sys.stderr)
            # A stream without tools has its floor in a process that hands on its bytes.
            least: Player = through if scenario.stream and not scenario.servers else direct
            floor = await measure(least, scenario, concurrency=at_once, seconds=options.seconds)
            ours = None
            if tested:
                ours = await measure(tested, scenario, concurrency=at_once, seconds=options.seconds)
            rows.append((floor, ours))
        return rows


if __name__ == "__main__":
    sys.exit(main())
