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

    Whatever a killed process left of a beginning is completed, and so are empty folders that a copy left out. Raises
    LedgerError, and leaves nothing behind, when other files are there or a repository that is not a ledger's.
    """
    if path.exists() and not path.is_dir():
        raise LedgerError(f"{path} is a file: give the ledger a folder of its own.")
    path.mkdir(parents=True, exist_ok=True)
    _refuse_what_is_not_ours(path)
    with file_lock(str(path / LOCK_FILE)):
        for folder in FOLDERS:
            (path / folder).mkdir(parents=True, exist_ok=True)
        if not (path / "HEAD").exists():
            _write_files(path, sync=sync)


def _refuse_what_is_not_ours(path: Path) -> None:
    # Whoever makes a ledger takes its lock first and writes its HEAD last. So they are asked for in the other order.
    if (path / "HEAD").exists():
        if not (path / LOCK_FILE).exists():
            raise LedgerError(f"{path} is a git repository but no ledger: give the ledger a folder of its own.")
    elif others := sorted({entry.name for entry in path.iterdir()} - _OWN):
        raise LedgerError(f"{path} holds other files ({', '.join(others[:3])}): give the ledger a folder of its own.")


def _write_files(path: Path, *, sync: bool) -> None:
    for name, content in FILES.items():
        unfinished = path / f"{name}.new"
        write_unseen(str(unfinished), content, sync=sync)
        unfinished.rename(path / name)
    if sync:
        for folder in ("objects", "refs", ".", ".."):
            sync_folder(str(path / folder))
