"""Preflight's look at ledgers that could not lose one more bookie."""

from datetime import UTC, datetime

import pytest

from backends.protocols import Write
from reconcile.check.preflight import checks as preflight
from reconcile.check.preflight.report import PreflightLevel, Report
from recovery.codecs.ledger_record import encode
from recovery.codecs.store import Layout, layout_bytes, ledger_key
from recovery.errors import InputError
from recovery.model.ids import LedgerId
from recovery.model.metadata import Digest, LedgerMetadata, LedgerState, Segment
from tests.support.memory_store import MemoryStore

ROOT = "/ledgers"
BOOKIES = ("b1", "b2", "b3")


def make_record(*members: str) -> bytes:
    """A closed ledger with ten entries on all of its members."""
    count = len(members)
    segments = (Segment(0, members),)
    return encode(LedgerMetadata(3, count, count, 1, LedgerState.CLOSED, 9, 1000, segments, Digest.CRC32C, b"pw", 1))


def look(
    registered: tuple[str, ...],
    *,
    read_only: tuple[str, ...] = (),
    name: str = "b1",
    aliases: dict[str, str] | None = None,
) -> Report:
    """Look at a store of three bookies, some of them registered; the first has another name in records."""
    records = {1: make_record(name, "b2"), 2: make_record("b2", "b3"), 3: make_record("b1"), 4: b"no record"}
    nodes = {"/LAYOUT": layout_bytes(Layout.HIERARCHICAL), "/INSTANCEID": b"one", "/available/readonly": b""}
    nodes |= {f"/cookies/{cookie}": b"" for cookie in (name, *BOOKIES[1:])}
    nodes |= {ledger_key(Layout.HIERARCHICAL, LedgerId(0, number)): raw for number, raw in records.items()}
    store = MemoryStore()
    store.write([Write(ROOT + key, value) for key, value in nodes.items()])
    for owner, bookie in enumerate(registered, 1):
        folder = "available/readonly" if bookie in read_only else "available"
        store.put_ephemeral(f"{ROOT}/{folder}/{bookie}", b"", owner)
    return preflight.examine(store, ROOT, None, [], [], now=datetime(2026, 1, 1, tzinfo=UTC), aliases=aliases)


def list_warnings(report: Report) -> list[str]:
    """What is said of it."""
    return [
        finding.text
        for finding in report.remarks
        if finding.subject == "margin" and finding.level is PreflightLevel.WARNING
    ]


def test_nothing_is_said_where_every_entry_has_two_registered_bookies() -> None:
    """A ledger that was written to one bookie, and a record that cannot be read, are no reason either."""
    assert list_warnings(look(BOOKIES)) == []
    assert list_warnings(look(BOOKIES, read_only=("b2",))) == []


def test_a_ledger_that_one_registered_bookie_alone_has_is_a_warning() -> None:
    """With the first bookie away the ledger on it and the second could not lose that one, too."""
    [text] = list_warnings(look(("b2", "b3")))
    assert text.startswith("1 of 3 ledgers checked (1) have entries that only one registered bookie has")


def test_nothing_is_said_where_no_bookie_is_registered() -> None:
    """Bookies that are stopped on purpose, as a restore wants it."""
    assert list_warnings(look(())) == []


def test_a_bookie_that_records_name_otherwise_is_known_by_its_alias() -> None:
    """Without it a ledger looks thin, and a bookie seems to be missing; a name that is registered itself is refused."""
    assert len(list_warnings(look(BOOKIES, name="old:1"))) == 1
    known = look(BOOKIES, name="old:1", aliases={"old:1": "b1"})
    assert list_warnings(known) == []
    assert [bookie.id for bookie in known.bookies] == [*BOOKIES]
    with pytest.raises(InputError, match="b2"):
        look(BOOKIES, aliases={"b2": "b1"})
