"""An archive proven from its place: a part of it that is damaged stops nothing else."""

from itertools import count
from pathlib import Path

from reconcile.cli.options import make_context
from reconcile.cli.output import Output
from reconcile.jobs.archive.verify import VerifyArchiveRequest, verify_archive
from recovery.model.ids import LedgerId
from tests.support.archives import ALL, capture_case, disks_of, list_archived, make_task

CASE = "c01-clean-sorted"


def test_named_ledgers_are_proven_beside_one_whose_index_is_damaged(tmp_path: Path) -> None:
    """Each ledger that needs the damaged index is named with it; the others are proven, an absent one is missing."""
    place, catalog = tmp_path / "place", capture_case(CASE, tmp_path / "catalog")
    [file] = make_task(catalog, place, disks_of(CASE))(ALL)["indexes"]
    ledgers = tuple(item.id for item in list_archived(place))
    low = min(ledgers, key=lambda ledger: ledger.bucket)
    absent = next(LedgerId(0, n) for n in count(1 << 40) if LedgerId(0, n).bucket != low.bucket)
    # The same file with a name of one bucket: what is in it is of no other.
    index = place / file
    last = index.name.split("-", 2)[2]
    broken = index.with_name(f"{low.bucket:04d}-{low.bucket:04d}-{last}")
    broken.write_bytes(index.read_bytes()[:-1])
    index.rename(index.with_name(f"{low.bucket + 1:04d}-4095-{last}"))
    context = make_context(Output(as_json=True, progress="none"))
    done = verify_archive(VerifyArchiveRequest(place=place, ledgers=(*ledgers, absent)), context)
    damaged = [ledger for ledger in ledgers if ledger.bucket == low.bucket]
    assert done.problems.keys() == set(map(str, damaged))
    assert all("is not the file that was written" in problem for problem in done.problems.values())
    assert (done.proven, done.damaged) == (len(ledgers) - len(damaged), len(damaged))
    assert done.missing == (str(absent),)
