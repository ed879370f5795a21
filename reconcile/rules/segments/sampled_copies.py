"""Answers of bookies about single entries, as tables for rules."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.model.groups import count as count_entries
from recovery.model.groups import from_arrow, to_arrow, union
from recovery.model.ids import distinct
from recovery.model.tables import COPIES, HEADERS, SAMPLES


def list_held(samples: pa.Table) -> pa.Table:
    """Return COPIES of the entries that bookies sent: a missing entry proves nothing; SAMPLES in."""
    rows = samples.filter(pc.greater(samples["entries"], 0))
    count = rows.num_rows
    groups = from_arrow(rows["held"])
    last = np.zeros(count, np.int64)
    np.maximum.at(last, groups.key, groups.last + (groups.size - 1))
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, groups.key, groups.first)
    plain = {"incarnation": 0, "part": 0, "g_count": 0, "source": "wire", "key_kind": "absent"}
    plain |= dict.fromkeys(("complete", "fenced", "limbo"), False)
    columns = {
        **{name: rows[name] for name in SAMPLES.names if name in COPIES.names},
        **{name: pa.array([value] * count, COPIES.field(name).type) for name, value in plain.items()},
        "groups": rows["held"],
        "first": first,
        "last": last,
        "headers": pa.array([[]] * count, HEADERS),
    }
    empty = {name: pa.nulls(count, COPIES.field(name).type) for name in COPIES.names if name not in columns}
    return pa.table({name: (columns | empty)[name] for name in COPIES.names}, schema=COPIES)


def merge_samples(samples: pa.Table) -> pa.Table:
    """Return SAMPLES with one row a ledger and bookie; answers to repeated questions are united."""
    if not samples.num_rows:
        return samples
    coded = samples["bookie"].combine_chunks().dictionary_encode()
    first, codes = distinct(coded.indices.to_numpy().astype(np.int64), samples["ledger"].to_numpy())
    count = len(first)
    kept = samples.take(pa.array(first))
    fresh: dict[str, pa.Array | npt.NDArray[Any]] = {}
    for name, number in (("held", "entries"), ("lacks", "lacking")):
        groups = from_arrow(samples[name])
        together = union(groups._replace(key=codes[groups.key]))
        entries = np.zeros(count, np.int64)
        np.add.at(entries, together.key, count_entries(*together[1:]))
        fresh |= {name: to_arrow(together, count), number: entries}
    failed = np.zeros(count, np.int64)
    np.maximum.at(failed, codes, samples["failed"].to_numpy())
    no_ledger = np.zeros(count, np.bool_)
    np.logical_or.at(no_ledger, codes, samples["no_ledger"].to_numpy())
    fresh |= {"failed": failed, "no_ledger": no_ledger}
    return pa.table({name: fresh.get(name, kept[name]) for name in SAMPLES.names}, schema=SAMPLES)
