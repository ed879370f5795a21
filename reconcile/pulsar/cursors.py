"""Subscriptions of Pulsar that stand beyond what is left of their topics: where each goes on.

A subscription's node says up to which entry of which ledger it has acknowledged (where its state is in a ledger of its
own: at least up to there). Its topic's node names that ledger, as long as it was not trimmed.

    of the ledger                               the subscription
    its end is at or above the position         stands where it stood
    its end is below the position               CURSOR_BEYOND_END: goes on behind that end
    it comes back from nowhere                  CURSOR_BEYOND_END: goes on behind the last ledger before it that has an
                                                end: in bookies, in the store, or where it was offloaded to
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingStatement
from reconcile.pulsar.topic_records import find_listed, read_nodes
from recovery.codecs import managed_ledger
from recovery.codecs.managed_ledger import Listed
from recovery.dataset import Dataset, read_part
from recovery.errors import FormatError
from recovery.manifest import Part
from recovery.place import DatasetPlace

_COMES_BACK: Final = ("restored", "guarded")


def find_beyond(
    snapshot: Dataset, cursors: pa.Table, out: DatasetPlace, parts: Sequence[Part], live: Dataset | None
) -> Iterator[Finding]:
    """Yield a finding for each subscription that stands beyond what is left.

    Args:
        snapshot: a catalog with `TOPICS`.
        cursors: its subscriptions, as `read_topic_records` gives them.
        out: the plan's folder.
        parts: of its RECONSTRUCTION.
        live: catalog of the store.

    Raises:
        DatasetError: a file is gone or damaged.
    """
    if not cursors.num_rows:
        return
    ends = read_ends(cursors["ledger"].unique(), out, parts, live)
    place = pc.index_in(cursors["ledger"], value_set=ends["ledger"].combine_chunks())
    last = ends["last_entry"].take(place)
    # Of an open ledger nobody knows an end that the position could be beyond.
    is_beyond = pc.or_(pc.is_null(place), pc.fill_null(pc.less(last, cursors["entry"]), fill_value=False))
    doubted = cursors.filter(is_beyond)
    topics = _read_topics(snapshot, doubted)
    named = sorted({listed.ledger for ledgers in topics.values() for listed in ledgers})
    ends = read_ends(pa.array(named, pa.int64()), out, parts, live)
    known = dict(zip(ends["ledger"].to_pylist(), ends["last_entry"].to_pylist(), strict=True))
    for row in doubted.to_pylist():
        listed = {item.ledger: item for item in topics.get(row["path"].rpartition("/")[0], ())}
        # What the topic does not name was trimmed, and what was offloaded is elsewhere.
        if row["ledger"] in listed and not listed[row["ledger"]].deleted:
            yield _make_finding(row["path"], (row["ledger"], row["entry"]), known, listed)


def _make_finding(
    path: str, position: tuple[int, int], known: dict[int, int | None], listed: dict[int, Listed]
) -> Finding:
    ledger, entry = position
    left, where = "no such ledger", "the topic's first message"
    if ledger in known:
        left, where = f"ends at {known[ledger]}", f"{ledger}:{known[ledger]}"
    else:
        earlier = (listed[number] for number in sorted(listed, reverse=True) if number < ledger)
        ends = ((item.ledger, end) for item in earlier if (end := _find_end(item, known)) is not None)
        where = next((f"{number}:{end}" for number, end in ends), where)
    return Finding(
        category=Category.CURSOR_BEYOND_END,
        subject=path,
        statements=[
            FindingStatement("earlier", "position", f"{ledger}:{entry}"),
            FindingStatement("bookies", f"ledger {ledger}", left),
            FindingStatement("plan", "position that remains", where),
        ],
    )


def _find_end(listed: Listed, known: dict[int, int | None]) -> int | None:
    """Return the last entry of a ledger that a topic still has; None: it is gone, or nobody knows."""
    if listed.deleted:
        return listed.last_entry
    if listed.ledger not in known:
        return None
    stored = known[listed.ledger]
    return listed.last_entry if stored is None else stored


def read_ends(ledgers: pa.Array, out: DatasetPlace, parts: Iterable[Part], live: Dataset | None) -> pa.Table:
    """Return the last entries of those of some ledgers that come back or are in the store; null: it is open."""
    names = ["ledger", "last_entry"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    ascending = np.unique(ledgers.to_numpy(zero_copy_only=False))
    ends = [schema.empty_table()]
    for part in parts:
        rows = read_part(out, part.file, columns=["scope", "outcome", *names])
        rows = rows.filter(pc.is_in(rows["outcome"], pa.array(_COMES_BACK)))
        ends.append(_select(rows, ascending).select(names).cast(schema))
    stored = live.batches("ledgers", ["scope", *names]) if live is not None else ()
    ends += [_select(rows, ascending).select(names).cast(schema) for rows in stored]
    return pa.concat_tables(ends)


def _select(rows: pa.Table, ascending: npt.NDArray[np.int64]) -> pa.Table:
    return rows.filter(pc.and_(pc.equal(rows["scope"], 0), find_listed(rows["ledger"], ascending)))


def _read_topics(snapshot: Dataset, cursors: pa.Table) -> dict[str, tuple[Listed, ...]]:
    """Return what the topics of some subscriptions name."""
    parents = pc.replace_substring_regex(cursors["path"], r"/[^/]*$", "").unique()
    topics: dict[str, tuple[Listed, ...]] = {}
    for path, raw in read_nodes(snapshot, parents) if len(parents) else ():
        try:
            record = managed_ledger.decode(raw)
        except FormatError:
            continue
        if isinstance(record, managed_ledger.ManagedLedger):
            topics[path] = record.ledgers
    return topics
