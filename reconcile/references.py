"""`--references`: what an upper layer knows of its ledgers, read from JSON lines or Parquet.

    field       type    says
    ledger      int64   required
    scope       int64   0 if it is missing
    last_entry  int64   of a ledger that the layer closed
    length      int64   up to it
    deleted     bool    the layer deleted it, or meant to
    owner       text    whose it is; kept for whoever reads the plan

A ledger that stands several times is deleted if any line says so; of its last entries the greatest counts.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from recovery.dataset import sort_by_key
from recovery.errors import InputError
from recovery.infer.references import SCHEMA
from recovery.model.ids import buckets

_FIELDS = {field.name: field.type for field in SCHEMA if field.name != "bucket"}
_REMEDY = (
    "give JSON lines or Parquet with `ledger`, and `scope`, `last_entry`, `length`, `deleted`, `owner` where known"
)


def read(path: Path) -> pa.Table:
    """Read one file.

    Returns:
        `infer.references.SCHEMA`, sorted by key, each ledger once.

    Raises:
        InputError: it cannot be read, or a field is missing or of another type.
    """
    try:
        with path.open("rb") as file:
            parquet = file.read(4) == b"PAR1"
        rows = pq.read_table(path) if parquet else _lines(path)
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or error})", _REMEDY) from error
    except pa.ArrowException as error:
        raise InputError(
            str(path), f"is not what it should be ({str(error).splitlines()[0][:200]})", _REMEDY
        ) from error
    if "ledger" not in rows.column_names:
        raise InputError(str(path), "has no field `ledger`", _REMEDY)
    columns = {}
    for name, kind in _FIELDS.items():
        given = rows[name] if name in rows.column_names else pa.nulls(rows.num_rows, kind)
        try:
            columns[name] = pc.cast(given, kind)
        except pa.ArrowException as error:
            raise InputError(str(path), f"has a `{name}` that is no {kind}", _REMEDY) from error
    if columns["ledger"].null_count:
        raise InputError(str(path), "has a line without a `ledger`", _REMEDY)
    columns["scope"] = pc.fill_null(columns["scope"], 0)
    return _once(pa.table(columns))


def _lines(path: Path) -> pa.Table:
    if not path.stat().st_size:
        return pa.table({"ledger": pa.array([], pa.int64())})
    return pj.read_json(path, parse_options=pj.ParseOptions(newlines_in_values=False))


def _once(rows: pa.Table) -> pa.Table:
    keys: Sequence[str] = ("scope", "ledger")
    grouped = rows.group_by(list(keys)).aggregate(
        [("last_entry", "max"), ("length", "max"), ("deleted", "max"), ("owner", "max")]
    )
    found = grouped.rename_columns([name.removesuffix("_max") for name in grouped.column_names])
    bucket = buckets(found["scope"].to_numpy().astype(np.int64), found["ledger"].to_numpy().astype(np.int64))
    found = found.append_column("bucket", pa.array(bucket)).select(SCHEMA.names).cast(SCHEMA)
    return sort_by_key(found)
