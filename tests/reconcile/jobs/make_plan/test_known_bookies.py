"""The cookies of a plan: every bookie that anything names gets one, and a blocking one gives way to its own."""

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reconcile.jobs.make_plan.known_bookies import list_wanted_cookies
from reconcile.jobs.make_plan.request import PlanRequest
from reconcile.jobs.make_plan.system_writes import SystemWrites, list_system_writes
from reconcile.plan.actions import LEAVE, Passwords, make_system_actions
from reconcile.plan.bookie_starts import BookieSource, KnownBookie, StoredCookie
from recovery.capture.live import capture
from recovery.codecs import cookie, store
from recovery.codecs.blocking_cookie import is_blocking, make_blocking
from recovery.codecs.cookie import Cookie
from recovery.codecs.store import Layout
from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.dataset import Dataset, DatasetWriter, open_dataset, read_inventories
from recovery.model.coverage import Coverage
from tests.simulation.bookie_dir import INSTANCE, BookieDir, make_bookie
from tests.support.cases import copy_of
from tests.support.scannable_store import ScannableMemory

ROOT = "/ledgers"
OF_SNAPSHOT = cookie.encode(Cookie(5, "earlier:1", ("/j",), ("/l",), None, INSTANCE))
OTHER = cookie.encode(Cookie(5, "other:1", ("/elsewhere",), ("/l",), None, INSTANCE))


def now() -> datetime:
    """The tests' clock."""
    return datetime(2030, 1, 1, tzinfo=UTC)


def collected(out: Path, made: BookieDir, **options: Any) -> Dataset:
    """Collect what is left of a bookie's folders."""
    ledgers, indexes, journals = (
        tuple(folder for folder in folders if folder.exists())
        for folders in (made.ledger_dirs, made.index_dirs, made.journal_dirs)
    )
    collect(CollectOptions(ledgers, indexes, journals, **options), out, now=now, progress=lambda _: None)
    return open_dataset(out, "inventory")


def captured(folder: Path, cookies: Mapping[str, bytes]) -> Dataset:
    """Return the catalog of a store with these cookies."""
    source = ScannableMemory()
    source.put(ROOT + store.LAYOUT, store.layout_bytes(Layout.HIERARCHICAL))
    for name, raw in cookies.items():
        source.put(f"{ROOT}{store.COOKIES}/{name}", raw)
    with DatasetWriter(folder, "catalog", binding={"root": ROOT}, secret=True) as out:
        capture(source, ROOT, None, out, clock=now)
    return open_dataset(folder, "catalog")


def version(made: BookieDir) -> bytes:
    """Return the cookie of a bookie's folders."""
    return (made.journal_dirs[0] / "current/VERSION").read_bytes()


def planned(
    inventories: tuple[Dataset, ...] = (),
    *,
    expected: tuple[str, ...] = (),
    live: Dataset | None = None,
    snapshots: tuple[Dataset, ...] = (),
    lost: tuple[str, ...] = (),
    aliases: Mapping[str, str] | None = None,
    with_cookies: bool = True,
) -> SystemWrites:
    """Return the writes of a plan that are of no ledger."""
    request = PlanRequest(
        inventories=inventories, live=live, snapshots=snapshots, layout=Layout.HIERARCHICAL, root=ROOT,
        passwords=Passwords.from_candidates([]), expected=expected, default_quorum=None,
        aliases=aliases or {},
    )  # fmt: skip
    bookies = read_inventories(inventories, "bookies")
    scanned = dict(zip(bookies["bookie"].to_pylist(), bookies["complete"].to_pylist(), strict=True))
    coverage = Coverage.count(scanned, {"expected": expected}).without_lost(lost)
    cookies = list_wanted_cookies(request, bookies, coverage, INSTANCE)
    return list_system_writes(request, bookies, {}, cookies, with_cookies=with_cookies)


def cookies_of(writes: SystemWrites) -> dict[str, tuple[str, bytes]]:
    """Return op and value of the write of each cookie, by bookie."""
    begin = f"{store.COOKIES}/"
    return {w.key.removeprefix(begin): (w.op, w.value) for w in writes.writes if w.key.startswith(begin)}


def known(writes: SystemWrites, bookie: str) -> KnownBookie:
    """Return what is known of a bookie."""
    (found,) = (one for one in writes.bookies if one.bookie == bookie)
    return found


