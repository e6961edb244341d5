"""The benchmark checks itself: right answers pass, wrong ones fail the run."""

import json
import os

import pytest

from benchmarks.__main__ import main
from benchmarks.load import Cell
from benchmarks.processes import free_port
from benchmarks.report import table

SHORT = ["--concurrency", "2", "--seconds", "0.2"]


def test_a_round_with_a_tool_is_measured_without_a_gateway(tmp_path, capsys):
    figures = tmp_path / "figures.json"
    chosen = ["--floor-only", "--scenarios", "one-round", "--json", str(figures)]
    assert main([*chosen, *SHORT]) == 0
    [cell] = json.loads(figures.read_text())["cells"]
    assert (cell["player"], cell["concurrency"], cell["errors"]) == ("floor", 2, 0)
    assert cell["turns"] > 2
    assert 0 < cell["p50"] <= cell["p95"]
    assert "one-round" in capsys.readouterr().out


def test_a_gateway_that_is_running_is_measured(tmp_path):
    # The scripted model itself is one, as long as no tools are asked for.
    port, figures = str(free_port()), tmp_path / "figures.json"
    chosen = ["--scenarios", "plain,poured", "--upstream-port", port, "--json", str(figures)]
    against = ["--against", f"http://127.0.0.1:{port}", "--pid", str(os.getpid())]
    assert main([*chosen, *against, *SHORT]) == 0
    cells = json.loads(figures.read_text())["cells"]
    assert [cell["player"] for cell in cells] == ["floor", "orazaka", "relay", "orazaka"]
    assert all(
        cell["cpu_ms"] > 0 and cell["rss"] > 0 for cell in cells if cell["player"] != "floor"
    )
    assert all(0 < cell["first_p50"] <= cell["p50"] for cell in cells[2:])


def test_a_wrong_answer_fails_the_run(capsys):
    port = str(free_port())
    chosen = ["--scenarios", "one-round", "--upstream-port", port, *SHORT]
    assert main([*chosen, "--against", f"http://127.0.0.1:{port}"]) == 1
    told = capsys.readouterr()
    assert "one-round x2 orazaka: 2 of 2 failed" in told.err
    assert "the client sees our tool echo" in told.err


def test_an_unknown_scenario_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--scenarios", "plain,nonsense"])
    assert "no scenario 'nonsense'" in capsys.readouterr().err


def cell(player, **figures):
    nothing = dict.fromkeys(("error", "p50", "p95", "first_p50", "first_p95", "cpu_ms", "rss"))
    counts = {"concurrency": 1, "turns": 9, "errors": 0, "seconds": 1.0, "rate": 9.0}
    return Cell(**{"scenario": "plain", "player": player} | nothing | counts | figures)


def test_the_table_compares_with_the_floor():
    [ours] = table([(cell("floor", p50=2.0), cell("orazaka", p50=5.0, cpu_ms=1.25))]).split("\n")[
        3:
    ]
    assert ours.split() == ["plain", "1", "orazaka", "9.0", "5.0", "1.25", "2.50", "0/9"]


def test_after_a_round_the_first_text_is_what_is_compared():
    first = cell("floor", scenario="first-token", p50=2.0, first_p50=1.0)
    ours = cell("orazaka", scenario="first-token", p50=2.0, first_p50=3.0)
    assert "3.00" in table([(first, ours)])
