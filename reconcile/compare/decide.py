"""What becomes of the ledgers of a bucket range, or of a single one: the same for a plan and for what explains it.

    function        does
    count_range     pass 1: the shapes that ledgers show, those that catalogs hold, deletions
    prepare_case    the prior of all ranges, and whether deletions are believed to have been wanted
    decide_range    pass 2: reconstruction, checked against the store, snapshots, history and references

Everything is a pure function of its bucket range; what it reads, its datasets give.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare import deleted_since, outcomes, snapshot_only, three_way
from reconcile.compare.doubted_readings import read_doubted
from reconcile.compare.evidence import BookieEvidence, KnownTables, read_unguarded
from reconcile.compare.knowledge import StatedQuorums
from reconcile.compare.outcomes import claim_without_members
from reconcile.compare.three_way import ComparedRange
from reconcile.rules.segments import copy_findings
from reconcile.rules.segments.copies import Sight
from recovery.codecs.store import Layout
from recovery.dataset import Dataset, select_rows, sort_by_key
from recovery.infer.facts import COLUMNS
from recovery.infer.prior import Prior, ShapeCounts, count_shapes
from recovery.infer.reconstruct import InferOptions, reconstruct
from recovery.model import tables
from recovery.model.ids import bucket_ranges
from recovery.model.metadata import LedgerState

PRIOR_ROWS: Final = 4_000_000
"""Rows that the prior is counted on; larger clusters are sampled by buckets, which are a hash of the id."""

_SMALL: Final = 10_000
"""Rows that are looked through in one piece."""
_QUORUMS: Final = ("ensemble_size", "write_quorum", "ack_quorum")


@dataclass(frozen=True, slots=True)
class Case:
    """What all ranges are decided from; small, and picklable.

    Attributes:
        inventories: of different bookies of one cluster.
        bookies: BOOKIES of all of them.
        evidence: the store and snapshots.
        options: what the operator knows.
        layout: of the target; None: not known.
        default_quorum: (E, W, A) where nothing else decides.
        members_known: something names the bookies of the cluster.
        stated_quorums: what somebody states of some ledgers; only that is then taken of E, W and A.
    """

    inventories: tuple[Dataset, ...]
    bookies: pa.Table
    evidence: BookieEvidence
    options: InferOptions
    layout: Layout | None
    default_quorum: tuple[int, int, int] | None
    members_known: bool
    stated_quorums: StatedQuorums = field(default_factory=StatedQuorums)

    def copies(self, buckets: range, columns: Sequence[str] = tables.COPIES.names) -> pa.Table:
        """Return what bookies hold."""
        schema = pa.schema([tables.COPIES.field(name) for name in columns])
        return self._read_all("copies", schema, buckets=buckets, columns=list(columns))

    def damage(self) -> pa.Table:
        """Return the damage of all disks."""
        return self._read_all("damage", tables.DAMAGE)

    def list_hiding(self) -> tuple[str, ...] | None:
        """Return all bookies that may have more than was seen; None: not all bookies of the cluster are known."""
        unseen = self.options.unscanned_bookies
        if isinstance(unseen, int) or not self.members_known:
            return None
        damage = self.damage()
        anywhere = damage.filter(pc.and_(damage["hides_entries"], pc.is_null(damage["ledger"])))["bookie"]
        partly = self.bookies.filter(pc.invert(self.bookies["complete"]))["bookie"]
        hiding = {*unseen, *anywhere.to_pylist(), *partly.to_pylist()} - {*self.options.lost_bookies}
        return tuple(sorted(hiding))

    def see_bookies(self) -> Sight:
        """Return how bookies were looked at, and which of them the store shows as running."""
        running: list[str] = []
        if self.evidence.live is not None:
            nodes = self.evidence.live.dataset.read("nodes", columns=["path", "kind"])
            paths = nodes.filter(pc.equal(nodes["kind"], "registration"))["path"].to_pylist()
            running = [path.rsplit("/", 1)[-1] for path in paths]
        return copy_findings.see_bookies(self.bookies, self.damage(), copy_findings.list_running(self.bookies, running))

    def rows(self) -> int:
        """Return how many rows there are to be looked through."""
        copies = sum(inventory.rows("copies") for inventory in self.inventories)
        return copies + sum(d.rows(name) for d in self.evidence.datasets for name in ("ledgers", "history"))

    def _read_all(self, name: str, schema: pa.Schema, **how: Any) -> pa.Table:  # noqa: ANN401 - as Dataset.read
        return pa.concat_tables(
            [schema.empty_table(), *(inventory.read(name, **how) for inventory in self.inventories)]
        )


def cut_ranges(case: Case) -> Sequence[range]:
    """Return the bucket ranges that the work is cut into."""
    rows = case.rows()
    return bucket_ranges(rows, at_least=2 if rows > _SMALL else 1)


def sample_ranges(parts: Sequence[range], rows: int) -> Sequence[range]:
    """Return the bucket ranges that the prior is counted on."""
    return parts if rows <= PRIOR_ROWS else parts[:: -(-rows // PRIOR_ROWS)]


def count_range(case: Case, buckets: range, references: pa.Table | None) -> dict[str, Any]:
    """Return what a range says about all the others, as JSON values."""
    copies = case.copies(buckets, COLUMNS)
    quorums: Counter[str] = Counter()
    for catalog in case.evidence.datasets:
        for shape, count in _quorums(catalog, buckets):
            quorums["/".join(map(str, shape))] += count
    return {
        "shapes": count_shapes(copies, case.bookies).to_json(),
        "quorums": quorums,
        "deletions": case.evidence.count_deletions(copies, buckets, references),
        "kept": sorted(deleted_since.list_kept(copies, case.evidence.read_members(buckets))),
    }


def prepare_case(case: Case, answers: Iterable[Mapping[str, Any]]) -> tuple[Case, Prior]:
    """Return the case with what all ranges say about deletions, and the prior."""
    shapes, quorums, deletions = ShapeCounts(), Counter[tuple[int, int, int]](), []
    kept: set[str] = set()
    for answer in answers:
        shapes += ShapeCounts.from_json(answer["shapes"])
        for text, count in answer["quorums"].items():
            ensemble, write, ack = (int(n) for n in text.split("/"))
            quorums[ensemble, write, ack] += count
        deletions.append(answer["deletions"])
        kept.update(answer["kept"])
    names = case.options.unscanned_bookies
    unscanned = (*(() if isinstance(names, int) else names), *case.options.lost_bookies)
    prior = Prior.build(shapes, dict(quorums), case.default_quorum, unscanned=unscanned)
    evidence = replace(case.evidence.with_deletions(deletions), kept=frozenset(kept))
    return replace(case, evidence=evidence), prior


def _quorums(catalog: Dataset, buckets: range) -> Iterable[tuple[tuple[int, int, int], int]]:
    """Count (E, W, A) of a catalog; a hold is in recovery, and its quorums are of its own making."""
    rows = read_unguarded(catalog, buckets, [*_QUORUMS, "state"]).drop_null()
    rows = rows.filter(pc.not_equal(rows["state"], str(LedgerState.IN_RECOVERY)))
    for row in rows.group_by(list(_QUORUMS)).aggregate([([], "count_all")]).to_pylist():
        yield (row["ensemble_size"], row["write_quorum"], row["ack_quorum"]), row["count_all"]


def decide_range(case: Case, prior: Prior, copies: pa.Table, sides: KnownTables, issued: int) -> ComparedRange:
    """Decide what becomes of each ledger.

    Args:
        case: as `prepare_case` returns it.
        prior: of all ranges.
        copies: COPIES of whole ledgers.
        sides: what else is known of these, or of more.
        issued: the id below which a snapshot knew every ledger that was not deleted.
    """
    rows = _reconstruct_stated(case, prior, copies, sides)
    if case.layout is not None:
        rows = outcomes.wait_without_place(rows, case.layout)
    claimed = rows if case.members_known else claim_without_members(rows)
    read_whole = case.bookies.filter(case.bookies["complete"])["bookie"].to_pylist()
    kept = case.evidence.kept.intersection(read_whole)
    hiding = case.list_hiding()
    count = None if hiding is None else len(hiding)
    claimed = deleted_since.explain_by_deletion(claimed, copies, sides, kept, read_whole, count)
    part = three_way.settle_range(case.evidence, three_way.join_sides(claimed, sides), sides, copies, issued)
    part = replace(part, deleted_since=deleted_since.find_alone(part, sides, kept, count))
    complete = [*read_whole, *case.options.lost_bookies]
    alone = snapshot_only.propose_rows(case.evidence, part, sides, complete, hiding or ())
    if case.layout is not None:
        alone = outcomes.wait_without_place(alone, case.layout)
    accepting = replace(case.options, is_doubt_accepted=True)
    doubted = read_doubted(rows, copies, lambda own: reconstruct(own, case.bookies, case.damage(), prior, accepting))
    return replace(part, shown=rows, alone=alone, doubted=doubted)


def _reconstruct_stated(case: Case, prior: Prior, copies: pa.Table, sides: KnownTables) -> pa.Table:
    """Reconstruct; ledgers whose quorums somebody states by these alone."""
    known, damage = (sides.records(), sides.references, sides.alive), case.damage()
    if not case.stated_quorums.statements:
        return reconstruct(copies, case.bookies, damage, prior, case.options, *known)
    parts = [tables.RECONSTRUCTION.empty_table()]
    for quorum, of_part in case.stated_quorums.split(copies, sides.references):
        assumed = prior if quorum is None else prior.with_stated(quorum)
        chosen = select_rows(copies, pa.array(of_part))
        parts.append(reconstruct(chosen, case.bookies, damage, assumed, case.options, *known))
    return sort_by_key(pa.concat_tables(parts))
