"""Ledgers that could not lose one more bookie, in a sample of those that a store lists.

From records and registrations alone: entries with a copy on only one registered bookie, of ledgers that were written to
several. `reconcile.check.impact` checks every ledger.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from backends.errors import AccessDeniedError
from backends.protocols import MetadataStore
from reconcile.check.impact.bookies import read_bookies
from reconcile.check.impact.names import DomainLevel
from reconcile.check.impact.segments.columns import read_records
from reconcile.check.impact.segments.judgement import judge
from reconcile.check.listing import examples
from reconcile.rules.segments.member_names import rename_members
from recovery.codecs.keys import ledger_keys
from recovery.codecs.ledger_metadata import decode_columns
from recovery.codecs.store import Layout, find_placeless
from recovery.model import tables

_SAMPLE: Final = 1_000
"""Records that are read: a second at most."""


@dataclass(frozen=True, slots=True)
class ThinLedgers:
    """The result of a sample of ledgers.

    Attributes:
        looked_at: ledgers with a readable record.
        unreadable: ledgers with an entry that no registered bookie has.
        thin: ledgers with an entry on only one registered bookie, though it was written to several.
        names: of the first thin ones.
    """

    looked_at: int
    unreadable: int
    thin: int
    names: tuple[str, ...]


def find_thin_ledgers(
    store: MetadataStore,
    root: str,
    layout: Layout,
    ids: pa.Table,
    registrations: list[str],
    aliases: Mapping[str, str],
) -> ThinLedgers:
    """Check ledgers at equal distances in a listing.

    Args:
        store: only read.
        root: of the ledgers.
        layout: of the store.
        ids: scope and ledger of the listed ledgers.
        registrations: keys of the nodes of registered bookies, below the root.
        aliases: other names of bookies in records → ids.

    Raises:
        UnavailableError: the store does not answer.
    """
    scope, ledger = (ids[name].to_numpy() for name in ("scope", "ledger"))
    fits = np.flatnonzero(~find_placeless(layout, scope, ledger))
    chosen = fits[np.unique(np.linspace(0, len(fits) - 1, min(len(fits), _SAMPLE)).astype(np.int64))]
    keys = [root + key for key in ledger_keys(layout, scope[chosen], ledger[chosen]).to_pylist()]
    try:
        raws = [None if node is None else node.value for _, node in store.get_many(keys)]
    except AccessDeniedError:
        raws = [None] * len(keys)
    parsed = rename_members(decode_columns(pa.array([raw or b"" for raw in raws], pa.binary())), aliases)
    nodes = pa.Table.from_pylist(
        [{"path": path, "kind": "registration", "raw": b"", "version": 0} for path in registrations],
        schema=tables.CATALOG_NODES,
    )
    bookies = read_bookies(nodes, alive=True)
    records = read_records(parsed, pa.array(bookies.names, pa.string()))
    domains = bookies.code_domains(DomainLevel.BOOKIE)[1]
    unreadable, thin = np.zeros(len(keys), np.bool_), np.zeros(len(keys), np.bool_)
    for segments in records.groups:
        judgement = judge(
            segments,
            segments.find_residues(),
            bookies.states[segments.members],
            domains=domains[segments.members],
        )
        unreadable[segments.ledger[judgement.unreadable.any(axis=0)]] = True
        if segments.shape.write > 1:
            thin[segments.ledger[judgement.narrow.any(axis=0)]] = True
    names = examples(ids.take(pa.array(chosen[thin & ~unreadable])))
    looked_at = len(keys) - len(records.unreadable)
    return ThinLedgers(looked_at, int(unreadable.sum()), int((thin & ~unreadable).sum()), tuple(names))
