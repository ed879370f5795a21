"""The bookies in records: aliases replaced by ids, and the records that name some bookies."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs import ledger_metadata
from recovery.errors import InputError

Mask = npt.NDArray[np.bool_]


def rename_members(stored: pa.Table, renames: Mapping[str, str]) -> pa.Table:
    """Return records with other names of bookies replaced by their ids; CATALOG_LEDGERS in and out.

    Args:
        stored: the records.
        renames: name → id.
    """
    if not renames or not stored.num_rows:
        return stored
    segments = stored["segments"].combine_chunks()
    flat = segments.flatten()
    members = flat.field("members")
    coded = members.flatten().dictionary_encode()
    names = pa.array([renames.get(name, name) for name in coded.dictionary.to_pylist()], pa.string())
    starts = pa.array(np.append(0, np.cumsum(pc.list_value_length(members).to_numpy(zero_copy_only=False))), pa.int32())
    kind = stored.schema.field("segments").type
    lists = pa.ListArray.from_arrays(starts, names.take(coded.indices), type=kind.value_type.field("members").type)
    structs = pa.StructArray.from_arrays([flat.field("first"), lists], fields=list(kind.value_type))
    sizes = pc.fill_null(pc.list_value_length(segments), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.append(0, np.cumsum(sizes)), pa.int32())
    renamed = pa.ListArray.from_arrays(offsets, structs, type=kind, mask=pc.is_null(segments))
    return stored.set_column(stored.schema.get_field_index("segments"), stored.schema.field("segments"), renamed)


def rename_records(stored: pa.Table, renames: Mapping[str, str]) -> pa.Table:
    """Return records that read as `rename_members` has them, their bytes, too; CATALOG_LEDGERS in and out.

    Bytes of records that name no other name stay as they are.
    """
    named = np.flatnonzero(name_any(stored, frozenset(renames)))
    if not len(named):
        return stored
    raws = stored["raw"].to_pylist()
    for row in named.tolist():
        record = ledger_metadata.decode(raws[row])
        segments = tuple(
            replace(one, members=tuple(renames.get(name, name) for name in one.members)) for one in record.segments
        )
        raws[row] = ledger_metadata.encode(replace(record, segments=segments))
    column = stored.schema.get_field_index("raw")
    rewritten = stored.set_column(column, stored.schema.field("raw"), pa.array(raws, stored.schema.field("raw").type))
    return rename_members(rewritten, renames)


def require_other_names(renames: Mapping[str, str], bookies: Collection[str]) -> None:
    """Require that no scanned bookie is an alias of another.

    Args:
        renames: name → id.
        bookies: ids of scanned bookies.

    Raises:
        InputError: a scanned bookie is an alias.
    """
    for name, bookie in renames.items():
        if name != bookie and name in bookies:
            problem = f"is a bookie of its own that was looked at, and an alias of {bookie}"
            raise InputError(f"alias {name}", problem, "take it out of the aliases")


def name_any(stored: pa.Table, bookies: frozenset[str]) -> Mask:
    """Mark records that name one of some bookies; CATALOG_LEDGERS in."""
    mask = np.zeros(stored.num_rows, np.bool_)
    if bookies and stored.num_rows:
        segments = stored["segments"].combine_chunks()
        members = pc.struct_field(pc.list_flatten(segments), "members")
        row_of = pc.list_parent_indices(segments).take(pc.list_parent_indices(members))
        named = pc.is_in(pc.list_flatten(members), value_set=pa.array(sorted(bookies)))
        mask[row_of.filter(named).to_numpy()] = True
    return mask
