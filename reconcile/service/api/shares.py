"""The findings of several shares' scrutinies: findings of the whole cluster appear once."""

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import TRAITS


@dataclass(slots=True)
class SharedFindings:
    """Keeps findings without a ledger once; the newest run comes first.

    Attributes:
        seen: ids of kept findings.
    """

    seen: set[bytes] = field(default_factory=set)

    def keep_once(self, rows: pa.Table, *, is_newest: bool) -> pa.Table:
        """Return the rows that count; ``id``, ``ledger`` and ``category`` of FINDINGS at least.

        Args:
            rows: of a run.
            is_newest: no run of another share is newer: findings of the whole cluster count only there.
        """
        of_cluster = pc.is_null(rows["ledger"])
        if not pc.any(of_cluster).as_py():
            return rows
        kept = []
        pairs = zip(of_cluster.to_pylist(), rows["id"].to_pylist(), rows["category"].to_pylist(), strict=True)
        for alone, key, category in pairs:
            counts = not alone or (key not in self.seen and (is_newest or TRAITS[category].of_share))
            kept.append(counts)
            if alone and counts:
                self.seen.add(key)
        return rows.filter(pa.array(kept, pa.bool_()))
