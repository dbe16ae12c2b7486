"""What becomes of a rollout in a worker: outputs, scores, failures, states to go on from, and no secrets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from adescent.executors.wire import Checkpoint, Done

Start = Callable[..., Any]


def test_an_actor_gets_the_artifact_and_the_task_and_no_more_than_it_may_see(patient: Any) -> None:
    job = patient.has("run", "judge", hide=["gold", "judge"])
    meta = {"gold": "42", "hint": [1, {"a": None}], "judge": "score = Score(0.5, f'{task.meta} {output}')"}
    answer, _ = patient.answer(7, "output = [rendered, task.id, dict(task.meta)]", job, meta=meta)
    assert answer.lease == 7
    assert answer.output == ["the artifact", "task 7", {"hint": [1, {"a": None}]}]
    assert answer.score == 0.5
    assert answer.feedback == f"{meta} {answer.output}"


def test_a_run_takes_its_context_or_does_not(patient: Any) -> None:
    assert patient.output(1, "hello", patient.has("two")) == "the artifact, hello"


def test_without_a_scorer_there_is_no_score(patient: Any) -> None:
    answer, _ = patient.answer(1, "output = 1")
    assert (answer.output, answer.score, answer.metrics) == (1, None, {})


def test_a_scorer_alone_scores_what_it_is_given(patient: Any) -> None:
    job = patient.has(None, "judge", hide=["judge"])
    judge = "score = Score(len(output) / 4, metrics={'length': len(output)})"
    answer, _ = patient.answer(1, "", job, meta={"judge": judge}, output=["a", "b"])
    assert answer == Done(1, answer.seconds, None, 0.5, "", {"length": 2.0})


def test_seconds_are_what_it_took(patient: Any) -> None:
    answer, _ = patient.answer(
        1, "import time; start = time.perf_counter()\nwhile time.perf_counter() < start + 0.05: pass"
    )
    assert 0.05 <= answer.seconds < 20.0


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("output = (1, ('a', [()]))", [1, ["a", [[]]]]),
        ("from types import MappingProxyType as M; output = M({'a': M({'b': 1.5})})", {"a": {"b": 1.5}}),
        ("output = {'é': '🙂', '': None}", {"é": "🙂", "": None}),
        ("output = [2**63 - 1, -2**63, True, 0.1]", [2**63 - 1, -(2**63), True, 0.1]),
        ("class Text(str): pass\noutput = Text('a')", "a"),
        ("import enum; output = enum.StrEnum('E', ['A']).A", "a"),
        ("output = 'x' * 2_000_000", "x" * 2_000_000),
    ],
)
def test_an_output_arrives_as_json(patient: Any, code: str, output: Any) -> None:
    found = patient.output(1, code)
    assert found == output
    assert type(found) is type(output)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("output = object()", "output: a object cannot"),
        ("output = {'a': [1, {2}]}", r"output.a[1]: a set cannot"),
        ("output = b'bytes'", "output: a bytes cannot"),
        ("output = {1: 2}", "output: the key 1 is a int"),
        ("output = {'a': float('nan')}", "output.a: nan is not JSON"),
        ("output = [float('-inf')]", "output[0]: -inf is not JSON"),
        ("output = 2**63", "output: an integer beyond 64 bits"),
        ("output = {'a': '\\ud800'}", "output.a: a lone surrogate"),
        ("output = []\noutput.append(output)", "nested deeper than 64 levels"),
        ("import attrs; output = attrs.make_class('C', [])()", "output: a C cannot"),
        ("output = 'x' * (2**26)", "too large to be sent"),
        ("output = (n for n in ())", "output: a generator cannot"),
    ],
)
def test_an_output_that_is_no_json_is_a_failure_of_the_run_that_names_the_field(
    patient: Any, code: str, words: str
) -> None:
    failure = patient.failure(1, code)
    assert (failure.kind, failure.stage, failure.output) == ("model", "run", None)
    assert failure.type in ("ContractError", "WireError")
    assert words in failure.message
    assert patient.output(2, "output = 2") == 2


@pytest.mark.parametrize(
    "code",
    [
        "class D(dict):\n def items(self): raise SystemExit('no')\noutput = D(a=1)",
        "class D(dict):\n def items(self): raise KeyboardInterrupt('no')\noutput = [D(a=1)]",
        "class C:\n @property\n def __class__(self): raise SystemExit('no')\noutput = C()",
        "class K:\n def __repr__(self): raise SystemExit('no')\noutput = {K(): 1}",
        "class S(str):\n def isascii(self): raise GeneratorExit('no')\noutput = S()",
    ],
)
@pytest.mark.parametrize("run", ["run", "arun"])
def test_what_the_methods_of_an_output_raise_is_the_runs_failure(patient: Any, run: str, code: str) -> None:
    job = patient.has(run)
    failure = patient.failure(1, f"{code}\nreturn output" if run == "arun" else code, job)
    assert (failure.kind, failure.stage, failure.message) == ("model", "run", "no")
    assert failure.type in ("SystemExit", "KeyboardInterrupt", "GeneratorExit")
    assert patient.output(2, "return 2" if run == "arun" else "output = 2", job) == 2


@pytest.mark.parametrize("said", ["'x' * 2**26", "'', dict.fromkeys(map(str, range(2**18)), 1)"])
def test_what_a_scorer_says_too_much_of_is_its_own_failure(patient: Any, said: str) -> None:
    failure = patient.failure(
        1, "output = 'kept'", patient.has("run", "judge"), meta={"judge": f"score = Score(1.0, {said})"}
    )
    assert (failure.kind, failure.stage, failure.type, failure.output) == ("caller", "reward", "WireError", "kept")


def test_an_output_that_is_too_large_is_the_runs_failure_whoever_scores_it(patient: Any) -> None:
    failure = patient.failure(1, "output = 'x' * 2**26", patient.has("run", "judge"))
    assert (failure.kind, failure.stage, failure.type) == ("model", "run", "WireError")


def test_a_scorer_sees_what_is_sent_and_cannot_change_it(patient: Any) -> None:
    job = patient.has("run", "judge")
    judge = "assert output == {'a': [1]}; output['a'] = object(); score = 1.0"
    answer, _ = patient.answer(1, "output = {'a': (1,)}", job, meta={"judge": judge})
    assert (answer.output, answer.score) == ({"a": [1]}, 1.0)


@pytest.mark.parametrize(
    ("judge", "type_", "words"),
    [
        ("score = 1.5", "VoidScore", "1.5"),
        ("score = float('nan')", "VoidScore", "nan"),
        ("score = True", "VoidScore", "bool"),
        ("score = None", "VoidScore", "None"),
        ("score = Score(0.5, feedback=7)", "ContractError", "feedback is a int"),
        ("score = Score(0.5, metrics={'a': float('inf')})", "ContractError", "metrics.a: inf"),
        ("score = Score(0.5, metrics={'a': 'b'})", "ContractError", "metric 'a' is a str"),
        ("score = Score(0.5, metrics={1: 1})", "ContractError", "the key 1"),
        ("score = Score(0.5, metrics=[1])", "ContractError", "metrics are a list"),
        ("1 / 0", "ZeroDivisionError", "division"),
        ("raise SystemExit(3)", "SystemExit", "3"),
        (
            "class M(dict):\n def items(self): raise SystemExit('no')\nscore = Score(1.0, '', M(a=1))",
            "SystemExit",
            "no",
        ),
        ("class N:\n def __repr__(self): raise SystemExit('mute')\nscore = N()", "SystemExit", "mute"),
    ],
)
def test_what_a_scorer_gets_wrong_is_the_callers(patient: Any, judge: str, type_: str, words: str) -> None:
    job = patient.has("run", "judge")
    failure = patient.failure(1, "output = 'kept'", job, meta={"judge": judge})
    assert (failure.kind, failure.stage, failure.type, failure.output) == ("caller", "reward", type_, "kept")
    assert words in failure.message


@pytest.mark.parametrize(
    ("run", "reward", "type_", "words"),
    [
        ("os:system", None, "RefError", "may not be resolved here"),
        ("exiting_actors:run", None, "RefError", "importing exiting_actors failed with SystemExit"),
        ("missing", None, "RefError", "defines no 'missing'"),
        ("one", None, "ContractError", "cannot be called as run(rendered, task[, ctx])"),
        ("run", "one", "ContractError", "cannot be called as reward(task, output)"),
        ("SHARED", None, "RefError", "not defined in"),
    ],
)
def test_actors_that_cannot_be_had_are_the_callers_failure(
    patient: Any, run: str, reward: str | None, type_: str, words: str
) -> None:
    failure = patient.failure(1, "", patient.has(run, reward))
    assert (failure.kind, failure.stage, failure.type) == ("caller", "worker", type_)
    assert words in failure.message
    assert patient.output(2, "output = 2") == 2


def test_actors_are_resolved_once(patient: Any) -> None:
    job = patient.has("run")
    assert patient.output(1, "import sys; del sys.modules['scripted_actors']", job) is None
    assert patient.output(2, "import sys; output = 'scripted_actors' in sys.modules", job) is False


@pytest.mark.parametrize(
    ("code", "type_", "message"),
    [
        ("raise ValueError('no')", "ValueError", "no"),
        ("raise SystemExit(3)", "SystemExit", "3"),
        ("import sys; sys.exit()", "SystemExit", ""),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("raise GeneratorExit", "GeneratorExit", ""),
        ("def f(): f()\nf()", "RecursionError", "maximum recursion depth exceeded"),
        ("raise MemoryError", "MemoryError", ""),
        ("raise ValueError('\\ud800')", "ValueError", "\\ud800"),
        ("raise ValueError('x' * 10**7)", "ValueError", "x" * 2000),
        ("input()", "EOFError", "EOF when reading a line"),
        ("class E(Exception):\n def __str__(self): raise ValueError\nraise E", "E", "(no message: its __str__ raised"),
        ("class E(Exception):\n def __str__(self): raise SystemExit\nraise E", "E", "(it raises when asked for"),
        (
            "class E(Exception):\n def __str__(self): return 1\nraise E",
            "E",
            "(no message: its __str__ raised TypeError",
        ),
        ("class E(BaseException):\n def __str__(self): raise self\nraise E", "E", "(it raises when asked"),
        ("class E(Exception):\n __class__ = property(lambda self: exit(3))\nraise E", "E", "(it raises when asked for"),
        (
            "class M(type):\n __name__ = property(exit)\nclass E(Exception, metaclass=M): pass\nraise E('named')",
            "E",
            "named",
        ),
        (
            "class M(type):\n __name__ = 5\nclass E(Exception, metaclass=M): pass\nraise E('named')",
            "E",
            "named",
        ),
        ("e = ValueError()\nfor n in range(2000): e = ExceptionGroup(f'{n}', [e])\nraise e", "ExceptionGroup", "1999"),
        ("raise BaseExceptionGroup('two', [ValueError(), SystemExit()])", "BaseExceptionGroup", "two (2"),
    ],
)
@pytest.mark.parametrize("run", ["run", "arun"])
def test_whatever_a_run_raises_is_its_own_failure(patient: Any, run: str, code: str, type_: str, message: str) -> None:
    job = patient.has(run)
    failure = patient.failure(1, code, job)
    assert (failure.kind, failure.stage, failure.type, failure.transient) == ("model", "run", type_, False)
    assert failure.message.startswith(message)
    assert patient.output(2, "return 2" if run == "arun" else "output = 2", job) == 2


def test_a_plain_function_that_lets_a_stop_iteration_out_is_told_so(patient: Any) -> None:
    failure = patient.failure(1, "next(iter([]))")
    assert (failure.kind, failure.stage, failure.type) == ("model", "run", "StopIteration")
    assert failure.traceback.endswith("StopIteration\n")


def test_a_failure_has_words_where_there_is_no_traceback_to_be_had(worker: Any) -> None:
    failure = worker.failure(1, "import linecache; linecache.getline = linecache.checkcache = exit\n{}['missing']")
    assert (failure.type, failure.message, failure.traceback) == ("KeyError", "'missing'", "")


def test_a_traceback_begins_where_the_actor_does(patient: Any) -> None:
    failure = patient.failure(1, "def deep():\n    raise ValueError('no')\ndeep()")
    assert failure.traceback.startswith('Traceback (most recent call last):\n  File "')
    assert "scripted_actors.py" in failure.traceback.splitlines()[1]
    assert failure.traceback.endswith("in deep\nValueError: no\n")


@pytest.mark.parametrize(
    ("wait", "kept"),
    [("2.5", 2.5), ("3", 3.0), ("None", None), ("float('nan')", None), ("'soon'", None), ("True", None)],
)
def test_a_passing_failure_says_so(patient: Any, wait: str, kept: float | None) -> None:
    failure = patient.failure(1, f"from adescent.errors import Transient; raise Transient('busy', {wait})")
    assert (failure.transient, failure.retry_after, failure.message) == (True, kept, "busy")


IN_LARGE_PIECES = "pieces = []\nwhile True: pieces.append(bytearray(2**20))"
TO_THE_LAST_BYTE = "chain = None\nwhile True: chain = (chain,)"


@pytest.mark.parametrize("job", [1, 2], ids=["plain", "async"])
@pytest.mark.parametrize(
    "codes",
    [
        [IN_LARGE_PIECES, "output = bytearray(2**40)"],
        pytest.param([TO_THE_LAST_BYTE, IN_LARGE_PIECES] * 2, marks=pytest.mark.slow),
    ],
    ids=["early", "late"],
)
def test_memory_that_runs_out_is_the_runs_failure(start: Start, codes: list[str], job: int) -> None:
    worker = start(level="limits", memory_mb=200)
    for lease, code in enumerate(codes):
        failure = worker.failure(lease, code, job)
        assert (failure.kind, failure.stage, failure.type) == ("model", "run", "MemoryError")
        assert failure.traceback.endswith("MemoryError\n")
    assert worker.output(9, "output = len('x' * 10**7)") == 10**7


def test_a_state_to_go_on_from_is_told_at_once_and_given_to_the_next_attempt(patient: Any) -> None:
    patient.begin(1, "ctx.checkpoint({'step': 1}); ctx.checkpoint(('step', 2)); output = ctx.resume_state")
    assert patient.expect(Checkpoint) == Checkpoint(1, {"step": 1})
    assert patient.expect(Checkpoint) == Checkpoint(1, ["step", 2])
    assert patient.expect(Done).output is None
    assert patient.output(2, "output = ctx.resume_state", resume_state={"step": 2}) == {"step": 2}


def test_a_state_of_a_rollout_that_has_ended_is_nobodys(patient: Any) -> None:
    assert patient.output(1, "shared['ctx'] = ctx") is None
    patient.begin(2, "shared['ctx'].checkpoint(1); ctx.checkpoint(2)")
    assert patient.expect(Checkpoint) == Checkpoint(2, 2)
    patient.expect(Done)


def test_a_state_that_cannot_be_sent_is_the_actors_to_handle(patient: Any) -> None:
    failure = patient.failure(1, "ctx.checkpoint({'a': object()})")
    assert (failure.type, failure.message.split(":")[0]) == ("ContractError", "checkpoint.a")
    failure = patient.failure(2, "ctx.checkpoint('x' * 2**26)")
    assert "too large to be sent" in failure.message


SECRET = "correct horse battery staple"


@pytest.mark.parametrize("run", ["run", "arun"])
def test_a_secret_leaves_in_nothing(start: Start, run: str) -> None:
    worker = start({"TOKEN": SECRET, "LINES": "first line of it\nsecond line of it"}, secrets=["TOKEN", "LINES"])
    job = worker.has(run, "judge")
    code = (
        "import os; s = os.environ['TOKEN']; print(s); print('x' * 9000 + s)\n"
        "ctx.checkpoint({s: [s]}); output = {'a': [s, {s: s + os.environ['LINES'].splitlines()[1]}]}"
    )
    worker.begin(1, code + ("; return output" if run == "arun" else ""), job, meta={"judge": judge_with_secret(0.5)})
    said = [worker.next() for _ in range(5)]
    assert SECRET not in str(said)
    assert "second line of it" not in str(said)
    assert said[1] == Checkpoint(1, {"«TOKEN»": ["«TOKEN»"]}) or said[2] == Checkpoint(1, {"«TOKEN»": ["«TOKEN»"]})
    assert said[-1].output == {"a": ["«TOKEN»", {"«TOKEN»": "«TOKEN»«LINES»"}]}
    assert said[-1].feedback == "saw «TOKEN»"


def judge_with_secret(score: float) -> str:
    return f"import os; score = Score({score}, 'saw ' + os.environ['TOKEN'])"


def test_a_secret_is_in_no_failure_either(start: Start) -> None:
    worker = start({"TOKEN": SECRET}, secrets=["TOKEN"])
    failure = worker.failure(1, "import os; s = os.environ['TOKEN']; raise ValueError(s)")
    assert failure.message == "«TOKEN»"
    assert failure.traceback.endswith("ValueError: «TOKEN»\n")
    job = worker.has("run", "judge")
    failure = worker.failure(2, "import os; output = os.environ['TOKEN']", job, meta={"judge": "1 / 0"})
    assert failure.output == "«TOKEN»"
