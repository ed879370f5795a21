"""Which ledgers of a store an archive takes: closed ones, as far as a person asks for them, that it does not have yet.

    a ledger is                counted as
    not named                  not at all
    of a record that cannot be read   unreadable
    not closed                 open
    of no topic that is asked for     other_topics
    changed too lately         young; unknown_age where neither the store nor the record has a time
    in the archive             archived
    in the archive, and its record says another end, length, creation, digest or password there   other_history
    none of these              taken

Pure functions of tables.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs.entry import HEADER_SIZE, SCOPED_HEADER_SIZE
from recovery.codecs.entry_frames import SIZE_FIELD
from recovery.codecs.managed_ledger import fits_name
from recovery.dataset import select_rows
from recovery.model.ids import LedgerId, distinct
from recovery.model.metadata import DIGEST_SIZES, LedgerState
from recovery.model.positions import FAR

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

COLUMNS: Final = (
    "bucket", "scope", "ledger", "error", "state", "last_entry", "length", "digest", "ctime", "changed_at",
    "password_hash", "custom",
)  # fmt: skip
"""Of CATALOG_LEDGERS, what a choice looks at."""
KNOWN: Final = ("scope", "ledger", "last_entry", "length", "digest", "ctime", "password_hash", "sha256")
"""Of ARCHIVED, likewise."""
_IDENTITY: Final = ("last_entry", "length", "digest", "ctime", "password_hash")
_TOPIC_KEY: Final = "pulsar/managed-ledger"
_CURSOR_KEY: Final = "pulsar/cursor"
_US: Final = 1000


@dataclass(frozen=True, slots=True)
class ArchiveChoice:
    """What a person asks for.

    Attributes:
        at_ms: now, ms since 1970.
        ledgers: these only; empty: all.
        older_than_ms: the record has not changed for so long; None: whenever it changed.
        topics: what the topic of a ledger of messages must fit (`managed_ledger.fits_name`); None: whatever its topic.
    """

    at_ms: int
    ledgers: tuple[LedgerId, ...] = ()
    older_than_ms: int | None = None
    topics: str | None = None


class Chosen(NamedTuple):
    """What becomes of the ledgers of a stretch of a store."""

    rows: Ints
    """Those that are taken, as places in the table."""
    known: Ints
    """Those that the archive has, likewise."""
    known_rows: Ints
    """Of each of these, its place in the archive's table."""
    others: Ints
    """Those that the archive has with another history, likewise places in the table."""
    counts: Counter[str]


def choose(stored: pa.Table, known: pa.Table, choice: ArchiveChoice) -> Chosen:
    """Return which ledgers are taken.

    Args:
        stored: `COLUMNS` of CATALOG_LEDGERS.
        known: `KNOWN` of ARCHIVED, of the same ledgers at least.
        choice: what is asked for.
    """
    counts: Counter[str] = Counter()
    rows = np.arange(stored.num_rows)
    if choice.ledgers:
        rows = rows[_find(stored["scope"], stored["ledger"], choice.ledgers)]

    def leave_out(name: str, left_out: Any) -> None:  # noqa: ANN401 - a column of Arrow, or a mask
        nonlocal rows
        mask = (
            np.asarray(pc.fill_null(left_out, fill_value=False)) if not isinstance(left_out, np.ndarray) else left_out
        )
        counts[name] += int(mask[rows].sum())
        rows = rows[~mask[rows]]

    far = pc.greater_equal(stored["last_entry"], FAR)
    leave_out("unreadable", pc.or_kleene(pc.is_valid(stored["error"]), far))
    leave_out("open", pc.not_equal(stored["state"], LedgerState.CLOSED.value))
    if choice.topics is not None:
        coded = list_topics(stored["custom"]).dictionary_encode()
        fits = pa.array([fits_name(name, choice.topics) for name in coded.dictionary.to_pylist()], pa.bool_())
        leave_out("other_topics", pc.invert(pc.fill_null(fits.take(coded.indices), fill_value=False)))
    if choice.older_than_ms is not None:
        changed = pc.coalesce(pc.divide(pc.cast(stored["changed_at"], pa.int64()), _US), stored["ctime"])
        leave_out("unknown_age", pc.is_null(changed))
        leave_out("young", pc.greater(changed, choice.at_ms - choice.older_than_ms))
    known_at = _match(stored, known)
    is_same = np.zeros(stored.num_rows, np.bool_)
    in_both = np.flatnonzero(known_at >= 0)
    is_same[in_both] = _is_same(stored.take(pa.array(in_both)), known.take(pa.array(known_at[in_both])))
    others = rows[(known_at[rows] >= 0) & ~is_same[rows]]
    archived = rows[is_same[rows]]
    leave_out("archived", is_same)
    leave_out("other_history", known_at >= 0)
    counts["taken"] += len(rows)
    return Chosen(rows, archived, known_at[archived], others, counts)


