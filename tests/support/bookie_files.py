"""The files of the real bookies of all cases, by what they are."""

from collections.abc import Iterator
from pathlib import Path

from recovery.codecs.entry_log import log_id_of
from recovery.codecs.journal import journal_id_of
from tests.support.cases import case_dir


def _in_current(case: str) -> Iterator[Path]:
    yield from sorted((case_dir(case) / "bookies").rglob("current/*"))


def cookies(case: str) -> list[Path]:
    """Return every VERSION file."""
    return [path for path in _in_current(case) if path.name == "VERSION"]


def entry_logs(case: str) -> list[Path]:
    """Return every entry log; RocksDB's own logs stand deeper."""
    return [path for path in _in_current(case) if log_id_of(path.name) is not None]


def journals(case: str) -> list[Path]:
    """Return every journal."""
    return [path for path in _in_current(case) if journal_id_of(path.name) is not None]


def last_marks(case: str) -> list[Path]:
    """Return every replay mark."""
    return [path for path in _in_current(case) if path.name.startswith("lastMark")]


def index_files(case: str) -> list[Path]:
    """Return every ledger index."""
    return sorted((case_dir(case) / "bookies").rglob("current/*/*/*.idx"))
