"""Bookies that the records of a catalog name, with ledgers that each should have."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow.compute as pc

from recovery.bookies.wire_results import SCOPE, Ints
from recovery.dataset import Dataset
from recovery.model.ids import BUCKETS

SAMPLE: Final = 3
"""Ledgers that a bookie should know, and is asked for, to see whether it answers lists."""
_LEDGERS: Final = 16_384
"""BookieResult of a bookie at a time: what a task holds."""


def sample_ledgers(catalog: Dataset) -> dict[str, list[int]]:
    """Return the names that records give bookies, each with a few ledgers that it should have."""
    samples: dict[str, list[int]] = {}
    for ledgers, codes, names in _read_members(catalog, range(BUCKETS)):
        for order in (slice(None), slice(None, None, -1)):
            chosen, first = np.unique(codes[order], return_index=True)
            for code, row in zip(chosen.tolist(), first.tolist(), strict=True):
                known = samples.setdefault(names[code], [])
                ledger = int(ledgers[order][row])
                if len(known) < SAMPLE and ledger not in known:
                    known.append(ledger)
    return samples


def count_named(catalog: Dataset, buckets: range) -> Counter[str]:
    """Return the names that records of a bucket range give bookies, each with how many of these ledgers name it."""
    counts: Counter[str] = Counter()
    for ledgers, codes, names in _read_members(catalog, buckets):
        pairs = np.unique(np.column_stack([ledgers, codes]), axis=0)
        for name, count in zip(names, np.bincount(pairs[:, 1], minlength=len(names)).tolist(), strict=True):
            counts[name] += count
    return counts


def _read_members(catalog: Dataset, buckets: range) -> Iterator[tuple[Ints, Ints, list[str]]]:
    """Yield ledgers of scope 0 and, beside each, a member that its record names: a place in the list of names."""
    for batch in cut_batches(catalog, buckets):
        read = catalog.read("ledgers", buckets=batch, columns=["scope", "ledger", "segments"])
        read = read.filter(pc.equal(read["scope"], SCOPE)).combine_chunks()
        segments = read["segments"].combine_chunks()
        ensembles = pc.struct_field(pc.list_flatten(segments), "members")
        row_of = pc.list_parent_indices(segments).take(pc.list_parent_indices(ensembles))
        coded = pc.list_flatten(ensembles).dictionary_encode()
        yield read["ledger"].to_numpy()[row_of.to_numpy()], coded.indices.to_numpy(), coded.dictionary.to_pylist()


def count_scoped(catalog: Dataset) -> int:
    """Return how many ledgers of a catalog are of another scope than 0."""
    scopes = (catalog.read("ledgers", buckets=buckets, columns=["scope"])["scope"] for buckets in cut_batches(catalog))
    return sum(pc.sum(pc.not_equal(scope, SCOPE)).as_py() or 0 for scope in scopes)


def cut_batches(catalog: Dataset, buckets: range = range(BUCKETS)) -> list[range]:
    """Cut buckets so that the ledgers of one range are few enough to be held."""
    step = max(1, min(len(buckets), BUCKETS * _LEDGERS // max(catalog.rows("ledgers"), 1)))
    return [range(low, min(low + step, buckets.stop)) for low in range(buckets.start, buckets.stop, step)]
