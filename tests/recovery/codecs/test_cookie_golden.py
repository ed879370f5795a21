"""Cookies: the worked example byte for byte, and every VERSION file of the real disks."""

import pytest

from recovery.codecs import cookie
from recovery.codecs.cookie import Cookie
from tests.support import bookie_files
from tests.support.cases import NAMES, truth

EXAMPLE = rb"""5
bookieHost: "10.0.0.1:3181"
journalDir: "/j1,/j2"
ledgerDirs: "2\t/d1\t/d2"
instanceId: "f9d5e9b1-77e6-4c9b-8c5e-2ac0d4a7f1aa"
indexDirs: "2\t/i1\t/i2"
"""


def test_the_worked_example() -> None:
    """A cookie of layout 5 is made and read."""
    value = Cookie(
        layout_version=5,
        bookie_id="10.0.0.1:3181",
        journal_dirs=("/j1", "/j2"),
        ledger_dirs=("/d1", "/d2"),
        index_dirs=("/i1", "/i2"),
        instance_id="f9d5e9b1-77e6-4c9b-8c5e-2ac0d4a7f1aa",
    )
    assert cookie.decode(EXAMPLE) == value
    assert cookie.encode(value) == EXAMPLE


@pytest.mark.parametrize("case", NAMES)
def test_every_real_cookie_is_made_again(case: str) -> None:
    """Each VERSION file re-encodes to its own bytes, and says what is known of its bookie."""
    bookies = {bookie["id"]: bookie for bookie in truth(case)["bookies"]}
    paths = bookie_files.cookies(case)
    assert paths
    for path in paths:
        raw = path.read_bytes()
        value = cookie.decode(raw)
        assert cookie.encode(value) == raw
        known = bookies[value.bookie_id]
        assert list(value.journal_dirs) == known["journals"]
        assert list(value.ledger_dirs) == known["ledgers"]
        assert value.index_dirs == (tuple(known["indexes"]) if known["indexes"] else None)
        assert value.instance_id == truth(case)["instance_id"]
