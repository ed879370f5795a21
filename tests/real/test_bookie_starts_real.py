"""What real bookies do with damaged folders, by the cookie in the store and by their settings; the page has the table.

One bookie lived and wrote; each case has a copy of its folders under another id, all in one JVM.
"""

import base64
import shutil
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from reconcile.plan.bookie_starts import (
    BookieSource,
    KnownBookie,
    StoredCookie,
    choose_cookie,
    decide_start,
    hash_cookie,
)
from recovery.codecs import cookie as cookie_codec
from tests.support import paths
from tests.support.cluster import Bookie, Cluster, ClusterError, History
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("bookie starts")]


class Folders(StrEnum):
    """What became of a bookie's folders, of which there are a journal and two ledger folders."""

    ALL = "all are there"
    MISSING = "one ledger folder is missing"
    EMPTY = "one ledger folder is empty"
    ALL_EMPTY = "all are empty"
    NO_JOURNAL = "the journal folder is missing"


class Setting(StrEnum):
    """What its configuration says."""

    OFF = "both off"
    EXPANDS = "`allowStorageExpansion`"
    STAMPS = "`dataIntegrityChecking`, `dataIntegrityStampMissingCookies`"


class Outcome(StrEnum):
    """What it did."""

    REFUSES = "refuses"
    STARTS = "starts"
    STAMPS = "**starts**, stamps"
    ENDS = "**stamps**, then ends"
    """It took the folders for new, and then its replay mark names a journal that is gone."""


STORED: Final = {StoredCookie.OWN: "its own", StoredCookie.NONE: "none", StoredCookie.BLOCKING: "a blocking one"}
PROPS: Final = {
    Setting.OFF: {},
    Setting.EXPANDS: {"allowStorageExpansion": "true"},
    Setting.STAMPS: {"dataIntegrityChecking": "true", "dataIntegrityStampMissingCookies": "true"},
}


_LIVES: Final = 20
_CHECKED: Final = ("FULL_CHECK_COMPLETE", "FULL_CHECK_ERROR")
"""What its last line says; the next check begins after three seconds."""


