"""Entries that bookies without lists gave to earlier runs of sampled reads: after N runs a copy is known whole.

    an entry that an earlier run read counts as there while
        that was one of the last N runs of the share,
        the record has not changed since,
        the bookie has the cookie that it had then,
        no run since saw the bookie lack the entry,
        this run asked the bookie for the ledger, and all came that it asked for

Each run asks for the first and the last entry of each position, so a bookie that lost its data is seen at once. What
lies between was read up to N runs ago: the run says how much of what it judges that is, and how old.

A pure function of its tables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.rules.segments.sampled_copies import merge_samples
from recovery.bookies.entry_choice import Rotation
from recovery.dataset import sort_by_key
from recovery.model.groups import KeyedRuns, count, difference_runs, from_arrow, group_runs, to_arrow, to_runs
from recovery.model.tables import READS, SAMPLES

Ints = npt.NDArray[np.int64]

_NONE: Final = -1
_PAIR: Final = ("scope", "ledger", "bookie")


@dataclass(frozen=True, slots=True)
class ReadAge:
    """How many of the judged copies earlier runs had read.

    Attributes:
        entries: copies of entries.
        oldest: begin of the first of the runs that read them; None: there are none.
    """

    entries: int = 0
    oldest: datetime | None = None

    @classmethod
    def from_json(cls, fields: list[Any]) -> Self:
        """Return the object from the values of `to_json`."""
        return cls(int(fields[0]), None if fields[1] is None else datetime.fromisoformat(fields[1]))

    def to_json(self) -> list[Any]:
        """Return the JSON form, for the driver and for a manifest."""
        return [self.entries, None if self.oldest is None else self.oldest.isoformat()]

    def add(self, other: "ReadAge") -> "ReadAge":
        """Return both together."""
        known = [age.oldest for age in (self, other) if age.oldest is not None]
        return ReadAge(self.entries + other.entries, min(known, default=None))


def keep_valid(
    reads: pa.Table,
    stored: pa.Table,
    missing: pa.Table,
    rotation: Rotation | None,
    cookies: Mapping[str, int],
    known_txn: int | None,
) -> pa.Table:
    """Return the reads of earlier runs that still count; READS in and out.

    Args:
        reads: of the run before.
        stored: CATALOG_LEDGERS: ``scope``, ``ledger`` and ``changed_txn``.
        missing: MISSING, of the run before.
        rotation: the place of this run; None: it reads nothing, and passes on what is known.
        cookies: bookie → the transaction that made its present cookie.
        known_txn: the store's last transaction in the run before; None: it is not known.
    """
    if not reads.num_rows or known_txn is None:
        return reads.slice(0, 0)
    place, record = _match(reads, stored, ("scope", "ledger"))
    txn = pc.fill_null(stored["changed_txn"], _NONE).to_numpy()
    is_same = np.zeros(reads.num_rows, np.bool_)
    is_same[place] = txn[record] == reads["record_txn"].to_numpy()[place]
    made = {name: cookies.get(name) for name in reads["bookie"].unique().to_pylist()}
    same = pa.array([name for name, began in made.items() if began is not None and began <= known_txn], pa.string())
    is_same &= pc.is_in(reads["bookie"], value_set=same).to_numpy()
    if rotation is not None:
        # With another N a new round begins, at 0: nothing of the old one counts.
        number = reads["run"].to_numpy()
        is_same &= (number < rotation.run) & (number > rotation.run - rotation.runs)
    return _take_away(reads.filter(pa.array(is_same)), missing, ("groups",))


def add_earlier(samples: pa.Table, reads: pa.Table) -> tuple[pa.Table, ReadAge]:
    """Return the entries of asked bookies, with the reads of earlier runs, and their age.

    Args:
        samples: SAMPLES of this run, a row a ledger and bookie.
        reads: as `keep_valid` returns them.
    """
    reads = _take_away(reads, samples, ("held", "lacks"))
    is_whole = pc.and_(pc.equal(samples["failed"], 0), pc.invert(samples["no_ledger"]))
    reads = reads.take(np.unique(_match(reads, samples.filter(is_whole), _PAIR)[0]))
    if not reads.num_rows:
        return samples, ReadAge()
    zero, no = np.zeros(reads.num_rows, np.int64), np.zeros(reads.num_rows, np.bool_)
    nothing = pa.array([[]] * reads.num_rows, SAMPLES.field("lacks").type)
    columns = {name: reads[name] for name in SAMPLES.names if name in READS.names}
    columns |= {"lacks": nothing, "lacking": zero, "failed": zero, "no_ledger": no}
    # Two looks of one run, or two runs, may have read the same entry.
    known = merge_samples(pa.table({name: columns[name] for name in SAMPLES.names}, schema=SAMPLES))
    age = ReadAge(pc.sum(known["entries"]).as_py(), pc.min(reads["read"]).as_py())
    return merge_samples(pa.concat_tables([samples, known])), age


def note_reads(samples: pa.Table, stored: pa.Table, reads: pa.Table, run: int, begin: datetime) -> pa.Table:
    """Return the reads for the next run: those of this run, and earlier ones that count; READS.

    Args:
        samples: SAMPLES of this run alone.
        stored: CATALOG_LEDGERS, as they were read for it.
        reads: as `keep_valid` returns them.
        run: number of this run among the runs of its share.
        begin: of the run.
    """
    place, record = _match(samples, stored, ("scope", "ledger"))
    fresh = samples.take(place).append_column("record_txn", stored["changed_txn"].take(record))
    fresh = fresh.filter(pc.and_(pc.greater(fresh["entries"], 0), pc.is_valid(fresh["record_txn"])))
    columns = {name: fresh[name] for name in READS.names if name in fresh.column_names}
    columns["run"] = pa.array([run] * fresh.num_rows, pa.int64())
    columns["read"] = pa.array([begin] * fresh.num_rows, READS.field("read").type)
    known = _take_away(reads, samples, ("held", "lacks"))
    gone = samples.filter(samples["no_ledger"])
    known = known.take(np.setdiff1d(np.arange(known.num_rows), _match(known, gone, _PAIR)[0]))
    fresh = pa.table({name: columns[name] for name in READS.names}, schema=READS)
    return sort_by_key(pa.concat_tables([known, fresh]))


def _match(rows: pa.Table, others: pa.Table, names: Sequence[str]) -> tuple[Ints, Ints]:
    """Return the pairs of rows of two tables that are equal in some columns, as places in both."""
    sides = [
        table.select(list(names)).append_column(name, pa.array(np.arange(table.num_rows)))
        for name, table in (("row", rows), ("other", others))
    ]
    matched = sides[0].join(sides[1], list(names), join_type="inner").sort_by("row")
    return matched["row"].to_numpy(), matched["other"].to_numpy()


def _take_away(reads: pa.Table, others: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the reads without entries that other rows of the same ledger and bookie list; READS in and out."""
    place, other = _match(reads, others, _PAIR)
    if not len(place):
        return reads
    groups = [from_arrow(others[name].take(other)) for name in columns]
    without = [to_runs(part._replace(key=place[part.key])) for part in groups]
    runs = KeyedRuns(*(np.concatenate(column) for column in zip(*without, strict=True)))
    left = group_runs(difference_runs(to_runs(from_arrow(reads["held"])), runs))
    entries = np.zeros(reads.num_rows, np.int64)
    np.add.at(entries, left.key, count(*left[1:]))
    fresh = {"held": to_arrow(left, reads.num_rows), "entries": pa.array(entries)}
    reads = pa.table({name: fresh.get(name, reads[name]) for name in READS.names}, schema=READS)
    return reads.filter(pc.greater(reads["entries"], 0))
