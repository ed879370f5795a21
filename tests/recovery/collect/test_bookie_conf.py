"""The annotated examples in conf/ are files that the program takes, and say what it reads in them."""

from pathlib import Path

from reconcile.cli.options import read_names
from recovery.collect.disk.bookie_conf import parse_properties, read_conf
from tests.support import paths

CONF = paths.ROOT / "conf"


def test_the_example_of_expected_bookies_names_three() -> None:
    """Comments and empty lines are passed over; ids come as they stand."""
    assert read_names(CONF / "bookies.txt") == tuple(f"bk{n}.example.org:3181" for n in (1, 2, 3))


def test_the_example_of_a_bookies_configuration_names_every_key_that_is_read() -> None:
    """Each key of the example is taken, in its order."""
    found = read_conf(CONF / "bk_server.conf")
    assert found.ledger_dirs == (Path("/data/ledgers1"), Path("/data/ledgers2"))
    assert found.index_dirs == (Path("/data/index1"), Path("/data/index2"))
    assert found.journal_dirs == (Path("/data/journal1"), Path("/data/journal2"))
    assert found.bookie_id == "bk1.example.org:3181"
    keys = parse_properties((CONF / "bk_server.conf").read_text())
    assert sorted(keys) == ["bookieId", "indexDirectories", "journalDirectories", "ledgerDirectories"]


def test_every_example_is_tried_by_a_test() -> None:
    """A new file in conf/ needs a test that reads it by its name."""
    tests = [path.read_text() for path in (paths.ROOT / "tests").rglob("test_*.py")]
    assert [path.name for path in CONF.iterdir() if not any(f'"{path.name}"' in text for text in tests)] == []
