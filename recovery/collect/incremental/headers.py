"""Headers of entries in logs and journals that are unchanged since the earlier collection."""

from collections.abc import Callable, Sequence

import numpy as np

from recovery.collect.incremental.previous import BUCKETS_PER_SHARE
from recovery.collect.incremental.records import FILE_COLUMN, ReadsHeaders
from recovery.collect.incremental.row_sets import are_among, find_files_of, name_columns, renumber
from recovery.collect.incremental.state import CollectedState
from recovery.collect.rows.entry_headers import DIGEST_COLUMN
from recovery.collect.rows.scoped_ids import bucket_of
from recovery.collect.rows.source_copies import Ints, list_entries, subtract_groups, to_groups
from recovery.collect.rows.spool import Spool
from recovery.model.groups import KeyedGroups


def take_over_headers(
    state: CollectedState, paths: Sequence[str], wanted: KeyedGroups, read: ReadsHeaders, take: Callable[[Ints], None]
) -> KeyedGroups:
    """Pass on the wanted headers in some files; return the wanted ones that are in none of them.

    Args:
        state: the files seen, and the headers kept.
        paths: the files in the order in which they were seen.
        wanted: the entries.
        read: reads headers in some of the files, by their places in `paths`.
        take: takes rows of `file_heads`, the file being its place in `paths`; of several of one entry, that of the
            first file comes first.
    """
    files = [state.files[path] for path in paths]
    unchanged = {
        old.number: n
        for n, file in enumerate(files)
        if (old := state.find_unchanged(file)) is not None and old.sound and old.read
    }
    to_read = {n for n in range(len(files)) if n not in unchanged.values()}
    pairs = np.concatenate([np.empty((0, 2), np.int64), *map(np.column_stack, list_entries(wanted))])
    present = [np.empty((0, 2), np.int64)]
    width = 1 + len(name_columns("file_heads"))
    fresh, kept = Spool(width, state.scratch), Spool(width, state.scratch)
    try:
        for share in state.shares("held", "file_heads") if unchanged else ():
            in_share = pairs if share is None else pairs[bucket_of(pairs[:, 0]) // BUCKETS_PER_SHARE == share]
            stored, heads = (state.previous.read_rows(name, share) for name in ("held", "file_heads"))
            places = find_files_of(stored[np.isin(stored[:, FILE_COLUMN], list(unchanged))], in_share)
            heads = heads[~state.previous.are_uncertain(heads[:, DIGEST_COLUMN + 1])]
            lacking = places[~are_among(places, heads[:, :3]), FILE_COLUMN]
            to_read.update(unchanged[n] for n in np.unique(lacking).tolist())
            heads = heads[are_among(heads[:, :3], places)]
            heads[:, FILE_COLUMN] = renumber(heads[:, FILE_COLUMN], unchanged)
            kept.add(heads)
            present.append(places[:, (0, 2)])
        if to_read:
            rows, located = read(sorted(to_read))
            fresh.add(rows)
            present.append(located)
        numbers = np.array([file.number for file in files], np.int64)
        for share in state.shares("file_heads"):
            old_rows = kept.read_share(share)
            old_rows = old_rows[~np.isin(old_rows[:, FILE_COLUMN], list(to_read))]
            rows = np.concatenate((old_rows, fresh.read_share(share)))
            rows = rows[np.lexsort((rows[:, FILE_COLUMN], rows[:, 0]))]
            take(rows.copy())
            rows[:, FILE_COLUMN] = numbers[rows[:, FILE_COLUMN]]
            state.spools["file_heads"].add(rows)
    finally:
        fresh.close()
        kept.close()
    stands = np.concatenate(present)
    return subtract_groups(wanted, to_groups(stands[:, 0], stands[:, 1]))
