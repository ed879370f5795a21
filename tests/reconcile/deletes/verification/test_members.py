"""Members of ensembles in columns."""

import numpy as np
import pyarrow as pa

from reconcile.deletes.verification.members import list_members, make_keys, split_keys
from recovery.model import tables


def test_members_of_all_segments() -> None:
    """Also of one that has no entries; of no ledgers there are none."""
    records = [
        [{"first": 0, "members": ["a", "b"]}, {"first": 3, "members": ["b", "c"]}],
        [{"first": 0, "members": ["c"]}],
    ]
    found = list_members(np.array([5, 9]), pa.array(records, tables.SEGMENTS))
    assert found.row.tolist() == [5, 5, 5, 5, 9]
    assert [found.names[number] for number in found.bookie] == ["a", "b", "b", "c", "c"]
    assert split_keys(make_keys(found.row, found.bookie))[0].tolist() == found.row.tolist()
    assert split_keys(make_keys(found.row, found.bookie))[1].tolist() == found.bookie.tolist()
    nothing = list_members(np.zeros(0, np.int64), pa.array([], tables.SEGMENTS))
    assert (nothing.row.tolist(), nothing.bookie.tolist(), nothing.names) == ([], [], [])
