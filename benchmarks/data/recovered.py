"""A plan of made-up inventories as `recover` makes it, and the journal that `apply` of it would leave.

    plan/           of the inventories of as many ledgers, for a store that is empty
    recover.json    what making it took: seconds, CPU seconds, peak bytes of its largest process
    journal/        each write announced and done, a hundred at a time

The digest of a value, which a journal announces, is the id of its action here: it is as long.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.data import inventories
from benchmarks.data.cache import kept
from benchmarks.data.ledgers import BOOKIES, PASSWORD
from benchmarks.data.plans import LAYOUT
from benchmarks.measure import bkmeta, run
from reconcile.write.audit_journal import AuditJournal
from reconcile.write.journal_events import AnnouncedWrite, ApplyEnd, Done, Intent, append_event
from reconcile.write.writer import BATCH_ROWS
from recovery.dataset import open_dataset

PLAN: Final = "plan"
JOURNAL: Final = "journal"
COST: Final = "recover.json"
_MASTER: Final = "local[2]"
_FIELDS: Final = ("seq", "op", "id", "key", "expects")


def write(folder: Path, ledgers: int) -> None:
    """Write the plan and its journal."""
    found = kept(folder.parent, inventories.write, ledgers)
    passwords, expected = folder / "passwords", folder / "bookies"
    passwords.touch(0o600)
    passwords.write_bytes(PASSWORD + b"\n")
    expected.write_text("".join(f"{name}\n" for name in BOOKIES))
    options = ("--layout", LAYOUT.value, "--passwords", passwords, "--expect-bookies", expected, "--master", _MASTER)
    made = ("recover", "--inventory-dir", found, *options, "--out", folder / PLAN, "--json", "--progress", "none")
    cost = run(bkmeta(*made))
    taken = {"seconds": cost.seconds, "cpu_s": cost.cpu_s, "peak": cost.peaks[""]}
    (folder / COST).write_text(json.dumps(taken))
    binding = {"plan": str(open_dataset(folder / PLAN, "plan").manifest["hash"]), "root": "/ledgers", "store": "zk://"}
    with AuditJournal.open(
        folder / JOURNAL, binding, resume=False, now=lambda: datetime.now(UTC), replay=lambda _record: None
    ) as journal:
        written = 0
        for number, writes in enumerate(_announce(folder / PLAN)):
            append_event(journal, Intent(number, "ledger", writes))
            append_event(journal, Done(number, [0] * len(writes), (), ()))
            written += len(writes)
        append_event(journal, ApplyEnd({"create ledger": [written, 0, 0, 0]}, 0))
        journal.sync()


def _announce(plan: Path) -> Iterator[list[AnnouncedWrite]]:
    for rows in open_dataset(plan, "plan").batches("actions", [*_FIELDS]):
        for low in range(0, rows.num_rows, BATCH_ROWS):
            some = rows.slice(low, BATCH_ROWS)
            yield [
                AnnouncedWrite(seq, op, action.hex(), key, expects, action.hex(), None)
                for seq, op, action, key, expects in zip(*(some[name].to_pylist() for name in _FIELDS), strict=True)
            ]
