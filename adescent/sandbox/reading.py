"""What a confined interpreter must be able to read: the system's share, and what this interpreter imports from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import all_suffixes
from pathlib import Path

__all__ = ["NETWORK", "SYSTEM", "covering", "interpreter_paths"]

# Nothing here is anyone's own: programs, shared libraries, and how they are configured. No /etc/passwd, and neither
# /etc/ssl nor /usr as a whole: private keys lie in the one, applications in the other.
SYSTEM = (
    *("/bin", "/lib", "/lib32", "/lib64", "/sbin", "/nix/store"),
    *(f"/usr/{name}" for name in ("bin", "lib", "lib32", "lib64", "libexec", "sbin", "share")),
    *(f"/usr/local/{name}" for name in ("bin", "lib", "lib64", "share")),
    *(
        f"/etc/{name}"
        for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "timezone")
    ),
    *(f"/etc/{name}" for name in ("mime.types", "nsswitch.conf", "protocols", "services")),
    *("/etc/ssl/openssl.cnf", "/etc/ssl/certs", "/etc/pki/tls/openssl.cnf", "/etc/pki/tls/certs"),
    *("/etc/pki/ca-trust/extracted", "/etc/crypto-policies"),
    "/sys/devices/system/cpu",
)
NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/gai.conf")
"""What is read to find a host by its name."""

_IN_PREFIX = ("bin", "lib", "lib32", "lib64", "libexec", "share", "pyvenv.cfg")
_INSTALLED = ("site-packages", "dist-packages")
_CODE = (*all_suffixes(), ".dist-info", ".egg-info")
_NESTED = 2
"""How many levels of directories that are no packages are looked through (``google/cloud/…``)."""


def interpreter_paths() -> list[str]:
    """What another interpreter with this one's ``sys.path`` must be able to read, as absolute paths that exist.

    Of a directory that packages are installed in, all. Of another one on ``sys.path`` (where a script lies, say) what
    can be imported from it, not what lies beside that: modules, and whole packages. So a key, a data file or a ``.git``
    next to the script stays out of reach, and a file that an actor reads belongs into its package.
    """
    found = [*_of_the_interpreter(), *_editable(), *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)]
    for entry in map(_absolute, sys.path):
        if entry.endswith(_INSTALLED) or Path(entry).is_file() or _beneath(entry, found):
            found.append(entry)
        else:
            found += _importable(entry)
    return covering(found)


def covering(paths: Iterable[str]) -> list[str]:
    """Those of ``paths`` that exist, sorted, without what lies beneath another; where links lead is added."""
    known = {_absolute(path) for path in paths if path}
    existing = {path for path in known | set(map(os.path.realpath, known)) if Path(path).exists()}
    kept: list[str] = []
    for path in sorted(existing - {"/"}, key=lambda path: path.split("/")):
        # Sorted by their parts, what lies beneath a path follows it at once.
        if not kept or not _beneath(path, kept[-1:]):
            kept.append(path)
    return kept


def _of_the_interpreter() -> Iterator[str]:
    for prefix in {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}:
        yield from (f"{prefix}/{name}" for name in _IN_PREFIX)
    program = Path(sys.executable)
    while program.is_symlink():  # each link on the way is read
        program = program.parent / program.readlink()
        yield str(program.parent)
    yield str(Path(__file__).absolute().parents[1])


def _editable() -> Iterator[str]:
    """Where setuptools finds what it has installed as editable without a directory on ``sys.path``."""
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):
            yield from getattr(module, "MAPPING", {}).values()


def _absolute(path: str) -> str:
    return os.path.normpath(Path(path).absolute())


def _beneath(path: str, others: Iterable[str]) -> bool:
    return any(path == other or path.startswith(f"{other}/") for other in others if other)


def _importable(directory: str, nested: int = _NESTED) -> list[str]:
    """The modules and packages in ``directory``."""
    return [path for entry in _entries(directory) for path in _of_entry(entry, nested)]


def _of_entry(entry: os.DirEntry[str], nested: int) -> list[str]:
    if entry.name.endswith(_CODE) or entry.name == "__pycache__":
        return [entry.path]
    if not entry.name.isidentifier() or not _is_directory(entry):
        return []
    if any(inner.name.startswith("__init__.") for inner in _entries(entry.path)):
        return [entry.path]
    if not nested:
        return []
    inside = _importable(entry.path, nested - 1)
    # Nothing but code: one path is sooner bound than many.
    return [entry.path] if len(inside) == len(_entries(entry.path)) and _is_open(entry) else inside


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _is_open(entry: os.DirEntry[str]) -> bool:
    return entry.stat().st_mode & 0o005 == 0o005


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:  # not there, or not for us: then not for a worker either
        return []
