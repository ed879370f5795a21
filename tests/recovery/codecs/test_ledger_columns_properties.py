"""Columns of many records, read at once where they are of the usual form, say what the record codec says of each."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from recovery.codecs import ledger_columns, ledger_metadata
from recovery.model.metadata import LedgerMetadata
from tests.recovery.codecs.test_ledger_metadata_properties import ledgers


@st.composite
def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    """A record with bytes changed, put in, or taken out; or as it was."""
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, max(0, len(raw) - 1)))
        match draw(st.sampled_from(["change", "insert", "cut", "drop"])):
            case "change":
                raw = raw[:at] + draw(st.binary(min_size=1, max_size=1)) + raw[at + 1 :]
            case "insert":
                raw = raw[:at] + draw(st.binary(min_size=1, max_size=3)) + raw[at:]
            case "cut":
                raw = raw[:at]
            case _:
                raw = raw[:at] + raw[at + 1 :]
    return raw


@given(st.lists(ledgers(), max_size=5), st.data())
def test_many_at_once_say_what_each_alone_says(metadata: list[LedgerMetadata], data: st.DataObject) -> None:
    """Records of every format, damaged ones and bytes that are none between them, in any order and as a slice."""
    raws: list[bytes | None] = [data.draw(damaged(ledger_metadata.encode(one))) for one in metadata]
    raws += data.draw(st.lists(st.one_of(st.none(), st.binary(max_size=60)), max_size=2))
    raws = data.draw(st.permutations(raws))
    padded = pa.array([b"before", *raws], pa.binary()).slice(1)
    found = ledger_metadata.decode_columns(padded)
    found.validate(full=True)
    assert found.equals(ledger_metadata._decode_each(pa.array(raws, pa.binary())))


@given(ledgers())
def test_the_usual_form_is_read_at_once(metadata: LedgerMetadata) -> None:
    """What BookKeeper writes in format 3 is not left to the slow way."""
    usual = metadata.format == 3 and metadata.password is not None and not metadata.unknown
    if usual and metadata.ack_quorum > 0:
        assert ledger_columns.read(pa.array([ledger_metadata.encode(metadata)], pa.binary())).good.all()
