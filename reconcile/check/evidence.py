"""The facts about copies of ledgers: from given inventories, and from the last scrutinies.

The run of a scrutiny has the lists that bookies gave it, the entries that it found missing, and the bookies that it
found wiped. All of this covers the run's share of ledgers, and records as they were then: it judges no record that
changed since. Each command that judges copies asks `CopyEvidence.see`, so that all judge alike.

    what is known of a copy                                  it counts as
    an inventory, or a list of the run, has all of it        there, even if an older mark disagrees
    an inventory lacks entries of it, or the run found them  missing, as far as it lacks them
    missing; of a ledger that is not closed a list as well
    its bookie was wiped after its record changed last       missing
    none of these                                            unknown: as the record and its marks say
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.impact.segments.columns import LedgerRows
from reconcile.check.scrutiny.evidence_age import Moment, find_ages
from reconcile.check.scrutiny.incarnations import Wiped, read_cookies, read_wiped
from reconcile.clusters import name_earlier, require_of_cluster
from reconcile.rules.segments.copies import CopyFaults, Sight, find_faults
from reconcile.rules.segments.copy_findings import see_bookies
from recovery.codecs.store import Layout
from recovery.codecs.store_kind import kind_of
from recovery.dataset import COLLECTED, Dataset, open_dataset, read_inventories
from recovery.model import tables
from recovery.model.ids import BUCKETS
from recovery.place import DatasetPlace, to_place

Ints = npt.NDArray[np.int64]

STORE: Final = "store"
"""Of a run: the catalog of the store."""
_HELD: Final = (*tables.KEY_COLUMNS, "bookie", "source", "groups", "entries", "complete", "limbo")
_NONE: Final = -1
_OF_ROWS: Final = ("missing", "pairs", "faults", "coverage")
"""Tables of `CopyFaults`."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
RECORD_COLUMNS: Final = (
    *tables.KEY_COLUMNS, "changed_txn", "changed_at", "state", "write_quorum", "ack_quorum", "last_entry", "segments",
)  # fmt: skip
"""Of CATALOG_LEDGERS, that copies are judged by."""
COPIES_SEEN: Final = pa.schema(
    [pa.field("row", pa.int64()), pa.field("bookie", pa.string()), pa.field("txn", pa.int64())]
)
"""`row`: of the records that were given; `txn`: the store's last one before that was seen; null: it is not known."""


@dataclass(frozen=True, slots=True, eq=False)
class SeenCopies:
    """The facts about copies of some ledgers.

    Attributes:
        faults: faults of the copies of ended segments.
        sound: `COPIES_SEEN`: bookies that have all entries that a record asks of them.
        wiped: `COPIES_SEEN`: bookies that lost all that a record asked of them, of segments that still grow as well.
    """

    faults: CopyFaults
    sound: pa.Table
    wiped: pa.Table


