from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cyclopts")
pytest.importorskip("rich")

from adescent import cli
from adescent.cli import demo as demo_module
from adescent.cli import main
from adescent.domains import router

QUICK = ("demo", "--delay", "0", "--workers", "3", "--calls", "2000")
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def temporary_files_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def rows(path: Path, *extra: str) -> Path:
    file = path / "rows.jsonl"
    lines = [
        json.dumps({"text": f"{word} {label} {number}", "label": label})
        for number, word in enumerate(["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"])
        for label in ("left", "right", "straight", "back")
    ]
    file.write_text("\n".join([*lines, *extra]), encoding="utf-8")
    return file


# What it says ---------------------------------------------------------------------------------------------------------


def test_the_table_says_what_was_gained_and_where_to_look(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*QUICK, "--run-dir", str(tmp_path / "run dir")]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    for line in ("held-out reward before", "held-out reward after", "commits", "best of 3 forks", "committed"):
        assert line in said.out
    command = said.out.splitlines()[-1]
    assert command == f"git --git-dir '{tmp_path / 'run dir' / 'ledger.git'}' log -p dev"
    shown = subprocess.run(shlex.split(command), capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert shown.stdout.count("outcome: committed") > 1
    assert re.search(r"^Of \d+ changes handed in to be merged: .*\d+ committed", said.out, re.MULTILINE)


def test_the_command_to_look_with_is_one_line_however_narrow_the_terminal_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("FORCE_COLOR", "1")
    place = tmp_path / ("a-long-name-" * 8)
    assert main([*QUICK, "--run-dir", str(place)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"git --git-dir {place / 'ledger.git'} log -p dev"


@pytest.mark.parametrize("schedule", ["rounds", "stream"])
def test_json_is_one_object_and_nothing_else(schedule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--json", "--schedule", schedule]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    told = json.loads(said.out)
    for side in ("merge", "fork"):
        assert 0.0 <= told[side]["held_out_reward"] <= 1.0
        assert told[side]["rollouts"] > 0
        assert told[side]["seconds"] > 0.0
        assert told[side]["calls"] <= 2000
    assert told["merge"]["held_out_reward"] > told["fork"]["held_out_reward"]
    assert told["merge"]["seed_reward"] < 0.3
    assert told["stop_reason"] in {"target_reward", "patience", "budget:calls"}
    assert told["outcomes"]["committed"] > 0
    assert len(told["fork"]["stop_reasons"]) == 3
    assert set(told["fork"]["stop_reasons"]) <= {"target_reward", "patience", "budget:calls"}
    assert told["resumed_from"] == 0
    assert told["error"] == ""
    assert Path(told["ledger"]).is_dir()


def test_rounds_give_the_same_figures_again(capsys: pytest.CaptureFixture[str]) -> None:
    def told() -> dict[str, Any]:
        assert main([*QUICK, "--json", "--schedule", "rounds", "--seed", "4"]) == 0
        figures: dict[str, Any] = json.loads(capsys.readouterr().out)
        for side in ("merge", "fork"):
            del figures[side]["seconds"]
        del figures["ledger"]
        return figures

    assert told() == told()


def test_a_run_directory_is_continued_and_the_table_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = [*QUICK, "--schedule", "rounds", "--run-dir", str(tmp_path / "run")]
    assert main(command) == 0
    assert "continued" not in capsys.readouterr().out
    assert main(command) == 0
    assert "continued from version" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["resumed_from"] > 1


def test_real_utterances_go_to_their_language(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("chatterbot_corpus")
    assert main(["demo", "--corpus", "--json", "--delay", "0", "--workers", "4", "--calls", "6000"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["guess_reward"] < 0.12
    assert told["merge"]["held_out_reward"] > 0.5
    assert told["merge"]["test_reward"] > 0.4
    assert told["merge"]["held_out_reward"] > told["fork"]["held_out_reward"]


def test_texts_of_ones_own_go_to_their_labels(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*QUICK, "--data", str(rows(tmp_path)), "--json"]) == 0
    merge = json.loads(capsys.readouterr().out)["merge"]
    assert merge["seed_reward"] <= 0.25
    assert merge["held_out_reward"] > 0.5


def test_version_and_help_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    from adescent import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__
    assert main(["demo", "--help"]) == 0
    told = capsys.readouterr().out
    for option in ("--corpus", "--data", "--schedule", "--workers", "--seed", "--run-dir", "--json"):
        assert option in told
    assert main([]) == 0
    assert "demo" in capsys.readouterr().out


def test_a_terminal_sees_it_move(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    assert main([*QUICK, "--json"]) == 0
    said = capsys.readouterr()
    assert "3 forks" in said.err
    assert "commits" in said.err
    json.loads(said.out)


# How it ends otherwise ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demon"], "demon"),
        (["demo", "--speed"], "--speed"),
        (["demo", "--workers", "0"], "--workers"),
        (["demo", "--workers", "many"], "many"),
        (["demo", "--delay", "-1"], "--delay"),
        (["demo", "--calls", "0"], "--calls"),
        (["demo", "--schedule", "sometimes"], "sometimes"),
        (["demo", "--data", "no/such.jsonl"], "no/such.jsonl cannot be read"),
        (["demo", "--corpus", "--data", "rows.jsonl"], "keep one"),
        (["demo", "--calls", "1152"], "does not cover the 1152 by which 6 forks are measured"),
        (["demo", "--calls", "9", "--workers", "1"], "by which 1 fork is measured"),
    ],
)
def test_wrong_use_is_one_line_and_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], temporary_files_here: Path
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert said.err.startswith("adescent: ")
    assert len(said.err.splitlines()) == 1
    assert list(temporary_files_here.iterdir()) == []


def test_a_bad_line_of_a_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["demo", "--data", str(rows(tmp_path, '{"text": "no label"}'))]) == 2
    assert "rows.jsonl, line 33 has no key 'label'; it has 'text'." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "help_of"), [(["demo", "--speed"], "adescent demo"), (["--speed"], "adescent"), (["x"], "adescent")]
)
def test_the_help_that_is_named_is_that_of_the_command(
    arguments: list[str], help_of: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.endswith(f"({help_of} --help)\n")


def test_a_directory_of_something_else_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to.txt").write_text("dear")
    assert main([*QUICK, "--run-dir", str(tmp_path / "letters")]) == 2
    assert "to.txt" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["cyclopts", "rich"])
def test_without_the_extra_it_says_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "NEEDED", ("json", f"{missing}_that_is_not_there"))
    assert main(["demo"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"adescent: the command needs {missing}_that_is_not_there: pip install 'adescent[cli]', or")
    assert said.endswith("in a clone pip install -e '.[cli]'\n")


@pytest.mark.parametrize("as_json", [True, False])
def test_a_run_that_ends_with_an_error_is_1(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("out of words")

    monkeypatch.setattr(router, "_proposer", lambda *_: broken)
    assert main([*QUICK, *(["--json"] if as_json else [])]) == 1
    said = capsys.readouterr()
    assert "out of words" in said.err
    if as_json:
        assert "out of words" in json.loads(said.out)["error"]


# Processes ------------------------------------------------------------------------------------------------------------


@contextmanager
def child(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A process that heeds Ctrl-C even where this one was started in the background and so does not."""
    started = subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with started:
        try:
            yield started
        finally:
            started.kill()


def test_the_module_is_the_command(tmp_path: Path) -> None:
    with child("-m", "adescent", *QUICK, "--json", "--run-dir", str(tmp_path / "run")) as ran:
        out, err = ran.communicate(timeout=PATIENCE)
    assert (ran.returncode, err) == (0, "")
    assert json.loads(out)["ledger"] == str(tmp_path / "run" / "ledger.git")
    with child("-m", "adescent", "demo", "--nonsense") as ran:
        out, err = ran.communicate(timeout=PATIENCE)
    assert (ran.returncode, out) == (2, "")


INTERRUPTED_DEMO = """
import sys
from adescent.cli import demo as demo_module
from adescent.cli import main
from adescent.domains import router

route, calls = router.route, 0

def counting(rendered, text):
    global calls
    calls += 1
    if calls == 150:  # the start has been measured, and workers are at work
        print("at work", flush=True)
    return route(rendered, text)

router.route = counting
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_is_130_and_says_what_was_under_way_and_kept(tmp_path: Path) -> None:
    command = ("demo", "--delay", "0.05", "--json", "--run-dir", str(tmp_path / "run"))
    with child("-c", INTERRUPTED_DEMO, *command) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline() == "at work\n"
        demo.send_signal(signal.SIGINT)
        out, err = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, out) == (130, "")
    cut_off, tasks, look, to_paste = err.splitlines()
    assert re.fullmatch(r"adescent: cancelled; ([2-6] rollouts were|1 rollout was) cut off\.", cut_off)
    assert re.fullmatch(r"(Their tasks|Its task): (c\d-\d{3}(, )?)+…?", tasks)
    assert look == "What was kept, and why:"
    assert to_paste == f"git --git-dir {tmp_path / 'run' / 'ledger.git'} log -p dev"
    checked = ["git", "-C", str(tmp_path / "run" / "ledger.git"), "fsck", "--strict"]
    subprocess.run(checked, check=True, capture_output=True, timeout=PATIENCE)


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([], "no rollout was under way."),
        (["a"], "1 rollout was cut off.\nIts task: a"),
        (["a", "b"], "2 rollouts were cut off.\nTheir tasks: a, b"),
        (["a", "b", "c", "d", "e"], "5 rollouts were cut off.\nTheir tasks: a, b, c, d, …"),
    ],
)
def test_what_was_cut_off_is_said_in_grammar(tasks: list[str], said: str) -> None:
    assert demo_module._cut_off(tasks) == said


