"""A backup proved: every hash, the chain, and each base held against the one before it and the changes between them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backends.protocols import KEYS
from reconcile.jobs.context import Context, StageProgress
from recovery.backup.chain import Backup, open_backup
from recovery.backup.last_states import compare_states, fold_states
from recovery.backup.manifest import BaseLink, GapLink, SegmentLink
from recovery.backup.point import ShownPoint, read_until
from recovery.backup.seals import hash_base, hash_gap, hash_seal
from recovery.backup.store import BackupStore
from recovery.capture.catalog_store import CatalogStore
from recovery.codecs.keys import are_folders, ledgers_of
from recovery.codecs.store import Layout
from recovery.errors import DatasetError
from recovery.place import DatasetPlace

_SHOWN: Final = 20


@dataclass(slots=True)
class VerifiedBackup:
    """What a verification found.

    Attributes:
        seals, changes: whose hashes were computed again.
        bases: whose files were hashed.
        rebuilt: bases that were rebuilt from the one before, and compared.
        keys: that were compared.
        gaps: that the chain names.
        problems: what is wrong; none: nothing is.
        at_keys: keys at the point that was named; None: none was.
    """

    seals: int = 0
    changes: int = 0
    bases: int = 0
    rebuilt: int = 0
    keys: int = 0
    gaps: int = 0
    problems: list[str] = field(default_factory=list)
    at_keys: int | None = None


def verify_backup(place: DatasetPlace | str, moment: str | None, context: Context) -> VerifiedBackup:
    """Compute every hash of a backup again, and rebuild each base.

    Args:
        place: the backup's folder.
        moment: a point in time that is restored, too; None: none.
        context: of the job.

    Raises:
        DatasetError: there is no backup.
        InputError: it cannot be decrypted, or does not reach the point.
    """
    backup = open_backup(place)
    verified = VerifiedBackup(problems=[f"manifest {number} cannot be read" for number in backup.damaged])
    with context.reporter.progress("verifying the backup", "links") as progress:
        _verify_chain(backup, verified, progress)
    if not verified.problems:
        with context.reporter.progress("rebuilding bases", "bases") as progress:
            _verify_bases(backup, verified, progress)
    if moment is not None and not verified.problems:
        store = BackupStore(backup, moment)
        verified.at_keys = sum(batch.num_rows for batch in store.scan("/"))
        store.close()
    return verified


def _verify_chain(backup: Backup, verified: VerifiedBackup, progress: StageProgress) -> None:
    manifest = backup.manifest
    previous = manifest.start
    through: int | None = None
    # A first base may lie behind what was sealed before it, and is gone by now.
    is_base = False
    for number, link in enumerate(manifest.links):
        progress(number, len(manifest.links))
        try:
            if isinstance(link, SegmentLink):
                hashed = _hash_segment(backup, link, previous, verified)
                if through is not None and link.after != through and not (is_base and link.after < through):
                    verified.problems.append(f"{link.part.file} begins behind {link.after:#x}, not behind {through:#x}")
                through, is_base = link.through, False
            elif isinstance(link, BaseLink):
                hashed = hash_base(previous, link.txn, link.digest)
                with backup.open_base(link) as catalog:
                    catalog.verify()
                verified.bases += 1
                if through is None:
                    through, is_base = link.txn, True
            else:
                hashed = hash_gap(previous, link.after, link.until, link.why)
                verified.gaps += 1
                through, is_base = link.until, False
        except DatasetError as error:
            verified.problems.append(str(error))
            hashed = link.hash
        if hashed != link.hash:
            verified.problems.append(f"{_name(link)}: its hash is not the one of the chain")
        previous = link.hash
    # What a base at the head shows may lie behind all that was sealed.
    if through is not None and through > manifest.through:
        verified.problems.append(f"the chain reaches {through:#x}, its manifest says {manifest.through:#x}")


def _hash_segment(backup: Backup, link: SegmentLink, previous: str, verified: VerifiedBackup) -> str:
    """Return the hash of the chain behind a segment, seal by seal."""
    rows = 0
    for seal, table in _group_seals(backup.read_changes([link])):
        previous = hash_seal(previous, seal, table)
        verified.seals += 1
        rows += table.num_rows
        if pc.max(table["txn"]).as_py() > link.through or pc.min(table["txn"]).as_py() <= link.after:
            verified.problems.append(f"{link.part.file}: a transaction of seal {seal} is outside of its bounds")
    verified.changes += rows
    if rows != link.part.rows:
        verified.problems.append(f"{link.part.file} has {rows} changes, the manifest says {link.part.rows}")
    return previous


def _group_seals(tables: Iterator[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each seal together."""
    waiting: list[pa.Table] = []
    current: int | None = None
    for table in tables:
        seals = table["seal"].to_numpy()
        edges = [0, *(np.flatnonzero(seals[1:] != seals[:-1]) + 1).tolist(), table.num_rows]
        for low, high in pairwise(edges):
            if low == high:
                continue
            seal = int(seals[low])
            if current is not None and seal != current:
                yield current, pa.concat_tables(waiting)
                waiting = []
            current = seal
            waiting.append(table.slice(low, high - low))
    if current is not None:
        yield current, pa.concat_tables(waiting)