@dataclass(frozen=True, slots=True, eq=False)
class ScrutinyRun:
    """The facts about copies in the run of a scrutiny.

    Attributes:
        dataset: of kind scrutiny.
        number: (n, of how many): its share.
        lists: inventories that bookies gave it over the wire.
        at: when the store was as its records show it; lists were asked for after that.
        txn: the store's last transaction then; None: it counts none.
        wiped: bookies without their data.
        moments: when the store had which transaction.
    """

    dataset: Dataset
    number: tuple[int, int]
    lists: tuple[Dataset, ...]
    at: datetime
    txn: int | None
    wiped: tuple[Wiped, ...]
    moments: tuple[Moment, ...]

    @property
    def share(self) -> range:
        """The buckets of the run."""
        number, shares = self.number
        return range(BUCKETS * (number - 1) // shares, BUCKETS * number // shares)

    @classmethod
    def open(cls, place: DatasetPlace | str) -> "ScrutinyRun":
        """Read a run's folder.

        Raises:
            DatasetError: it is no whole run.
        """
        folder = to_place(place) if isinstance(place, str) else place
        run = open_dataset(folder, "scrutiny")
        number, shares = run.manifest["coverage"].get("share", (1, 1))
        source = open_dataset(folder / STORE, "catalog").read("sources", columns=["at", "txn"]).to_pylist()[0]
        collected = folder / COLLECTED
        lists: list[DatasetPlace] = sorted(collected.iterdir(), key=str) if collected.is_dir() else []
        return cls(
            run,
            (number, shares),
            tuple(open_dataset(path, "inventory") for path in lists),
            source["at"],
            source["txn"],
            tuple(read_wiped(run.read("wiped")).values()),
            tuple(Moment.from_json(fields) for fields in run.manifest.get("moments", ())),
        )


def open_runs(places: Iterable[DatasetPlace], catalog: Dataset, uri: str) -> tuple[ScrutinyRun, ...]:
    """Return the runs of scrutinies of a store's cluster.

    Args:
        places: their folders.
        catalog: of the store.
        uri: its name.

    Raises:
        DatasetError: a folder is no whole run.
        InputError: a run is of another cluster.
    """
    runs = tuple(map(ScrutinyRun.open, places))
    for run in runs:
        store = open_dataset(to_place(run.dataset.path) / STORE, "catalog")
        require_of_cluster(catalog, uri, others=name_earlier(catalog, store))
    return runs


@dataclass(frozen=True, slots=True, eq=False)
class CopyEvidence:
    """The facts about copies from inventories and runs; small, and picklable.

    Attributes:
        given: inventories.
        runs: the newest first; for a ledger the newest run with the ledger in its share counts.
        ages: of bookies whose inventories may be older than records; see `find_ages`.
        cookies: bookie → the transaction that made its present cookie.
    """

    given: tuple[Dataset, ...] = ()
    runs: tuple[ScrutinyRun, ...] = ()
    ages: dict[str, int | None] = field(default_factory=dict)
    cookies: dict[str, int] = field(default_factory=dict)

    @classmethod
    def gather(
        cls,
        given: Sequence[Dataset],
        runs: Sequence[ScrutinyRun],
        catalog: Dataset,
        nodes: pa.Table | None = None,
        running: Collection[str] | None = None,
    ) -> "CopyEvidence":
        """Return the facts about the copies of a store's records.

        Args:
            given: inventories.
            runs: in any order.
            catalog: of the records.
            nodes: present ``path``, ``kind`` and ``created_txn`` of CATALOG_NODES; None: those of the catalog.
            running: bookies; None: bookies with a registration in the nodes.
        """
        source = catalog.read("sources", columns=["layout", "txn"]).to_pylist()[0]
        nodes = catalog.read("nodes", columns=["path", "kind", "created_txn"]) if nodes is None else nodes
        if running is None:
            paths = nodes.filter(pc.equal(nodes["kind"], "registration"))["path"].to_pylist()
            running = {path.rpartition("/")[2] for path in paths}
        keeps_times = source["layout"] is None or kind_of(Layout(source["layout"])).keeps_times
        moments = [] if keeps_times else [moment for run in runs for moment in run.moments]
        ages = find_ages(read_inventories(given, "bookies"), running, moments, source["txn"])
        newest_first = sorted(runs, key=lambda run: run.at, reverse=True)
        return cls(tuple(given), tuple(newest_first), ages, read_cookies(nodes))

    @property
    def is_empty(self) -> bool:
        """Whether there is no evidence."""
        return not (self.given or self.runs)

    def see(self, stored: pa.Table, buckets: range | None = None) -> SeenCopies:
        """Return the facts about the copies of ledgers.

        Args:
            stored: CATALOG_LEDGERS with `RECORD_COLUMNS`, each ledger once, with ids for names of bookies.
            buckets: with all of these ledgers; None: any.
        """
        ended = end_growing(stored)
        owner = self._own_buckets()[stored["bucket"].to_numpy()]
        parts, sound, wiped = list[CopyFaults](), [COPIES_SEEN.empty_table()], [COPIES_SEEN.empty_table()]
        for number in range(_NONE, len(self.runs)):
            rows = np.flatnonzero(owner == number)
            if not len(rows) and number != _NONE:
                continue
            run = None if number == _NONE else self.runs[number]
            faults, seen, lost = self._see_part(stored.take(pa.array(rows)), ended.take(pa.array(rows)), run, buckets)
            parts.append(_renumber_faults(faults, rows))
            sound.append(_renumber(seen, rows))
            wiped.append(_renumber(lost, rows))
        return SeenCopies(_join(parts), pa.concat_tables(sound), pa.concat_tables(wiped))

    def _own_buckets(self) -> Ints:
        """Return the run that counts for each bucket; `_NONE`: no run has it."""
        owner = np.full(BUCKETS, _NONE)
        for number in reversed(range(len(self.runs))):
            owner[self.runs[number].share.start : self.runs[number].share.stop] = number
        return owner

    def _see_part(
        self, stored: pa.Table, ended: pa.Table, run: ScrutinyRun | None, buckets: range | None
    ) -> tuple[CopyFaults, pa.Table, pa.Table]:
        """Return the faults of one run's ledgers, copies that are there, and copies of wiped bookies."""
        lists = () if run is None else run.lists
        known = self._believe(lists, run)
        bookies, damage, copies = (
            pa.concat_tables([given, listed.filter(pc.is_in(listed["bookie"], value_set=known))])
            for given, listed in (
                *(
                    (read_inventories(self.given, name), read_inventories(lists, name))
                    for name in ("bookies", "damage")
                ),
                (_read_copies(self.given, buckets), _read_copies(lists, buckets)),
            )
        )
        txns = self.ages | dict.fromkeys(known.to_pylist(), None if run is None else run.txn)
        sight = see_bookies(bookies, damage, txns)
        lacks = tables.MISSING.empty_table() if run is None else run.dataset.read("missing", buckets=buckets)
        lacks = lacks.filter(pa.array(LedgerRows(stored).find(lacks) >= 0))
        if run is not None:
            sight = replace(sight, hidden=self._list_doubtful(stored, ended, copies, sight, lacks, known))
        wiped = self._list_wiped(stored, run, lacks, txns)
        sight = replace(sight, hidden=pa.concat_tables([sight.hidden, _name_pairs(stored, wiped, sight.hidden.schema)]))
        copies = _leave_out(copies, stored, wiped)
        faults = find_faults(ended, copies, sight, pa.concat_tables([lacks, _make_missing(ended, wiped)]))
        seen = faults.pairs.filter(faults.pairs["known"])
        txn = pa.array([txns.get(name) for name in seen["bookie"].to_pylist()], pa.int64())
        sound = _subtract(pa.table([seen["row"], seen["bookie"], txn], schema=COPIES_SEEN), faults.missing)
        return faults, sound, _subtract(wiped, seen)

    def _believe(self, lists: Sequence[Dataset], run: ScrutinyRun | None) -> pa.Array:
        """Return the bookies with lists, without those that have an inventory, or a newer cookie than the lists."""
        given = set(read_inventories(self.given, "bookies")["bookie"].to_pylist())
        txn = None if run is None else run.txn
        names = {
            name
            for name in read_inventories(lists, "bookies")["bookie"].to_pylist()
            if name not in given and (txn is None or self.cookies.get(name, _NONE) <= txn)
        }
        return pa.array(sorted(names), pa.string())

    def _list_doubtful(
        self,
        stored: pa.Table,
        ended: pa.Table,
        copies: pa.Table,
        sight: Sight,
        lacks: pa.Table,
        listed: pa.Array,
    ) -> pa.Table:
        """Return the hidden copies, and copies that the first lists lack and the run did not find missing.

        A run asks again where lists lack something; what it then found is in its findings, and not in its lists.
        """
        closed = pa.array(np.flatnonzero(_is_closed(stored)))
        lacking = find_faults(ended, copies, sight).missing
        lacking = lacking.filter(pc.is_in(lacking["bookie"], value_set=listed))
        lacking = lacking.filter(pc.is_in(lacking["row"], value_set=closed))
        of_run = pa.table([pa.array(LedgerRows(stored).find(lacks)), lacks["bookie"]], names=["row", "bookie"])
        doubtful = lacking.select(["row", "bookie"]).join(of_run, ["row", "bookie"], join_type="left anti")
        keys = stored.select(["scope", "ledger"]).take(doubtful["row"])
        return pa.concat_tables(
            [sight.hidden, keys.append_column("bookie", doubtful["bookie"]).cast(sight.hidden.schema)]
        )

    def _list_wiped(
        self, stored: pa.Table, run: ScrutinyRun | None, lacks: pa.Table, txns: Mapping[str, int | None]
    ) -> pa.Table:
        """Return the copies that wiped bookies lost: all copies on them by unchanged records.

        Args:
            stored: as of `see`.
            run: of these ledgers; for a bookie that it found wiped, its list of missing entries is complete.
            lacks: MISSING of it.
            txns: the transaction of the store before each bookie's inventory: later lists know better.
        """
        parts = [COPIES_SEEN.empty_table()]
        changed = pc.fill_null(stored["changed_txn"], _NONE).to_numpy()
        missing_rows = LedgerRows(stored).find(lacks)
        for other in self.runs:
            for wiped in other.wiped:
                if (txns.get(wiped.bookie) or _NONE) >= wiped.before_txn:
                    continue
                rows = _find_naming(stored, wiped.bookie)
                rows = rows[changed[rows] < wiped.before_txn]
                if other is run:
                    rows = np.setdiff1d(rows, missing_rows[pc.equal(lacks["bookie"], wiped.bookie).to_numpy()])
                names = pa.array([wiped.bookie] * len(rows), pa.string())
                parts.append(pa.table([pa.array(rows), names, pa.nulls(len(rows), pa.int64())], schema=COPIES_SEEN))
        return pa.concat_tables(parts)


def end_growing(stored: pa.Table) -> pa.Table:
    """Return records in which ledgers that are not closed end with their last segment that has ended."""
    segments = stored["segments"].combine_chunks()
    counts = pc.fill_null(pc.list_value_length(segments), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    grows = ~_is_closed(stored) & (counts > 0)
    first = segments.flatten().field("first").to_numpy(zero_copy_only=False)
    ends = np.where(grows, first[np.maximum(np.cumsum(counts) - 1, 0)] - 1, -1) if len(first) else counts * 0 - 1
    last = pc.if_else(pa.array(grows), pa.array(ends, pa.int64()), stored["last_entry"])
    state = pc.if_else(pa.array(grows), pa.scalar("CLOSED"), stored["state"])
    for name, column in (("last_entry", last), ("state", state)):
        stored = stored.set_column(stored.schema.get_field_index(name), name, column)
    return stored


def _is_closed(stored: pa.Table) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = pc.fill_null(pc.equal(stored["state"], "CLOSED"), fill_value=False).to_numpy()
    return mask


def _read_copies(inventories: Sequence[Dataset], buckets: range | None) -> pa.Table:
    parts = [inventory.read("copies", buckets=buckets, columns=list(_HELD)) for inventory in inventories]
    return pa.concat_tables([tables.COPIES.empty_table().select(list(_HELD)), *parts])


def _subtract(rows: pa.Table, pairs: pa.Table) -> pa.Table:
    """Return the rows without those of some pairs of row and bookie."""
    keys = ["row", "bookie"]
    kept: pa.Table = rows.join(pairs.select(keys), keys, join_type="left anti")
    return kept.select(COPIES_SEEN.names).cast(COPIES_SEEN)


def _leave_out(copies: pa.Table, stored: pa.Table, pairs: pa.Table) -> pa.Table:
    """Return COPIES without the copies of some pairs of a record's row and a bookie."""
    if not pairs.num_rows:
        return copies
    names = pairs["bookie"].combine_chunks().unique()
    bookie, own = (
        pc.fill_null(pc.index_in(rows["bookie"], value_set=names), _NONE).to_numpy().astype(np.int64)
        for rows in (copies, pairs)
    )
    row = LedgerRows(stored).find(copies)
    left_out = np.isin(row * len(names) + bookie, pairs["row"].to_numpy() * len(names) + own)
    return copies.filter(pa.array(~(left_out & (row >= 0) & (bookie >= 0))))


def _name_pairs(stored: pa.Table, pairs: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return scope, ledger and bookie of pairs of a record's row and a bookie."""
    keys = stored.select(["scope", "ledger"]).take(pairs["row"])
    return keys.append_column("bookie", pairs["bookie"]).cast(schema)


def _make_missing(ended: pa.Table, wiped: pa.Table) -> pa.Table:
    """Return MISSING with all entries that records ask of wiped bookies."""
    rows = ended.take(wiped["row"])
    ends = rows["last_entry"].to_pylist()
    groups = [[{"first": 0, "last": 0, "size": max(end or 0, 0) + 1, "period": 0}] for end in ends]
    made = {
        **{name: rows[name] for name in tables.KEY_COLUMNS},
        "bookie": wiped["bookie"],
        "entries": pa.array([group[0]["size"] for group in groups], pa.int64()),
        "groups": pa.array(groups, tables.GROUPS),
        "record_txn": rows["changed_txn"],
        "seen": pa.array([_EPOCH] * len(groups), tables.MISSING.field("seen").type),
    }
    return pa.table(made).cast(tables.MISSING)


def _renumber_faults(faults: CopyFaults, numbers: Ints) -> CopyFaults:
    tables_of = {name: _renumber(getattr(faults, name), numbers) for name in _OF_ROWS}
    return replace(faults, **tables_of, undecided=numbers[faults.undecided])


def _join(parts: Sequence[CopyFaults]) -> CopyFaults:
    """Return the faults of several parts of the records."""
    return CopyFaults(
        **{name: pa.concat_tables([getattr(part, name) for part in parts]) for name in _OF_ROWS},
        undecided=np.concatenate([part.undecided for part in parts]),
        doubts=np.concatenate([part.doubts for part in parts]),
    )


def _renumber(rows: pa.Table, numbers: Ints) -> pa.Table:
    """Return a table of some records with their rows among all."""
    column = pa.array(numbers[rows["row"].to_numpy()], pa.int64())
    return rows.set_column(rows.schema.get_field_index("row"), rows.schema.field("row"), column)


def _find_naming(stored: pa.Table, bookie: str) -> Ints:
    """Return the rows of the records that name a bookie."""
    segments = stored["segments"].combine_chunks()
    members = pc.struct_field(segments.flatten(), "members")
    row_of = pc.list_parent_indices(segments).take(pc.list_parent_indices(members))
    rows: Ints = np.unique(row_of.filter(pc.equal(members.flatten(), bookie)).to_numpy()).astype(np.int64)
    return rows
