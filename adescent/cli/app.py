"""What the command takes, and how each end of it becomes an exit code."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter
from cyclopts.validators import Number

from adescent.cli.console import OutputConsole
from adescent.cli.exits import FAILED, OK, USAGE
from adescent.cli.streams import complain
from adescent.errors import AdescentError, ContractError, RunDirError

__all__ = ["answer"]

Count = Annotated[int, Parameter(validator=Number(gte=1))]
Seconds = Annotated[float, Parameter(validator=Number(gte=0))]
Flag = Annotated[bool, Parameter(negative=())]


def _version() -> str:
    from adescent.version import __version__  # looked up on disk, which only who asks for it is to wait for

    return __version__


app = App(
    name="adescent",
    help="Parallel workers improve the text that steers an agent; one aggregator keeps what holds, in a git ledger.",
    version=_version,
    suppress_keyboard_interrupt=False,  # `main` gives it the exit code it has everywhere
)


def answer(arguments: Sequence[str]) -> int:
    """Do what the arguments say; what goes wrong is one line on stderr and an exit code."""
    with _log_on_stderr():
        try:
            returned = app(
                arguments,
                console=OutputConsole(),
                exit_on_error=False,
                print_error=False,
                result_action="return_value",
            )
        except CycloptsError as error:
            command = " ".join(["adescent", *(error.command_chain or ())])
            return _complain(f"{error} ({command} --help)", USAGE)
        except (ContractError, RunDirError) as error:
            return _complain(str(error), USAGE)
        except AdescentError as error:
            return _complain(str(error), FAILED)
    return OK if returned is None else int(returned)


@app.command
def demo(
    *,
    corpus: Flag = False,
    data: Path | None = None,
    schedule: Literal["rounds", "stream"] = "stream",
    workers: Count = 6,
    seed: int = 0,
    calls: Count | None = None,
    delay: Seconds = 0.01,
    run_dir: Path | None = None,
    json: Flag = False,
) -> int:
    """Evolve routing rules twice and compare: by workers whose changes are merged, and by forks that share nothing.

    Either side may make the same number of calls. The rules start with one label for every text; what workers learn
    from texts that went wrong is measured on held-out ones before it is kept.

    Args:
        corpus: Route real utterances to one of ten languages (extra demo) instead of made-up texts.
        data: Route the texts of a JSONL file to their labels: one {"text": …, "label": …} a line. A label that is a
            whole number is taken as its digits.
        schedule: With a barrier after each round, or without one.
        workers: Workers side by side; also the number of forks.
        seed: Draws tasks and splits.
        calls: Calls of run and propose that either side may make; 40 a task unless given.
        delay: Seconds a rollout takes, where a model would be asked.
        run_dir: Where the ledger is kept, and a run continued that began there. A new directory in the system's
            place for temporary files unless given; it stays.
        json: One JSON object on stdout instead of the table.
    """
    from adescent.cli.demo import DemoOptions, run_demo

    options = DemoOptions(
        corpus=corpus,
        data=data,
        schedule=schedule,
        workers=workers,
        seed=seed,
        calls=calls,
        delay=delay,
        run_dir=run_dir,
        as_json=json,
    )
    return run_demo(options)


def _complain(message: str, code: int) -> int:
    complain(message)
    return code


class _Complaints(logging.Handler):
    """Log lines on what is stderr when they come: a live view that is up then puts them above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one."""
        complain(self.format(record))


@contextmanager
def _log_on_stderr() -> Iterator[None]:
    """Let warnings of the library be seen while the command runs; the library itself prints nothing."""
    handler = _Complaints()
    handler.setLevel(logging.WARNING)
    logger = logging.getLogger("adescent")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
