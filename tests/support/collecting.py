"""Collecting a made bookie's folders, and asking the inventory."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.dataset import open_dataset
from tests.simulation.bookie_dir import BookieDir

Row = dict[str, Any]


class Seen:
    """What an inventory says."""

    def __init__(self, out: Path) -> None:
        dataset = open_dataset(out, "inventory")
        copies, bookies, damage = (dataset.read(name) for name in ("copies", "bookies", "damage"))
        self.tables: tuple[Any, Any, Any] = copies, bookies, damage
        self.copies: list[Row] = copies.to_pylist()
        self.damage: list[Row] = damage.to_pylist()
        (self.bookie,) = bookies.to_pylist()

    def entries(self, source: str, ledger: int) -> list[int]:
        """The entries that a source's rows list of a ledger."""
        return [
            entry
            for row in self.copies
            if (row["source"], row["ledger"]) == (source, ledger)
            for group in row["groups"]
            for start in range(group["first"], group["last"] + 1, group["period"] or 1)
            for entry in range(start, start + group["size"])
        ]

    def row(self, ledger: int, source: str = "index") -> Row:
        """The only row of a ledger and a source."""
        (row,) = [r for r in self.copies if (r["ledger"], r["source"]) == (ledger, source)]
        return row

    def reasons(self) -> set[tuple[str, int | None, bool]]:
        """Reason, ledger and whether entries are hidden, of all damage."""
        return {(row["reason"], row["ledger"], row["hides_entries"]) for row in self.damage}


def look(made: BookieDir, out: Path, **more: Any) -> Seen:
    """Collect a bookie's folders into a new folder beside them."""
    folders = {"ledger_dirs": made.ledger_dirs, "index_dirs": made.index_dirs, "journal_dirs": made.journal_dirs}
    options = CollectOptions(**{**folders, **more})
    collect(options, out / "inventory", now=lambda: datetime.now(UTC), progress=lambda _: None)
    return Seen(out / "inventory")
