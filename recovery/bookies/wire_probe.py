"""Which bookies of a cluster can be asked for lists: each is asked for a few ledgers that it should have."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow.compute as pc

from backends.bookie import frames
from backends.bookie.client import BookieConnection, BookieOptions, BookieWire
from backends.bookie.frames import BookieAnswer, RequestOutcome
from recovery.bookies.addresses import NamedMember
from recovery.bookies.wire_results import SCOPE, AskedKind, BookieResult, Ints
from recovery.dataset import Dataset
from recovery.model.ids import BUCKETS

_LEDGERS: Final = 16_384
"""BookieResult of a bookie at a time: what a task holds."""
_PROBES: Final = 3
"""Ledgers that a bookie should know, and is asked for, to see whether it answers lists."""


_FAILED: Final = {
    RequestOutcome.NO_ANSWER: AskedKind.NO_ANSWER,
    RequestOutcome.REFUSED: AskedKind.REFUSED,
    RequestOutcome.NOT_UNDERSTOOD: AskedKind.NOT_UNDERSTOOD,
}


def sample_ledgers(catalog: Dataset) -> dict[str, list[int]]:
    """Return the names that records give bookies, each with a few ledgers that it should have."""
    samples: dict[str, list[int]] = {}
    for ledgers, codes, names in _read_members(catalog, range(BUCKETS)):
        for order in (slice(None), slice(None, None, -1)):
            chosen, first = np.unique(codes[order], return_index=True)
            for code, row in zip(chosen.tolist(), first.tolist(), strict=True):
                known = samples.setdefault(names[code], [])
                ledger = int(ledgers[order][row])
                if len(known) < _PROBES and ledger not in known:
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


async def probe_bookies(
    wanted: Sequence[NamedMember], samples: Mapping[str, Sequence[int]], options: BookieOptions
) -> dict[str, BookieResult]:
    """Return of each bookie whether it can be collected; on connections of their own, which an answer may break."""
    addresses = {m.bookie: m.address for m in wanted if m.address is not None}
    with BookieWire(addresses, options) as wire:
        probed = await asyncio.gather(*(_probe(wire[name], name, samples.get(name, ())) for name in addresses))
    results = {result.bookie: result for result in probed}
    return {m.bookie: results.get(m.bookie) or BookieResult(m.bookie, AskedKind.NO_ANSWER, m.why) for m in wanted}


async def _probe(bookie: BookieConnection, name: str, ledgers: Sequence[int]) -> BookieResult:
    lists: list[BookieAnswer] = []
    reads: list[BookieAnswer] = []
    questions = [(reads, frames.bookie_info())]
    for ledger in ledgers[:_PROBES]:
        questions += [(lists, frames.list_entries(ledger)), (reads, frames.read_entry(ledger, frames.LAST))]
    await bookie.ask(questions, lambda answers, answer: answers.append(answer))
    understood = {RequestOutcome.ANSWER, RequestOutcome.NEGATIVE}
    if any(answer.outcome in understood for answer in lists):
        return BookieResult(name, AskedKind.COLLECTED)
    if not any(answer.outcome in understood for answer in reads):
        return BookieResult(name, _FAILED[reads[0].outcome], reads[0].said)
    if any(answer.outcome is RequestOutcome.ANSWER for answer in reads[1:]):
        return BookieResult(name, AskedKind.NO_LISTS, lists[0].said)
    return BookieResult(name, AskedKind.COLLECTED)


def cut_batches(catalog: Dataset, buckets: range = range(BUCKETS)) -> list[range]:
    """Cut buckets so that the ledgers of one range are few enough to be held."""
    step = max(1, min(len(buckets), BUCKETS * _LEDGERS // max(catalog.rows("ledgers"), 1)))
    return [range(low, min(low + step, buckets.stop)) for low in range(buckets.start, buckets.stop, step)]