def list_topics(custom: pa.ChunkedArray) -> pa.Array:
    """Return the topic whose messages each ledger has, by its custom metadata; null: it names none."""
    lists = custom.combine_chunks() if isinstance(custom, pa.ChunkedArray) else custom
    topics = np.full(len(lists), None, object)
    items, row = lists.flatten(), pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    keys = items.field("key")
    named = np.flatnonzero(np.asarray(pc.equal(keys, _TOPIC_KEY)))
    # Bytes of others: what is no text is a name nevertheless.
    topics[row[named]] = [
        value.decode(errors="replace") for value in items.field("value").take(pa.array(named)).to_pylist()
    ]
    topics[row[np.asarray(pc.equal(keys, _CURSOR_KEY))]] = None
    return pa.array(topics.tolist(), pa.string())


def measure_frames(stored: pa.Table) -> Ints:
    """Return how many bytes the entries of closed ledgers take, each behind its size, as their records say.

    Args:
        stored: scope, last_entry, length and digest.
    """
    widest = max(DIGEST_SIZES.values())
    digest = stored["digest"].to_pylist()
    digest_size = np.array([DIGEST_SIZES.get(name, widest) if name else widest for name in digest], np.int64)
    header = np.where(stored["scope"].to_numpy() == 0, HEADER_SIZE, SCOPED_HEADER_SIZE)
    count = stored["last_entry"].to_numpy() + 1
    sizes: Ints = np.maximum(stored["length"].to_numpy(), 0) + count * (SIZE_FIELD + header + digest_size)
    return sizes


def _find(scope: pa.ChunkedArray, ledger: pa.ChunkedArray, wanted: Sequence[LedgerId]) -> Ints:
    own = np.array([(item.scope, item.ledger) for item in wanted], np.int64)
    first, codes = distinct(
        np.concatenate([own[:, 0], scope.to_numpy()]), np.concatenate([own[:, 1], ledger.to_numpy()])
    )
    return np.flatnonzero(first[codes[len(own) :]] < len(own))


def _match(stored: pa.Table, known: pa.Table) -> Ints:
    """Return of each row its place in the archive's table; -1: it is not there."""
    if not known.num_rows or not stored.num_rows:
        return np.full(stored.num_rows, -1)
    scope, ledger = (np.concatenate([known[name].to_numpy(), stored[name].to_numpy()]) for name in ("scope", "ledger"))
    first, codes = distinct(scope, ledger)
    known_at = first[codes[known.num_rows :]]
    return np.where(known_at < known.num_rows, known_at, -1)


def _is_same(rows: pa.Table, known: pa.Table) -> Mask:
    """Whether two tables of equal length say the same of each ledger, as far as a closed one never changes."""
    is_same = np.ones(rows.num_rows, np.bool_)
    for name in _IDENTITY:
        left, other = rows[name].combine_chunks(), known[name].combine_chunks()
        equal = pc.fill_null(pc.equal(left, other), fill_value=False)
        is_same &= np.asarray(pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(other))))
    return is_same


def drop_repeated(known: pa.Table) -> pa.Table:
    """Return each ledger of an archive's table once: the first time that it is there."""
    if not known.num_rows:
        return known
    first, _ = distinct(known["scope"].to_numpy(), known["ledger"].to_numpy())
    keep = np.zeros(known.num_rows, np.bool_)
    keep[first] = True
    return select_rows(known, pa.array(keep))
