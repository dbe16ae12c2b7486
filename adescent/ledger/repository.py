"""Making the repository a ledger lives in: bare, plain, and untouched by anybody's git configuration."""

from __future__ import annotations

from pathlib import Path

from adescent.errors import LedgerError
from adescent.ledger.filelock import file_lock
from adescent.ledger.files import sync_folder, write_unseen

__all__ = ["LOCK_FILE", "SPARES_FOLDER", "ensure_repository"]

LOCK_FILE = "ledger.lock"
SPARES_FOLDER = "ledger.spares"
FOLDERS = (SPARES_FOLDER, "objects/pack", "objects/info", "refs/heads", "refs/tags")
FILES = {
    "config": b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n",
    "HEAD": b"ref: refs/heads/dev\n",
}
"""In this order: git takes a folder for a repository once it has a HEAD, so that one comes last."""
_OWN = {LOCK_FILE, SPARES_FOLDER, "objects", "refs", *FILES, *(f"{name}.new" for name in FILES)}


def ensure_repository(path: Path, *, sync: bool) -> None:
    """Make ``path`` a bare repository unless it is one; any number of processes may do so at once.

    Whatever a killed process left of a beginning is completed. Raises LedgerError when other files are there.
    """
    if path.exists() and not path.is_dir():
        raise LedgerError(f"{path} is a file: give the ledger a folder of its own.")
    path.mkdir(parents=True, exist_ok=True)
    _refuse_other_files(path)
    with file_lock(str(path / LOCK_FILE)):
        if not (path / "HEAD").exists():
            _create(path, sync=sync)


def _refuse_other_files(path: Path) -> None:
    if (path / "HEAD").exists():
        return
    if others := sorted({entry.name for entry in path.iterdir()} - _OWN):
        raise LedgerError(f"{path} holds other files ({', '.join(others[:3])}): give the ledger a folder of its own.")


def _create(path: Path, *, sync: bool) -> None:
    for folder in FOLDERS:
        (path / folder).mkdir(parents=True, exist_ok=True)
    for name, content in FILES.items():
        unfinished = path / f"{name}.new"
        write_unseen(str(unfinished), content, sync=sync)
        unfinished.rename(path / name)
    if sync:
        for folder in ("objects", "refs", ".", ".."):
            sync_folder(str(path / folder))
