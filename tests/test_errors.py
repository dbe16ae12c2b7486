from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from adescent import errors
from adescent.errors import AdescentError

ARGUMENTS: dict[str, tuple[object, ...]] = {
    "ActorsNeverWorked": ("run", 8, ("ValueError: one", "KeyError: two")),
    "BudgetExhausted": ("calls", 10, 3),
    "CASConflict": ("artifact", 3, 5),
    "GovernanceError": ("oracle",),
    "LoopRunning": ("evolve()", "async_evolve()"),
    "RunDirInUse": ("runs/one", "process 7"),
    "RunDirMismatch": ("runs/one", "seed 1, not 0"),
    "SandboxUnavailable": ("landlock", "limits", "install what is missing"),
    "Transient": ("too many requests", 2.5),
    "UnknownArtifact": ("artifact", 4),
    "WrongThread": ("Evolution.stop()",),
}


def example(name: str) -> AdescentError:
    error: AdescentError = getattr(errors, name)(*ARGUMENTS.get(name, ("what is wrong, and what to do about it",)))
    return error


def drawn() -> dict[str, str]:
    """Return what the docstring's tree says: name to the name of its parent."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for match in re.finditer(r"^    ([│├└─ ]*)(\w+)(?: {2,}.*)?$", inspect.getdoc(errors) or "", re.MULTILINE):
        depth = len(match[1]) // 4
        path[depth:] = [match[2]]
        parents[match[2]] = path[depth - 1] if depth else "Exception"
    return parents


def test_the_tree_names_every_error() -> None:
    assert sorted(drawn()) == errors.__all__
    defined = [name for name, value in vars(errors).items() if inspect.isclass(value)]
    assert sorted(defined) == errors.__all__


@pytest.mark.parametrize("name", errors.__all__)
def test_the_tree_is_drawn_as_it_is(name: str) -> None:
    assert getattr(errors, name).__base__.__name__ == drawn()[name]


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_survives_a_pickle_and_a_copy(name: str) -> None:
    error = example(name)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)
        assert twin.args == error.args


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_speaks_of_everything_it_was_given(name: str) -> None:
    error = example(name)
    for argument in error.args:
        for part in argument if isinstance(argument, tuple) else (argument,):
            # How long to wait is for the retry layer, not for the reader.
            assert str(part) in str(error) or (name, part) == ("Transient", 2.5)


def test_what_may_be_left_out_may_be_left_out() -> None:
    assert str(errors.Transient())
    assert "None" not in str(errors.UnknownArtifact("artifact"))
    assert " by " not in str(errors.RunDirInUse("runs/one"))


def test_the_standard_names_catch_them_too() -> None:
    assert issubclass(errors.OptionError, TypeError)
    assert issubclass(errors.LoopRunning, RuntimeError)
    assert issubclass(errors.WrongThread, RuntimeError)