def test_every_bookie_that_was_collected_gets_its_own_cookie(tmp_path: Path) -> None:
    """Read completely or not; what is missing of it is known, and what its configuration says."""
    whole = make_bookie(tmp_path / "a", {1: [0]}, bookie="a:1")
    harmed = make_bookie(tmp_path / "b", {1: [0]}, bookie="b:1", ledger_dirs=2)
    no_journal = make_bookie(tmp_path / "c", {1: [0]}, bookie="c:1", journal_dirs=2)
    empty = make_bookie(tmp_path / "d", {1: [0]}, bookie="d:1", ledger_dirs=2)
    shutil.rmtree(harmed.ledger_dirs[1])
    shutil.rmtree(no_journal.journal_dirs[1])
    shutil.rmtree(empty.ledger_dirs[1] / "current")
    found = planned(
        (
            collected(tmp_path / "inv-a", whole),
            collected(tmp_path / "inv-b", harmed, expands_storage=False, stamps_cookies=False),
            collected(tmp_path / "inv-c", no_journal),
            collected(tmp_path / "inv-d", empty),
        )
    )
    made = {"a:1": whole, "b:1": harmed, "c:1": no_journal, "d:1": empty}
    assert cookies_of(found) == {name: ("create", version(folders)) for name, folders in made.items()}
    assert {one.planned for one in found.bookies} == {StoredCookie.OWN}
    assert known(found, "a:1").complete
    assert known(found, "a:1").missing == ()
    b = known(found, "b:1")
    assert (b.source, b.missing, b.is_only_journals) == (BookieSource.DISKS, (str(harmed.ledger_dirs[1]),), False)
    assert (b.expands_storage, b.stamps_cookies) == (False, False)
    c = known(found, "c:1")
    assert (c.missing, c.is_only_journals, c.expands_storage) == ((str(no_journal.journal_dirs[1]),), True, None)
    assert known(found, "d:1").missing == (str(empty.ledger_dirs[1]),)


def test_where_its_own_cookie_protects_nothing_a_bookie_gets_a_blocking_one(tmp_path: Path) -> None:
    """Its journal is gone and would be stamped; or a database of its index is gone, and every VERSION is there."""
    no_journal = make_bookie(tmp_path / "a", {1: [0]}, bookie="a:1")
    shutil.rmtree(no_journal.journal_dirs[0])
    real = copy_of("c03-clean-db", tmp_path / "real") / "bookies/b0"
    no_index = BookieDir((real / "ledgers",), (), (real / "journal",))
    shutil.rmtree(real / "ledgers/current/locations")
    of_real = collected(tmp_path / "inv-b", no_index)
    found = planned((collected(tmp_path / "inv-a", no_journal, expands_storage=True), of_real))
    (name,) = of_real.read("bookies")["bookie"].to_pylist()
    assert (known(found, name).is_index_gone, known(found, name).missing) == (True, ())
    for bookie in ("a:1", name):
        op, raw = cookies_of(found)[bookie]
        assert (op, is_blocking(raw), cookie.decode(raw).bookie_id) == ("create", True, bookie)
        assert known(found, bookie).planned is StoredCookie.BLOCKING
    # What is given up needs no protection.
    assert cookies_of(planned((of_real,), lost=(name,)))[name] == ("create", version(no_index))


def test_a_bookie_that_was_not_collected_gets_what_names_it(tmp_path: Path) -> None:
    """The cookie of the newest snapshot, under any name of the bookie; without a readable one a blocking one."""
    snapshot = captured(tmp_path / "snapshot", {"alias:1": OF_SNAPSHOT, "damaged:1": b"5\nbookie", "other:2": OTHER})
    found = planned(
        expected=("earlier:1", "unknown:1", "damaged:1", "other:2", "not an id"),
        snapshots=(snapshot,),
        aliases={"alias:1": "earlier:1"},
        lost=("unknown:1",),
    )
    made = cookies_of(found)
    assert made.keys() == {"earlier:1", "unknown:1", "damaged:1", "other:2"}
    assert made["earlier:1"] == ("create", OF_SNAPSHOT)
    for name in ("unknown:1", "damaged:1", "other:2"):
        assert is_blocking(made[name][1])
        assert (cookie.decode(made[name][1]).bookie_id, cookie.decode(made[name][1]).instance_id) == (name, INSTANCE)
    assert (known(found, "unknown:1").lost, known(found, "unknown:1").source) == (True, BookieSource.NAME)
    assert known(found, "earlier:1").planned is StoredCookie.OWN


@pytest.mark.parametrize("with_cookies", [True, False])
def test_a_cookie_that_the_store_has_stays_but_a_blocking_one(tmp_path: Path, *, with_cookies: bool) -> None:
    """That is replaced by its own, by its version; another one only where a person says so."""
    made = {name: make_bookie(tmp_path / name, {1: [0]}, bookie=f"{name}:1") for name in ("a", "b", "c")}
    inventories = tuple(collected(tmp_path / f"inv-{name}", one) for name, one in made.items())
    blocking = make_blocking("a:1", INSTANCE, None)
    live = captured(
        tmp_path / "live",
        {"a:1": blocking, "b:1": OTHER, "c:1": version(made["c"]), "d:1": OF_SNAPSHOT, "e:1": blocking},
    )
    found = planned(inventories, expected=("d:1", "e:1"), live=live, with_cookies=with_cookies)
    states = {one.bookie: one.planned for one in found.bookies}
    assert states == {
        "a:1": StoredCookie.OWN if with_cookies else StoredCookie.BLOCKING,
        "b:1": StoredCookie.OTHER,
        "c:1": StoredCookie.OWN,
        "d:1": StoredCookie.OTHER,
        "e:1": StoredCookie.BLOCKING,
    }
    assert {one.bookie: one.stored for one in found.bookies} == states | {"a:1": StoredCookie.BLOCKING}
    if not with_cookies:
        assert cookies_of(found) == {}
        return
    assert cookies_of(found) == {"a:1": ("replace", version(made["a"])), "b:1": (LEAVE, version(made["b"]))}
    (replaced,) = (row for row in make_system_actions(found.writes).to_pylist() if row["op"] == "replace")
    assert (replaced["before"], replaced["expects"]) == (blocking, 0)
