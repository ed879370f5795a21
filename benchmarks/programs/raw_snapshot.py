"""The ledgers of a ZooKeeper snapshot into a Parquet file: `python -m benchmarks.programs.raw_snapshot FOLDER OUT`.

A program of its own that loads nothing else, since it is timed as a whole, beside another that is.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backends.zkfiles.snapshot import column
from backends.zkfiles.store import ZooKeeperFiles
from recovery.codecs.keys import ledgers_of
from recovery.codecs.store import Layout

_ROOT = "/ledgers"
_SCHEMA = pa.schema([("ledger", pa.int64()), ("version", pa.int64()), ("raw", pa.binary())])


def main(folder: str, out: str) -> None:
    """Write ids, versions and raw records."""
    files = ZooKeeperFiles(Path(folder))
    complete = not files.point().gaps
    ledgers = 0
    with pq.ParquetWriter(out, _SCHEMA, use_dictionary=False) as writer:
        for batch in files.scan(_ROOT):
            found = ledgers_of(Layout.HIERARCHICAL, pc.utf8_slice_codeunits(batch["key"], len(_ROOT)))
            rows = batch.take(column(found.rows))
            columns = [column(found.ledger), rows["version"], rows["value"]]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
            ledgers += len(found.rows)
    print(json.dumps({"ledgers": ledgers, "complete": complete}))


if __name__ == "__main__":
    main(*sys.argv[1:])
