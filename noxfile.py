"""The sessions that a change passes before it lands: ``nox`` runs the usual ones, ``nox -l`` lists all."""

from __future__ import annotations

from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv|venv"
nox.options.sessions = ["lint", "typing", "tests", "wheel"]

ROOT = Path(__file__).parent
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)


def group(*names: str) -> list[str]:
    """Return the requirements of dependency groups, so that no installer has to know what a group is."""
    return list(nox.project.dependency_groups(PROJECT, *names))


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, imports and formatting."""
    session.install(*group("lint"))
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")


@nox.session(python=PYTHONS[0])
def typing(session: nox.Session) -> None:
    """Check types with both checkers, against the oldest Python."""
    session.install("-e", ".[all]", *group("typing"))
    session.run("mypy")
    session.run("basedpyright", "--pythonpath", f"{session.bin}/python")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests on both event loops, with new random examples, and report the lines and branches they reach."""
    session.install("-e", ".[all]", *group("tests"))
    session.env["COVERAGE_FILE"] = f"{session.create_tmp()}/coverage"
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", "--hypothesis-profile=explore", *session.posargs)
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report")


@nox.session(python=PYTHONS[0])
def slow(session: nox.Session) -> None:
    """Run the tests that take more than two seconds each."""
    session.install("-e", ".[all]", *group("tests"))
    session.run("pytest", "-m", "slow", *session.posargs)


@nox.session(python=PYTHONS[0], venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """Run the tests with the lowest versions that pyproject.toml says are enough."""
    session.install("--resolution", "lowest-direct", "-e", ".[all]", *group("tests"))
    session.run("pytest", *session.posargs)


@nox.session(python=PYTHONS[0])
def wheel(session: nox.Session) -> None:
    """Build the wheel and run the tests against it, out of reach of the checkout."""
    away = Path(session.create_tmp()).resolve()
    session.install(*PROJECT["build-system"]["requires"])
    session.run("hatchling", "build", "--clean", "-t", "wheel", "-d", str(away / "dist"))
    (built,) = (away / "dist").glob("*.whl")
    session.install(f"{built}[all]", *group("tests"))
    session.chdir(away)
    session.run("python", "-c", "import adescent; assert 'site-packages' in adescent.__file__, adescent.__file__")
    session.run("pytest", "-c", f"{ROOT}/pyproject.toml", f"--rootdir={ROOT}", *(session.posargs or [f"{ROOT}/tests"]))


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; a link that leads nowhere is an error."""
    session.install(*group("docs"))
    session.run("zensical", "build", "--strict", "-f", "docs/mkdocs.yml")


@nox.session(python=PYTHONS[0])
def bench(session: nox.Session) -> None:
    """See that every benchmark still runs, with sizes too small to mean anything."""
    session.install("-e", ".[all]")
    for script in sorted((ROOT / "benchmarks").glob("[!_]*.py")):
        session.run("python", str(script), "--smoke")
