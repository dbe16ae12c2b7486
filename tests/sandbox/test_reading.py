"""What an interpreter must be able to read, and what lies beside it."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import adescent
from adescent.sandbox import interpreter_paths
from adescent.sandbox.reading import covering


def covers(paths: list[str], path: str | Path) -> bool:
    return any(Path(path).is_relative_to(covered) for covered in paths)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory as scripts lie in, on ``sys.path``."""
    for name in ("actors.py", "data.json", ".env", ".git/config", ".venv/x.py", "package/__init__.py", "package/a.txt"):
        _write(tmp_path / name)
    for name in ("loose/module.py", "loose/notes.txt", "google/cloud/thing/__init__.py", "only_code/inner/a.py"):
        _write(tmp_path / name)
    for name in ("my-data/x.py", "far/too/deep/down/x.py", "thing-1.0.dist-info/METADATA", "answers/held_out.json"):
        _write(tmp_path / name)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def _write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def test_the_interpreter_and_this_package_can_be_read() -> None:
    paths = interpreter_paths()
    for path in (os.__file__, sys.executable, Path(sys.executable).resolve(), adescent.__file__, pytest.__file__):
        assert covers(paths, path)
    assert all(Path(path).exists() for path in paths)


def test_what_can_be_imported_from_a_directory_can_be_read_and_nothing_beside_it(project: Path) -> None:
    found = {Path(path).relative_to(project).as_posix() for path in interpreter_paths() if covers([str(project)], path)}
    assert found == {"actors.py", "google", "loose/module.py", "only_code", "package", "thing-1.0.dist-info"}


def test_a_private_directory_of_code_is_given_by_what_is_in_it(project: Path) -> None:
    (project / "only_code").chmod(0o700)
    assert covers(interpreter_paths(), project / "only_code" / "inner" / "a.py")
    assert str(project / "only_code") not in interpreter_paths()


def test_each_link_on_the_way_to_the_interpreter_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bin", "current", "python"):
        (tmp_path / name).mkdir()
    _write(tmp_path / "python" / "python3")
    (tmp_path / "current" / "python3").symlink_to("../python/python3")
    (tmp_path / "bin" / "python3").symlink_to(tmp_path / "current" / "python3")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python3"))
    assert {str(tmp_path / "current"), str(tmp_path / "python")} <= set(interpreter_paths())


@pytest.mark.parametrize("name", ["data.json", ".env", ".git/config", "answers/held_out.json", "loose/notes.txt"])
def test_data_beside_modules_stays_out_of_reach(project: Path, name: str) -> None:
    assert not covers(interpreter_paths(), project / name)


def test_where_packages_are_installed_all_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "site-packages"
    _write(installed / "package" / "data" / "words.txt")
    monkeypatch.syspath_prepend(str(installed))
    assert covers(interpreter_paths(), installed / "package" / "data" / "words.txt")


def test_an_archive_on_the_path_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path / "bundle.zip")
    monkeypatch.syspath_prepend(str(tmp_path / "bundle.zip"))
    assert str(tmp_path / "bundle.zip") in interpreter_paths()


def test_what_is_installed_as_editable_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path / "source" / "__init__.py")
    finder = types.ModuleType("__editable___thing_1_0_finder")
    finder.MAPPING = {"thing": str(tmp_path / "source")}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, finder.__name__, finder)
    assert str(tmp_path / "source") in interpreter_paths()


def test_what_is_not_there_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "gone"))
    assert not covers(interpreter_paths(), tmp_path / "gone")


def test_the_root_itself_is_never_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend("/")
    assert "/" not in interpreter_paths()
    assert covering(["/"]) == []


def test_a_link_that_leads_to_itself_leads_nowhere(project: Path) -> None:
    (project / "loop").symlink_to("loop")
    assert not covers(interpreter_paths(), project / "loop")


def test_links_are_given_with_what_they_lead_to(tmp_path: Path) -> None:
    _write(tmp_path / "real" / "file")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert covering([str(tmp_path / "link")]) == [str(tmp_path / "link"), str(tmp_path / "real")]


@given(st.lists(st.lists(st.sampled_from(["a", "b", "a b", "c"]), min_size=1, max_size=3)))
def test_nothing_is_named_that_lies_beneath_what_is(parts: list[list[str]]) -> None:
    root = os.path.realpath(Path(__file__).parents[1])
    asked = [root, *(str(Path(root, *path)) for path in parts), str(Path(root, "sandbox", "..", "sandbox"))]
    assert covering(asked) == [root]


def test_similar_names_are_not_beneath_each_other(tmp_path: Path) -> None:
    for name in ("lib", "lib64", "lib-x"):
        (tmp_path / name).mkdir()
    _write(tmp_path / "lib" / "inner" / "file")
    asked = [str(tmp_path / name) for name in ("lib/inner", "lib64", "lib", "lib-x", "lib/inner/file")]
    assert covering(asked) == sorted(str(tmp_path / name) for name in ("lib", "lib-x", "lib64"))
