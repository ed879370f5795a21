"""Ledger metadata from what bookies show: copies of many ledgers in, one proposal or one reason a ledger out.

What the copies show of E and W is tried first; where they are silent, the prior's shapes. A proposal is the inclusive
one: closed at the last entry that any bookie holds. Everything that the common path does not prove is held, with its
reason. See `docs/design/0002-common-path.md`.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs.entry import lac_record_agrees, master_key
from recovery.infer import facts, rows
from recovery.infer.blind import Blind
from recovery.infer.facts import DIGESTS, MAX_GROUPS, Facts
from recovery.infer.fill import fill
from recovery.infer.holdings import Ints, Mask
from recovery.infer.prior import Prior, Source
from recovery.infer.refusal import CODES, NEEDS_MORE, Refusal
from recovery.infer.trial import Explained, explain
from recovery.model.metadata import Digest

_HMAC: Final = DIGESTS.index(Digest.HMAC)


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator knows.

    Attributes:
        passwords: candidates; never shown.
        unscanned_bookies: members of the cluster that no inventory is of: their names, or how many.
        max_groups: more groups of one ledger leave it undecided.
    """

    passwords: tuple[bytes, ...] = field(default=(b"",), repr=False)
    unscanned_bookies: int | tuple[str, ...] = 0
    max_groups: int = MAX_GROUPS

    @property
    def unscanned(self) -> int:
        """How many bookies were not scanned."""
        return self.unscanned_bookies if isinstance(self.unscanned_bookies, int) else len(self.unscanned_bookies)


def reconstruct(copies: pa.Table, bookies: pa.Table, damage: pa.Table, prior: Prior, options: Options) -> pa.Table:
    """Propose metadata for every ledger that the copies are of.

    Args:
        copies: COPIES of whole ledgers, rows of any number of inventories in any order.
        bookies: BOOKIES of all inventories.
        damage: DAMAGE of all inventories.
        prior: what may be assumed where copies are silent.
        options: what the operator knows.

    Returns:
        RECONSTRUCTION, one row a ledger, in key order.
    """
    keys = {hashlib.sha256(master_key(password)).digest(): password for password in options.passwords}
    # A data-integrity copy stores the password itself where its key belongs (bookie-storage §4.4).
    raw = {hashlib.sha256(password).digest(): key for key, password in keys.items()}
    known = facts.read(copies, bookies, max_groups=options.max_groups, same_keys=raw)
    blind = Blind.of(known, bookies, damage, options.unscanned)
    refusal = _refused_by_facts(known, blind)
    explained = explain(known.held, known.row_bookie, len(known.bookies), prior.hypotheses, refusal == 0)
    refusal = np.maximum(refusal, explained.refusal)
    segments, assumed = fill(known, explained.segments)
    _refuse(
        refusal,
        segments.ledger[np.repeat(np.arange(len(segments.size)), segments.size)[segments.members < 0]],
        Refusal.TOO_FEW_BOOKIES,
    )
    ack, source = _ack_quorums(explained, prior)
    enough = _enough_to_hide(explained, prior)
    _refuse(refusal, (blind.holders > 0) & (blind.holders >= enough), Refusal.DAMAGE)
    more = np.isin(refusal, [CODES[reason] for reason in NEEDS_MORE]) & (blind.bookies > 0)
    refusal[more] = CODES[Refusal.SOURCE_INCOMPLETE]
    opened = _opened(known, keys)
    return rows.rows(
        known,
        explained,
        rows.Proposals(
            refusal=refusal,
            segments=segments,
            assumed=assumed,
            ack=ack,
            ack_source=source,
            certain_end=blind.bookies < enough,
            opened=opened,
            verified=known.verified | _verified_by_lac(known, keys, opened & (refusal == 0)),
        ),
    )


