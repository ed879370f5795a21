"""Files of ledgers: those written of columns are those written of ids."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile import id_files
from reconcile.id_files import write_ids, write_keys
from recovery.model.ids import LedgerId, parse

HALF = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3)
IDS = st.builds(LedgerId, st.just(0) | HALF, HALF)


@given(parts=st.lists(st.lists(IDS, max_size=6), max_size=4))
def test_columns_make_the_file_that_ids_make(parts: list[list[LedgerId]]) -> None:
    """Ascending as unsigned numbers, each once; what is written at a time changes nothing."""
    schema = pa.schema([("scope", pa.int64()), ("ledger", pa.int64())])
    tables = [pa.Table.from_pylist([{"scope": n.scope, "ledger": n.ledger} for n in ids], schema) for ids in parts]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        write_ids(Path(name) / "ids", [n for ids in parts for n in ids])
        patch.setattr(id_files, "_BATCH", 3)
        write_keys(Path(name) / "keys", tables)
        text = (Path(name) / "keys").read_text()
        assert text == (Path(name) / "ids").read_text()
    assert [parse(line) for line in text.splitlines()] == sorted({n for ids in parts for n in ids})
