"""Ledgers of scopes read back from disks: what is wrong with them is said, and nobody else's entries count for them."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from backends.protocols import Write
from reconcile.check.verify import verify
from reconcile.check.verify_results import VerifyOutcome, VerifyResult
from recovery.bookies.disk_reader import open_disks
from recovery.codecs.store import Layout
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest
from tests.recovery.collect.test_index_database import write_database
from tests.simulation.bookie_dir_scoped import Held, Storage, make_scoped_bookie
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger, write_plan

BOOKIES = ("10.0.0.1:3181", "10.0.0.2:3181")
STORAGES: Sequence[Storage] = get_args(Storage)
LOW = 12_345
OURS = Held(LedgerId(7, LOW), range(4), ahead=(4,))
FLIPPED = 0xFF


def verified(root: Path, held: Sequence[Held], storage: Storage, *wanted: Held) -> VerifyResult:
    """Read ledgers of two bookies, each of which has a copy of everything, back through their records."""
    ledgers = [
        Ledger(
            one.id.ledger,
            [(0, BOOKIES)],
            (2, 2, 2),
            last=(last := max([*one.indexed, *one.ahead])),
            length=one.length(last),
            digest=str(one.digest),
            password=one.password,
            scope=one.id.scope,
        )
        for one in wanted
    ]
    dataset = write_plan(root / "plan", ledgers, layout=Layout.LONGLONGHIERARCHICAL)
    store = MemoryStore(now_ms=lambda: 0)
    for row in dataset.read("actions").to_pylist():
        if row["kind"] == "ledger":
            store.write([Write("/ledgers" + row["key"], row["value"])])
    with ExitStack() as stack:
        disks = {}
        for number, bookie in enumerate(BOOKIES):
            folder = root / f"b{number}"
            make_scoped_bookie(folder, held, storage, put=write_database, folders=2, bookie=bookie)
            disks[bookie] = stack.enter_context(open_disks(bookie, [folder]))
        return verify(dataset, store, "/ledgers", disks, sample=None)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(
    ("digest", "password"), [(Digest.CRC32, b""), (Digest.HMAC, b"secret"), (Digest.CRC32C, b""), (Digest.DUMMY, b"")]
)
def test_every_copy_is_read(tmp_path: Path, storage: Storage, digest: Digest, password: bytes) -> None:
    """From index, databases and journal, with the record's digest, beside a ledger of the same low half."""
    ours = replace(OURS, digest=digest, password=password)
    other = replace(ours, id=LedgerId(0, LOW))
    found = verified(tmp_path, [ours, other], storage, ours, other)
    assert found.outcomes == {VerifyOutcome.READABLE: 2}
    assert found.full == 2
    assert (found.copies["promised"], found.copies["good"]) == (20, 20)
    assert not found.incomplete


@pytest.mark.parametrize("storage", STORAGES)
def test_entries_of_another_scope_count_for_nothing(tmp_path: Path, storage: Storage) -> None:
    """Where only 12345 and 8:12345 are on the bookies, 7:12345 is missing."""
    others = [replace(OURS, id=LedgerId(scope, LOW)) for scope in (0, 8)]
    found = verified(tmp_path, others, storage, OURS)
    assert found.outcomes == {VerifyOutcome.MISSING: 1}
    assert found.entries["missing"] == 5
    (problem,) = found.problems
    assert problem.ledger == OURS.id


@pytest.mark.parametrize("storage", STORAGES)
def test_an_index_that_leads_to_another_scope_is_no_copy(tmp_path: Path, storage: Storage) -> None:
    """The bytes at the place have scope, ledger and entry; all three must be right."""

    class Strange(Held):
        def record(self, entry: int) -> bytes:
            return replace(OURS, id=LedgerId(8, LOW)).record(entry)

    strange = Strange(OURS.id, range(4), ahead=(4,))
    assert verified(tmp_path, [strange], storage, OURS).outcomes == {VerifyOutcome.MISSING: 1}


@pytest.mark.parametrize(
    ("flags", "outcome"),
    [
        (0xA1, VerifyOutcome.CORRUPT),  # the digest of another type
        (0xA9, VerifyOutcome.UNCHECKED),  # of an unknown type
        (0xA3, VerifyOutcome.CORRUPT),  # the right one, and a payload that is not
    ],
)
def test_a_digest_covers_flags_and_scope(tmp_path: Path, flags: int, outcome: VerifyOutcome) -> None:
    """What is changed of an entry is seen; a digest number that nobody knows cannot be checked."""

    class Changed(Held):
        def record(self, entry: int) -> bytes:
            raw = super().record(entry)
            return bytes([flags]) + raw[1:-1] + bytes([raw[-1] ^ FLIPPED])

    changed = Changed(OURS.id, range(4), ahead=())
    whole = replace(OURS, ahead=())
    assert verified(tmp_path, [changed], "interleaved", whole).outcomes == {outcome: 1}
