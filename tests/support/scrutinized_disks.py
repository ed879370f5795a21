"""Scrutinies of real disks by their inventories alone: no server runs."""

from pathlib import Path
from typing import Final

from tests.support import acid
from tests.support.cases import case_dir, truth
from tests.support.cluster import bookies_of

CASE: Final = "c06"
"""Re-replicated ledgers: bookies have entries that no record asks of them."""


def scrutinize_disks(work: Path, runs: int = 2) -> list[Path]:
    """Scrutinize the case without its first bookie, so often; each run knows the one before. Return their folders."""
    for bookie in bookies_of(truth(CASE))[1:]:
        roles = {"--journal-dir": bookie.journals, "--ledger-dir": bookie.ledgers, "--index-dir": bookie.indexes or ()}
        disks = [word for role, names in roles.items() for name in names for word in (role, case_dir(CASE) / name)]
        acid.run("collect", *disks, "--out", work / "inventories" / str(bookie.n))
    store = f"zkfiles://{case_dir(CASE) / 'zookeeper'}?root={truth(CASE)['root']}"
    outs = [work / f"run-{number}" for number in range(runs)]
    for number, out in enumerate(outs):
        since: list[str | Path] = ["--since", outs[number - 1]] if number else []
        given: list[str | Path] = [
            "--metadata",
            store,
            "--inventory-dir",
            work / "inventories",
            "--recheck-after",
            "0s",
        ]
        acid.run("scrutinize", *given, *since, "--out", out, codes=(0, 3, 4))
    return outs
