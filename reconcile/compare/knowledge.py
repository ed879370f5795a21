"""What the operator knows, and what the cluster's own ledgers show: both decide of a ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from reconcile.compare.stated_quorums import StatedQuorums
from recovery.codecs.store import Layout
from recovery.infer.lost_disks import LostDisk
from recovery.infer.search import Tail

Shapes = Sequence[Mapping[str, Any]]
"""Hypotheses of a prior: ensemble, write, weight, source."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What the operator knows; as for `recover`.

    Attributes:
        passwords: candidates; never shown.
        expected: bookies of the cluster; None: not said.
        default_quorum: (E, W, A).
        tail: where ledgers are closed whose last entries may not have been acknowledged.
        layout: of the store that is to be repaired; None: not known.
        references: what upper layers know, of all their ledgers; None: not given.
        aliases: other names of bookies in records → ids.
        stated_quorums: (E, W, A) of some ledgers.
        lost: disks of which nothing will come back.
    """

    passwords: tuple[bytes, ...] = field(default=(b"",), repr=False)
    expected: tuple[str, ...] | None = None
    default_quorum: tuple[int, int, int] | None = None
    tail: Tail = Tail.INCLUSIVE
    layout: Layout | None = None
    references: pa.Table | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    stated_quorums: StatedQuorums = field(default_factory=StatedQuorums)
    lost: tuple[LostDisk, ...] = ()