def _name(link: BaseLink | SegmentLink | GapLink) -> str:
    if isinstance(link, SegmentLink):
        return link.part.file
    return link.folder if isinstance(link, BaseLink) else f"the gap behind {link.after:#x}"


def _verify_bases(backup: Backup, verified: VerifiedBackup, progress: StageProgress) -> None:
    """Rebuild each base from the one before it, where no gap is between them and changes reach it."""
    manifest = backup.manifest
    bases = sorted(manifest.bases, key=lambda base: base.txn)
    for number, (earlier, later) in enumerate(pairwise(bases)):
        progress(number, len(bases))
        is_parted = any(gap.after < later.txn and earlier.txn < gap.until for gap in manifest.gaps)
        if is_parted or later.txn > manifest.through:
            continue
        _compare(backup, earlier, later, verified)
        verified.rebuilt += 1


def _compare(backup: Backup, earlier: BaseLink, later: BaseLink, verified: VerifiedBackup) -> None:
    layout = backup.manifest.binding.get("layout")
    root = str(backup.manifest.binding.get("root", ""))
    segments = tuple(link for link in backup.manifest.segments if link.through > earlier.txn and link.after < later.txn)
    between = ShownPoint(earlier, segments, later.txn, later.until_ms)
    with backup.open_base(earlier) as old, backup.open_base(later) as new:
        rebuilt = fold_states(CatalogStore(old, root).scan("/"), read_until(backup, between))
        sides = (_take_kept(batches, layout, root) for batches in (rebuilt, CatalogStore(new, root).scan("/")))
        differing = pa.concat_tables([_NONE, *compare_states(*sides)]).sort_by("key")
        verified.keys += sum(new.rows(name) for name in ("ledgers", "nodes", "own_root", "subtrees"))
    words = {"left": "is not in the base", "right": "is in the base", "both": "is another one in the base"}
    for row in differing.slice(0, _SHOWN).to_pylist():
        verified.problems.append(f"{later.folder}: {row['key']} {words[row['side']]}, not so by the changes before it")
    if differing.num_rows > _SHOWN:
        verified.problems.append(f"{later.folder}: and {differing.num_rows - _SHOWN} more keys")


def _take_kept(batches: Iterable[pa.RecordBatch], layout: str | None, root: str) -> Iterator[pa.RecordBatch]:
    """Yield what catalogs keep of keys: no empty inner nodes of the ledgers' tree, and no counters of ledgers."""
    for batch in batches:
        if layout is None:
            yield batch
            continue
        below = pc.utf8_slice_codeunits(batch["key"], len(root)) if root else batch["key"]
        empty = pc.equal(pc.binary_length(batch["value"]), 0)
        inside = pc.starts_with(batch["key"], root)
        is_folder = pc.and_(inside, are_folders(Layout(layout), below))
        is_ledger = np.zeros(batch.num_rows, np.bool_)
        is_ledger[ledgers_of(Layout(layout), below).rows] = True
        is_ledger &= inside.to_numpy(zero_copy_only=False)
        counters = pc.if_else(pa.array(is_ledger), pa.scalar(None, pa.int64()), batch["children_created"])
        kept = batch.set_column(KEYS.get_field_index("children_created"), KEYS.field("children_created"), counters)
        yield kept.filter(pc.invert(pc.and_(empty, is_folder)))


_NONE: Final = pa.schema([("key", pa.string()), ("side", pa.string())]).empty_table()
