"""Records that Pulsar's own code wrote: topics, subscriptions, schemas, in each way in which they are compressed."""

import base64
import json
import struct
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.codecs import managed_ledger
from recovery.codecs._pb.managed_ledger_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from recovery.codecs.managed_ledger import Cursor, Listed, ManagedLedger, append_ledgers, decode, decode_schema
from recovery.errors import FormatError, Reason
from tests.support.cases import DATA

FOLDER: Final = DATA.parent / "pulsar"
TOPICS: Final = "/managed-ledgers/"


def records(path: Path = FOLDER / "records.jsonl") -> dict[str, bytes]:
    """Each record of Pulsar by its path."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["path"]: base64.b64decode(line["raw"]) for line in lines}


def truth() -> dict[str, Any]:
    """What the managed ledgers said of themselves."""
    facts: dict[str, Any] = json.loads((FOLDER / "truth.json").read_text())
    return facts


def test_a_topic_is_read_as_pulsar_knows_it() -> None:
    """Each ledger with its last entry and length, of a topic that was ended the last one; however it is compressed."""
    raws = records()
    topics = {name: said for name, said in truth().items() if "/" in name and said.get("ledgers")}
    assert {raw[:2] for path, raw in raws.items() if "kept" in path} >= {struct.pack(">H", managed_ledger.MAGIC)}
    assert len(topics) == 7
    for name, said in topics.items():
        wanted = tuple(Listed(one["ledger"], one.get("last_entry"), one.get("length")) for one in said["ledgers"])
        assert decode(raws[TOPICS + name]) == ManagedLedger(wanted, is_ended=name.endswith("/ended")), name


def test_a_subscription_names_the_ledger_of_its_state() -> None:
    """However it is compressed; one whose state stands in the record itself names none."""
    cursors = {path: decode(raw) for path, raw in records().items() if path.endswith("/subscription")}
    assert len(cursors) == 7
    assert all(isinstance(one, Cursor) for one in cursors.values())
    without = [path for path, one in cursors.items() if isinstance(one, Cursor) and not one.ledgers]
    assert without == [f"{TOPICS}public/default/persistent/ended/subscription"]


def test_a_schema_names_the_ledger_of_each_version() -> None:
    """As the broker's own class wrote it."""
    assert decode_schema(records()["/schemas/public/default/kept-none"]) == (truth()["schema"],)


def test_what_else_a_record_says_of_its_ledgers() -> None:
    """Offloaded and deleted here; compaction's and delayed delivery's; an empty record lists nothing."""
    message = ManagedLedgerInfo()
    message.ledgerInfo.add(ledgerId=7, entries=10, size=99, timestamp=1).offloadContext.bookkeeperDeleted = True
    assert decode(message.SerializeToString()) == ManagedLedger((Listed(7, 9, 99, deleted=True),))
    cursor = ManagedCursorInfo(cursorsLedgerId=3, markDeleteLedgerId=5, markDeleteEntryId=-1)
    cursor.properties.add(name="CompactedTopicLedger", value=12)
    cursor.cursorProperties.add(name="#pulsar.internal.delayed.bucket_1_9", value="15")
    cursor.cursorProperties.add(name="mine", value="16")
    assert decode(cursor.SerializeToString()) == Cursor(
        ((3, "cursor"), (12, "compacted topic of"), (15, "delayed delivery of")), (5, -1)
    )
    assert decode(b"") == ManagedLedger(())


def test_a_ledger_that_a_record_names_often_is_listed_once() -> None:
    """Its last mention counts, as for a broker."""
    message = ManagedLedgerInfo()
    for entries in range(1, 200_001):
        message.ledgerInfo.add(ledgerId=7, entries=entries, size=1, timestamp=1)
    message.ledgerInfo.add(ledgerId=8)
    assert decode(message.SerializeToString()) == ManagedLedger((Listed(7, 199_999, 1), Listed(8)))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"hello", Reason.BAD_MAGIC),
        (b"\x0a\xff", Reason.BAD_VALUE),
        (b"\x0a\x0b\x08" + b"\xff" * 9 + b"\x01", Reason.BAD_VALUE),
        (b"\x47\x78\x00\x00\x00\x09\x08", Reason.BAD_LENGTH),
        (b"\x47\x78\x00\x00\x00\x04\x08\x09\x10\x24abc", Reason.BAD_VERSION),
        (b"\x47\x78\x00\x00\x00\x04\x08\x02\x10\x24abc", Reason.BAD_VALUE),
        (b"\x47\x78\x00\x00\x00\x04\x08\x00\x10\x24abc", Reason.BAD_LENGTH),
        (b"\x47\x78\x00\x00\x00\x09\x08\x01\x10\xff\xff\xff\xff\x07\x00abc", Reason.BAD_VALUE),
    ],
)
def test_what_is_no_record_is_refused_by_name(raw: bytes, reason: Reason) -> None:
    """With the reason, and never by reserving what a forged size asks for."""
    with pytest.raises(FormatError) as caught:
        decode(raw)
    assert caught.value.reason is reason


@given(st.binary(max_size=80), st.sampled_from(sorted(records())), st.data())
def test_any_bytes_are_a_record_or_refused(raw: bytes, name: str, data: st.DataObject) -> None:
    """Arbitrary ones, and real ones with a stretch replaced."""
    real = records()[name]
    at = data.draw(st.integers(0, len(real)))
    for given_ in (raw, real[:at] + raw + real[at + data.draw(st.integers(0, 8)) :]):
        for parse in (decode, decode_schema):
            try:
                parse(given_)
            except FormatError:
                continue


def test_ledgers_are_appended_behind_the_last_one_which_gets_its_end() -> None:
    """However the record was compressed; what nobody here knows of it, such as properties, stays; offloads stay."""
    extra = b"\x2a\x08\x0a\x01a\x12\x03old"  # a field that this program does not know
    for path, raw in records().items():
        record = decode(raw) if path.startswith(TOPICS) else None
        ended = ManagedLedgerInfo()
        if not isinstance(record, ManagedLedger) or not record.ledgers:
            continue
        ended.ParseFromString(managed_ledger._decompress(raw))
        if ended.HasField("terminatedPosition"):
            with pytest.raises(ValueError, match="ended"):
                append_ledgers(raw, [], 7)
            continue
        last = record.ledgers[-1].ledger
        closed = [Listed(last, 4, 400), Listed(last + 3, 9, 900), Listed(last + 5, -1, 0)]
        made = append_ledgers(managed_ledger._decompress(raw) + extra, closed, 1_700_000_000_000)
        assert decode(made) == ManagedLedger((*record.ledgers[:-1], *closed))
        assert made.endswith(extra)
        known = ManagedLedgerInfo()
        known.ParseFromString(made)
        assert [info.offloadContext for info in known.ledgerInfo][: len(record.ledgers)] == [
            info.offloadContext for info in ended.ledgerInfo
        ]
        assert known.ledgerInfo[-1].timestamp == 1_700_000_000_000
        for wrong in (Listed(last - 1, 1, 1), Listed(last + 1), Listed(last + 1, 4)):
            with pytest.raises(ValueError, match=r"after|end"):
                append_ledgers(raw, [wrong], 7)