def _refuse(refusal: Ints, ledgers: Ints | Mask, reason: Refusal) -> None:
    """Give a reason to ledgers that have none yet."""
    refusal[ledgers] = np.where(refusal[ledgers] == 0, CODES[reason], refusal[ledgers])


def _refused_by_facts(known: Facts, blind: Blind) -> Ints:
    """Refuse what no ensemble could make good."""
    held = known.held
    low = np.full(known.count, facts.MAX_ENTRY)
    np.minimum.at(low, held.row_ledger, held.lo)
    empty = held.end < 0
    refusal = np.zeros(known.count, np.int64)
    for mask, reason in (
        ((known.scope == 0) & (known.ledger < 0), Refusal.ID_OUT_OF_RANGE),
        (known.fragmented, Refusal.FRAGMENTED),
        (known.broken, Refusal.CONTRADICTION),
        ((empty | ~known.indexed) & (~empty | known.leftover), Refusal.LOGS_OR_JOURNALS_ONLY),
        (known.reincarnated, Refusal.TWO_INCARNATIONS),
        (known.keys > 1, Refusal.TWO_KEYS),
        (known.limbo, Refusal.LIMBO),
        (blind.named, Refusal.DAMAGE),
        (empty, Refusal.NO_ENTRIES),
        (known.keys == 0, Refusal.NO_KEY),
        (known.leftover, Refusal.DELETED_SOMEWHERE),
        (known.unlisted, Refusal.LOG_ONLY_COPIES),
        (known.lengths_differ, Refusal.LENGTHS_DIFFER),
        (known.digests_differ, Refusal.DIGESTS_DIFFER),
        (known.copied, Refusal.RE_REPLICATED),
        (known.lac > held.end, Refusal.LAC_BEYOND_END),
        (low > 0, Refusal.NOT_FROM_ZERO),
        (known.last_length < 0, Refusal.NO_LAST_HEADER),
    ):
        _refuse(refusal, mask, reason)
    return refusal


def _ack_quorums(explained: Explained, prior: Prior) -> tuple[Ints, Ints]:
    """Return A of each explained ledger, else 0, and the place of its source in `Source`, else -1."""
    sources = list(Source)
    answers = [prior.ack_quorum(shape.ensemble, shape.write) for shape in explained.shapes]
    ack = np.array([*(answer for answer, _ in answers), 0])
    source = np.array([*(sources.index(source) for _, source in answers), -1])
    return ack[explained.shape], source[explained.shape]


def _enough_to_hide(explained: Explained, prior: Prior) -> Ints:
    """Return how many blind bookies can hide an acknowledged entry of each ledger."""
    seen = [prior.surely_acked(shape.ensemble, shape.write) for shape in explained.shapes[: explained.observed]]
    not_seen = len(explained.shapes) - explained.observed + 1
    return np.array(seen + [1] * not_seen)[explained.shape]


def _opened(known: Facts, keys: dict[bytes, bytes]) -> Mask:
    """Say which ledgers have the key of a candidate password."""
    match = pc.is_in(known.key_values, value_set=pa.array(list(keys), pa.binary())).to_numpy(zero_copy_only=False)
    found: Mask = np.append(match, False)[known.key] & (known.keys == 1)
    return found


def _verified_by_lac(known: Facts, keys: dict[bytes, bytes], wanted: Mask) -> Mask:
    """Say where a stored explicit LAC's HMAC agrees; only for ledgers whose type is known by its width alone."""
    verified = np.zeros(known.count, np.bool_)
    ledgers = np.flatnonzero(wanted & (known.digest == _HMAC) & ~known.verified & (known.lac_record >= 0))
    records = known.lac_records.take(pa.array(known.lac_record[ledgers])).to_pylist()
    stored = known.key_values.take(pa.array(known.key[ledgers])).to_pylist()
    agreed = [lac_record_agrees(record, keys[key]) for record, key in zip(records, stored, strict=True)]
    verified[ledgers[np.array(agreed, np.bool_)]] = True
    return verified