STUBBORN = """
import sys, anyio
from adescent.cli.interrupts import until_interrupted

async def work():
    print("at work", flush=True)
    try:
        await anyio.sleep_forever()
    finally:
        print("cancelled", flush=True)
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()

anyio.run(until_interrupted, work, backend=sys.argv[1])
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_second_ctrl_c_does_not_wait_for_anybody(backend: str) -> None:
    with child("-c", STUBBORN, backend) as stubborn:
        assert stubborn.stdout is not None
        assert stubborn.stdout.readline() == "at work\n"
        stubborn.send_signal(signal.SIGINT)
        assert stubborn.stdout.readline() == "cancelled\n"
        stubborn.send_signal(signal.SIGINT)
        _, err = stubborn.communicate(timeout=PATIENCE)
    assert stubborn.returncode == 130
    assert "left at once" in err


DEAF = """
import signal, sys, anyio
signal.signal(signal.SIGINT, signal.SIG_IGN)
from adescent.cli.interrupts import until_interrupted

async def work():
    signal.raise_signal(signal.SIGINT)
    await anyio.sleep(0)
    return "done"

print(anyio.run(until_interrupted, work))
"""


def test_who_was_started_in_the_background_is_not_interrupted() -> None:
    with child("-c", DEAF) as deaf:
        out, err = deaf.communicate(timeout=PATIENCE)
    assert (deaf.returncode, out, err) == (0, "done\n", "")


@pytest.mark.slow
def test_ctrl_c_at_any_time_is_130(tmp_path: Path) -> None:
    rng = random.Random(7)
    source = rows(tmp_path).read_text()
    for number in range(12):
        data = tmp_path / f"{number}.jsonl"
        os.mkfifo(data)  # once it has been read, the command is past its imports
        run_dir = tmp_path / f"run-{number}"
        command = ("demo", "--data", str(data), "--delay", "0.03", "--calls", "4000", "--run-dir", str(run_dir))
        with child("-m", "adescent", *command) as demo:
            data.write_text(source)
            with pytest.raises(subprocess.TimeoutExpired):
                demo.wait(timeout=rng.uniform(0.0, 1.5))
            for _ in range(rng.choice((1, 1, 2))):
                demo.send_signal(signal.SIGINT)
            out, _ = demo.communicate(timeout=PATIENCE)
        assert (demo.returncode, out) == (130, "")
        if (run_dir / "ledger.git").exists():
            subprocess.run(["git", "-C", str(run_dir / "ledger.git"), "fsck"], check=True, capture_output=True)
