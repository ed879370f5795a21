"""The bookies that records name: other names replaced by ids, and which records name some of them."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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


def name_any(stored: pa.Table, bookies: frozenset[str]) -> Mask:
    """Say which records name one of some bookies; CATALOG_LEDGERS in."""
    mask = np.zeros(stored.num_rows, np.bool_)
    if bookies and stored.num_rows:
        segments = stored["segments"].combine_chunks()
        members = pc.struct_field(pc.list_flatten(segments), "members")
        row_of = pc.list_parent_indices(segments).take(pc.list_parent_indices(members))
        named = pc.is_in(pc.list_flatten(members), value_set=pa.array(sorted(bookies)))
        mask[row_of.filter(named).to_numpy()] = True
    return mask
