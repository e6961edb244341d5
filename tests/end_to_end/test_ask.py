"""`manage.py ask` as a process: its output, its exit codes, Ctrl-C."""

import json
import signal
import sys

import pytest

from tests.end_to_end.deployment import MANAGE
from tests.end_to_end.processes import child, run, until

QUESTION = 'CALL add {"a": 1, "b": 2}'


@pytest.fixture
def ask(deployment):
    def ask(*arguments):
        return run([*MANAGE, "ask", *arguments], env=deployment.env)

    return ask


def test_the_answer_and_its_trace_are_plain_lines_in_a_pipe(ask, mcp):
    ran = ask("SAY Adding.\n" + QUESTION, "--mcp-server", mcp["session"].url)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert "Adding." in lines
    assert any(line.startswith("[tool add on 127.0.0.1 ok") for line in lines)
    assert lines[-1].startswith("2 rounds, 1 tool calls, ")
    assert "\x1b" not in ran.stdout


def test_one_json_object_has_it_all(ask, mcp, deployment):
    ran = ask(QUESTION, "--json", "--no-stream", "--mcp-server", mcp["session"].url)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert "3" in told["text"]
    assert [step["kind"] for step in told["trace"]] == ["server", "model", "tool", "model"]
    turn = (
        told["turn"].replace("-", "") if deployment.database.url[:6] == "sqlite" else told["turn"]
    )
    rows = deployment.database.rows("SELECT status FROM gateway_turn WHERE id = ?", turn)
    assert [row["status"] for row in rows] == ["ok"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["Hi.", "--model", "nobody:x"], "The providers here: demo, openai"),
        (["Hi.", "--user", "nobody"], "there is no active user 'nobody'"),
        (["Hi.", "--mcp-server", "http://127.0.0.1:1/mcp"], "can't be reached"),
        (["Hi.", "--max-rounds", "0"], "from 1 to 25"),
    ],
)
def test_what_goes_wrong_is_one_plain_line(ask, arguments, words):
    ran = ask(*arguments)
    assert ran.returncode in (1, 2)
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr


def test_an_error_is_json_too_where_json_was_asked(ask):
    ran = ask("Hi.", "--json", "--model", "nobody:x")
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["error"]["code"] == "model_not_found"


def test_ctrl_c_ends_the_turn_and_the_process(deployment, tmp_path, mcp):
    command = [sys.executable, "-u", "manage.py", "ask", 'CALL wait {"seconds": 60}']
    command += ["--mcp-server", mcp["session"].fresh()["url"]]
    before = mcp["session"].count("started")
    with child(command, log=tmp_path / "log", env=deployment.env) as process:
        mcp["session"].reach("started", before + 1)
        process.signal(signal.SIGINT)
        assert process.ended() == 130
        assert "cancelled" in process.said
        assert "Traceback" not in process.said
    rows = until(
        lambda: deployment.database.rows("SELECT id FROM gateway_turn WHERE status = 'cancelled'")
    )
    assert rows