class Starts:
    """The JVM, and the folders of a bookie that wrote a ledger."""

    def __init__(self, home: Path, cluster: Cluster) -> None:
        self._home, self._cluster, self._number = home, cluster, 0
        history = History(cluster)
        history.bookie(0, "db", folders=2)
        marks = [home / f"bookies/b0/ledgers{k}/current/lastMark" for k in range(2)]
        # A young bookie may end before its replay mark names a journal.
        for _ in range(_LIVES):
            ledger = history.create((1, 1, 1), digest="CRC32C", password=b"")
            history.add(ledger, [100] * 5)
            history.close(ledger)
            cluster("flush")
            history.down(0)
            if all(any(mark.read_bytes()) for mark in marks):
                break
            history.up(0)
        self._root = history.root

    def see(self, folders: Folders, stored: StoredCookie, setting: Setting) -> Outcome:
        """Start a copy of the bookie whose folders are in a state; return what it does, and compare what is said."""
        self._number += 1
        bookie, own = self._copy()
        known = self._harm(folders, bookie, own, setting)
        path = f"{self._root}/cookies/{bookie.id}"
        raw = {
            StoredCookie.OWN: own,
            StoredCookie.NONE: None,
            StoredCookie.BLOCKING: choose_cookie(known, None, cookie_codec.decode(own).instance_id),
        }[stored]
        if raw is not None:
            self._cluster("zk_put", nodes=[{"path": path, "data": base64.b64encode(raw).decode()}])
        before = self._list_stamps(bookie)
        outcome = self._start(replace(bookie, props=PROPS[setting]))
        after = self._cluster.nodes(path)
        is_same = (base64.b64decode(after[path]["data"]) if after else None) == raw
        if outcome is Outcome.STARTS and not (is_same and self._list_stamps(bookie) == before):
            outcome = Outcome.STAMPS
        assert outcome is not Outcome.REFUSES or is_same
        assert outcome is not Outcome.ENDS or None in before
        assert outcome is not Outcome.ENDS or None not in self._list_stamps(bookie)
        self._compare(known, stored, outcome)
        return outcome

    def _copy(self) -> tuple[Bookie, bytes]:
        n = self._number
        base = f"bookies/b{n}"
        shutil.copytree(self._home / "bookies/b0", self._home / base)
        bookie = Bookie(n, f"10.0.{n}.1:3181", "db", [f"{base}/journal0"], [f"{base}/ledgers0", f"{base}/ledgers1"])
        own = b""
        for folder in (*bookie.journals, *bookie.ledgers):
            file = self._home / folder / "current/VERSION"
            own = file.read_bytes().replace(b"bookies/b0/", f"{base}/".encode())
            own = own.replace(b"10.0.0.1:3181", bookie.id.encode())
            file.write_bytes(own)
        return bookie, own

    def _harm(self, folders: Folders, bookie: Bookie, own: bytes, setting: Setting) -> KnownBookie:
        gone = {
            Folders.ALL: [],
            Folders.MISSING: [bookie.ledgers[1]],
            Folders.EMPTY: [bookie.ledgers[1]],
            Folders.ALL_EMPTY: [*bookie.journals, *bookie.ledgers],
            Folders.NO_JOURNAL: list(bookie.journals),
        }[folders]
        for folder in gone:
            shutil.rmtree(self._home / folder)
            if folders in (Folders.EMPTY, Folders.ALL_EMPTY):
                (self._home / folder).mkdir()
        return KnownBookie(
            bookie.id,
            BookieSource.DISKS,
            complete=not gone,
            missing=tuple(gone),
            is_only_journals=folders is Folders.NO_JOURNAL,
            expands_storage=setting is Setting.EXPANDS,
            stamps_cookies=setting is Setting.STAMPS,
            cookie=hash_cookie(own),
        )

    def _list_stamps(self, bookie: Bookie) -> list[bytes | None]:
        files = [self._home / folder / "current/VERSION" for folder in (*bookie.journals, *bookie.ledgers)]
        return [file.read_bytes() if file.exists() else None for file in files]

    def _await_check(self, logged: int) -> None:
        """Wait until a bookie has checked its data for now: a RocksDB that is read while it closes ends the JVM.

        Args:
            logged: characters of the log before it started.
        """
        log = self._home.with_name(f"{self._home.name}.log")
        if "PREBOOT_START" in log.read_text()[logged:]:
            until(lambda: any(end in log.read_text()[logged:] for end in _CHECKED), "the check ends")

    def _start(self, bookie: Bookie) -> Outcome:
        logged = len(self._home.with_name(f"{self._home.name}.log").read_text())
        try:
            self._cluster.start(bookie)
            if bookie.props == PROPS[Setting.STAMPS]:
                self._await_check(logged)
        except ClusterError as error:
            if "the bookie did not start" in str(error):
                return Outcome.ENDS
            if "InvalidCookie" not in str(error):
                raise
            return Outcome.REFUSES
        self._cluster("bookie_stop", n=bookie.n)
        return Outcome.STARTS

    @staticmethod
    def _compare(known: KnownBookie, stored: StoredCookie, outcome: Outcome) -> None:
        """What the program says of such a bookie is what it does."""
        start = decide_start(known, stored)
        assert start.may_start == (outcome is Outcome.STARTS), start
        assert not start.is_kept_out or outcome is Outcome.REFUSES, start


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starts]:
    """Give the JVM with what its bookie left."""
    home = tmp_path_factory.mktemp("starts") / "home"
    with Cluster(home) as cluster:
        yield Starts(home, cluster)


@pytest.mark.parametrize(("folders", "stored"), list(product(Folders, STORED)))
def test_a_bookie_does_what_the_page_says(folders: Folders, stored: StoredCookie, starts: Starts) -> None:
    """A row of the table in the page, seen; and nothing of it contradicts what `decide_start` says."""
    seen = [starts.see(folders, stored, setting) for setting in Setting]
    row = " | ".join([folders, STORED[stored], *seen])
    assert f"| {row} |" in (paths.ROOT / "docs/operations/bookies.md").read_text().splitlines()
