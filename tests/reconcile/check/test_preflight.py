"""What preflight makes of a store and of inventories: every state that loses data is CRITICAL, doubt is not health."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backends.errors import AccessDeniedError
from backends.protocols import MetadataStore, Write
from reconcile.check.preflight import checks as preflight
from reconcile.check.preflight.gc_settings import BookieSettings, UnreadSettings, settings_of
from reconcile.check.preflight.report import PreflightLevel, Report, stop_order
from reconcile.findings.categories import TRAITS, Category
from reconcile.write.freezing import freeze
from recovery.codecs.store import Layout, layout_bytes, ledger_key
from recovery.dataset import Dataset, open_dataset
from recovery.model.ids import LedgerId
from tests.support.inventories import write_inventory
from tests.support.memory_store import MemoryStore

ROOT = "/ledgers"
NOW = datetime(2026, 6, 1, tzinfo=UTC)
LONG_AGO = datetime(2024, 6, 1, tzinfo=UTC)
OURS = "digest:tool:aGFzaA=="


def ms(at: datetime) -> int:
    """Return a time as stores have it."""
    return int(at.timestamp() * 1000)


def cluster(
    ledgers: Sequence[int],
    *,
    made: datetime = LONG_AGO,
    bookies: Sequence[str] = ("b1", "b2"),
    instance: str | None = "one",
    layout: Layout | None = Layout.HIERARCHICAL,
) -> MemoryStore:
    """A store as a running cluster has it."""
    store = MemoryStore(lambda: ms(made))
    nodes = {"/available/readonly": b"", "/idgen": b"", "/underreplication/ledgers": b""}
    if layout is not None:
        nodes["/LAYOUT"] = layout_bytes(layout)
    if instance is not None:
        nodes["/INSTANCEID"] = instance.encode()
    nodes |= {f"/cookies/{bookie}": b"" for bookie in bookies}
    nodes |= {ledger_key(layout or Layout.HIERARCHICAL, LedgerId(0, ledger)): b"" for ledger in ledgers}
    store.write([Write(ROOT + key, value) for key, value in nodes.items()])
    for owner, bookie in enumerate(bookies, 1):
        store.put_ephemeral(f"{ROOT}/available/{bookie}", b"", owner)
    return store


@pytest.fixture
def inventories(tmp_path: Path) -> list[Dataset]:
    """Two bookies that hold a hundred ledgers between them."""
    held = {"b1": range(60), "b2": range(40, 100)}
    return [
        open_dataset(
            write_inventory(
                tmp_path / bookie,
                bookie,
                ledgers,
                instance="one",
                formatted=[LONG_AGO + timedelta(hours=1)],
                ended=NOW - timedelta(hours=1),
            ),
            "inventory",
        )
        for bookie, ledgers in held.items()
    ]


def examined(
    store: MetadataStore,
    inventories: Sequence[Dataset] = (),
    settings: Sequence[BookieSettings | UnreadSettings] = (),
    named: Layout | None = None,
) -> Report:
    """Examine as of now."""
    return preflight.examine(store, ROOT, named, inventories, settings, now=NOW)


def levels(report: Report) -> dict[str, PreflightLevel]:
    """Return the worst level of each subject; findings come the worst first."""
    found: dict[str, PreflightLevel] = {}
    for finding in report.remarks:
        found.setdefault(finding.subject, finding.level)
    return found


def freeze_it(store: MemoryStore) -> None:
    """Take the rights, as freeze does."""
    for change in freeze.propose_freeze(store, ROOT, OURS).changes:
        key = ROOT if change.key == "/" else ROOT + change.key
        if change.before is None:
            store.write([Write(key, b"", acl=change.after)])
        else:
            store.set_acl(key, str(change.after), expected=0)
    store.write([Write(f"{ROOT}/underreplication/disable", b"")])


def test_a_healthy_cluster_is_ok(inventories: list[Dataset]) -> None:
    """Everything that the bookies hold is listed, and every bookie was looked at: OK, nothing undecided."""
    report = examined(cluster(range(100)), inventories)
    assert (report.level, report.undecided) == (PreflightLevel.OK, False)
    assert report.counts == {
        "ledgers_listed": 100,
        "ledgers_on_bookies": 100,
        "ledgers_absent": 0,
        "bookies_registered": 2,
        "cookies": 2,
    }
    assert report.coverage.scanned == ("b1", "b2")


@pytest.mark.parametrize("left", [0, 3, 50, 89])
def test_a_store_that_lists_much_less_than_bookies_hold(inventories: list[Dataset], left: int) -> None:
    """Empty, nearly empty or a tenth short: CRITICAL, with the numbers and who can delete."""
    report = examined(cluster(range(left)), inventories)
    [first, *_] = report.remarks
    assert (first.level, first.subject) == (PreflightLevel.CRITICAL, "ledgers")
    assert "b1, b2 can delete them now" in first.text
    assert report.counts["ledgers_absent"] == 100 - left
    assert ("EMPTY" in first.text) == (left == 0)


def test_a_few_without_a_record_are_a_warning(inventories: list[Dataset]) -> None:
    """Garbage that waits for its collection looks like a small loss: both are said."""
    report = examined(cluster(range(95)), inventories)
    assert report.level is PreflightLevel.WARNING
    assert "5 of 100" in report.remarks[0].text
    assert "95, 96, 97" in report.remarks[0].text


def test_an_emptied_store_is_critical_without_any_registered_bookie(inventories: list[Dataset]) -> None:
    """A bookie may run without its registration: nobody registered is no reassurance."""
    store = cluster((), bookies=())
    report = examined(store, inventories)
    assert report.level is PreflightLevel.CRITICAL
    assert any("no bookie is registered" in finding.text for finding in report.remarks)


def test_a_frozen_store_is_no_longer_critical(inventories: list[Dataset]) -> None:
    """Frozen, what has no record cannot be listed away: a WARNING that says so."""
    store = cluster(())
    freeze_it(store)
    report = examined(store, inventories)
    assert report.level is PreflightLevel.WARNING
    assert report.freeze is not None
    assert report.freeze.frozen
    assert "it is frozen" in report.remarks[0].text


def test_half_a_freeze_is_no_freeze(inventories: list[Dataset]) -> None:
    """With the listing open again it is CRITICAL as before, and the hole is named."""
    store = cluster(())
    freeze_it(store)
    held = store.get_acl(f"{ROOT}/00")
    assert held is not None
    store.set_acl(f"{ROOT}/00", "world:anyone:cdrwa", expected=held.version)
    report = examined(store, inventories)
    assert report.level is PreflightLevel.CRITICAL
    assert any("/00 is open to world:anyone" in finding.text for finding in report.remarks)


def test_a_missing_root(inventories: list[Dataset]) -> None:
    """No root: CRITICAL, since some drivers take that for empty; with what the bookies hold."""
    report = examined(MemoryStore(), inventories)
    assert (report.level, report.root) == (PreflightLevel.CRITICAL, "missing")
    assert "100 ledgers" in report.remarks[0].text
    assert {bookie.id for bookie in report.bookies} == {"b1", "b2"}


def test_another_cluster_s_store(inventories: list[Dataset]) -> None:
    """An instance id that the bookies do not have: CRITICAL, even where it lists as many ledgers."""
    report = examined(cluster(range(100), instance="two"), inventories)
    assert levels(report)["instance"] is PreflightLevel.CRITICAL
    assert "of cluster two, and b1, b2 of one" in report.remarks[0].text


def test_nodes_younger_than_the_bookies(inventories: list[Dataset]) -> None:
    """Nodes created after bookies were formatted are said to be; with the bookies' own instance id a restore made them.

    Who initialises a cluster again gives it another instance id.
    """
    for instance, level in (("one", PreflightLevel.OK), ("two", PreflightLevel.WARNING)):
        report = examined(cluster(range(100), made=NOW - timedelta(days=30), instance=instance), inventories)
        said = [f for f in report.remarks if "was made again" in f.text]
        assert [(f.subject, f.level) for f in said] == [("instance", level), ("layout", level)]
        assert all("2024-06-01T01:00:00+00:00" in f.text for f in said)
        assert (report.level is PreflightLevel.OK) == (level is PreflightLevel.OK)


def test_without_inventories_nothing_is_ok() -> None:
    """A store that looks healthy is undecided until it is compared with disks; a young one is a warning.

    An empty one is critical where bookies are registered of which nobody knows what they hold, else a warning.
    """
    report = examined(cluster(range(100)))
    assert (report.level, report.undecided) == (PreflightLevel.UNDECIDED, True)
    young = examined(cluster(range(100), made=NOW - timedelta(hours=2)))
    assert levels(young)["instance"] is PreflightLevel.WARNING
    empty = cluster(())
    assert levels(examined(empty))["ledgers"] is PreflightLevel.CRITICAL
    assert "b1, b2 can delete" in examined(empty).remarks[0].text
    assert levels(examined(cluster((), bookies=())))["ledgers"] is PreflightLevel.WARNING
    freeze_it(empty)
    assert levels(examined(empty))["ledgers"] is PreflightLevel.WARNING


def test_an_empty_store_is_critical_to_a_bookie_that_was_not_looked_at(tmp_path: Path) -> None:
    """One bookie was collected and holds nothing; of another, registered one nobody knows what it holds."""
    path = write_inventory(tmp_path / "b1", "b1", (), instance="one", ended=NOW - timedelta(hours=1))
    report = examined(cluster(()), [open_dataset(path, "inventory")])
    assert report.level is PreflightLevel.CRITICAL
    assert "b2 can delete" in report.remarks[0].text
    alone = examined(cluster((), bookies=("b1",)), [open_dataset(path, "inventory")])
    assert levels(alone)["ledgers"] is PreflightLevel.OK


def test_bookies_that_were_not_looked_at_are_named(inventories: list[Dataset]) -> None:
    """A bookie with a registration or a cookie and without an inventory keeps it from being OK."""
    report = examined(cluster(range(100), bookies=("b1", "b2", "b3")), inventories)
    assert report.level is PreflightLevel.UNDECIDED
    assert report.coverage.not_scanned == ("b3",)


@pytest.mark.parametrize(
    ("layout", "instance", "subject"), [(None, "one", "layout"), (Layout.HIERARCHICAL, None, "instance")]
)
def test_nodes_that_are_missing(
    inventories: list[Dataset], layout: Layout | None, instance: str | None, subject: str
) -> None:
    """A store without LAYOUT or INSTANCEID is not whole, though bookies that run do not care."""
    store = cluster(range(100), layout=layout, instance=instance)
    report = examined(store, inventories, named=Layout.HIERARCHICAL)
    assert levels(report)[subject] is PreflightLevel.WARNING


def test_a_layout_that_nothing_says_is_undecided(inventories: list[Dataset]) -> None:
    """Where ledgers cannot be listed nothing is claimed of them."""
    report = examined(cluster(range(100), layout=None), inventories)
    assert levels(report)["ledgers"] is PreflightLevel.UNDECIDED
    assert report.counts["ledgers_absent"] is None
    wrong = cluster(range(100))
    wrong.write([Write(f"{ROOT}/LAYOUT", b"1\nflat", 0)])
    assert levels(examined(wrong, inventories))["layout"] is PreflightLevel.WARNING
    assert levels(examined(cluster(range(9)), inventories, named=Layout.FLAT))["layout"] is PreflightLevel.WARNING


@pytest.mark.parametrize("layout", [Layout.FLAT, Layout.LEGACY, Layout.LONGHIERARCHICAL, Layout.HIERARCHICAL])
def test_every_layout_is_listed(inventories: list[Dataset], layout: Layout) -> None:
    """Ledgers are counted in every layout, and names that are no ledger's are not."""
    store = cluster(range(100), layout=layout)
    store.write([Write(f"{ROOT}/disableHealthCheck", b""), Write(f"{ROOT}/00/0000/tmp7", b"")])
    report = examined(store, inventories)
    assert (report.counts["ledgers_listed"], report.counts["ledgers_absent"]) == (100, 0)


def test_the_stop_order_is_whose_pass_may_come_first(inventories: list[Dataset]) -> None:
    """Registered bookies first, the shortest wait first; what was not read counts as BookKeeper's default."""
    settings: list[BookieSettings | UnreadSettings] = [
        settings_of("b2:8080", {"bookieId": "b2", "gcWaitTime": "1000"}),
        settings_of("b3.conf", {"bookieId": "b3", "gcWaitTime": "500"}),
        UnreadSettings("b9:8080", "refused"),
    ]
    report = examined(cluster((), bookies=("b1", "b2")), inventories, settings)
    order = stop_order(report.bookies)
    assert order == [
        "b2 (every 1 s)",
        "b1 (every 10 min by default, its settings were not read)",
        "b3 (every 500 ms)",
    ]
    assert report.unread == (UnreadSettings("b9:8080", "refused"),)


def test_an_auditor_over_a_lacking_store_is_a_warning(inventories: list[Dataset]) -> None:
    """The elected auditor is named; not disabled, it ends at a failing listing, and a bookie with it."""
    store = cluster(range(99))
    votes = f"{ROOT}/underreplication/auditorelection"
    store.write([Write(f"{votes}/V_0000000002", b'bookieId: "b2"\n'), Write(f"{votes}/V_0000000011", b"")])
    settings = [settings_of("b2.conf", {"bookieId": "b2", "autoRecoveryDaemonEnabled": "true"})]
    report = examined(store, inventories, settings)
    assert report.auditor == "b2"
    [finding] = [f for f in report.remarks if f.subject == "replication"]
    assert finding.level is PreflightLevel.WARNING
    assert "takes the bookie with it" in finding.text
    store.write([Write(f"{ROOT}/underreplication/disable", b"")])
    assert levels(examined(store, inventories, settings))["replication"] is PreflightLevel.OK


class _Closed:
    """A store of which some keys may not be looked at by us."""

    def __init__(self, store: MemoryStore, closed: frozenset[str]) -> None:
        self._store = store
        self._closed = closed

    def __getattr__(self, name: str) -> object:
        found = getattr(self._store, name)

        def looked(key: str) -> object:
            if key in self._closed:
                raise AccessDeniedError(key)
            return found(key)

        return looked if name in ("get", "children", "get_acl") else found


@pytest.mark.parametrize("closed", ["", "/00", "/available", "/LAYOUT", "/INSTANCEID", "/cookies"])
def test_what_may_not_be_looked_at_is_undecided(inventories: list[Dataset], closed: str) -> None:
    """A refused look is neither health nor loss: it is said, and the verdict is not OK."""
    store = _Closed(cluster(range(100)), frozenset({ROOT + closed}))
    report = examined(store, inventories)  # type: ignore[arg-type]  # whatever a store has, by delegation
    assert report.level in (PreflightLevel.UNDECIDED, PreflightLevel.WARNING)
    assert report.undecided


def test_a_listing_that_takes_too_long_claims_nothing(inventories: list[Dataset]) -> None:
    """When the time is up what was not listed is not taken for absent."""
    store = cluster([10_000 * n for n in range(100)])
    report = preflight.examine(store, ROOT, None, inventories, (), now=NOW, listing_s=0)
    assert report.counts["ledgers_absent"] is None
    assert report.undecided
    assert not report.listed_whole


def test_what_is_wrong_is_a_finding_as_plans_have_them(tmp_path: Path) -> None:
    """Each warning and critical remark has a finding of its category; what is good or not known is none."""
    report = examined(cluster((), bookies=("b1", "b2")))
    wrong = [remark for remark in report.remarks if remark.level in (PreflightLevel.WARNING, PreflightLevel.CRITICAL)]
    assert [remark.finding for remark in wrong] == list(report.findings)
    assert report.findings[0].category is Category.STORE_EMPTY
    assert report.findings[0].severity in (None, TRAITS[Category.STORE_EMPTY].severity)
    assert {remark.level for remark in report.remarks} > {remark.level for remark in wrong}


def test_a_bookie_that_lacks_a_folder_of_its_index_is_to_be_stopped_first(tmp_path: Path) -> None:
    """With a new folder it would delete what its logs have, though every ledger is listed."""
    folders = [
        {"path": f"/d/{role}", "role": role, "complete": role == "ledger", "bytes": 9, "unread": 0}
        for role in ("ledger", "index")
    ]
    path = write_inventory(tmp_path / "b1", "b1", range(5), instance="one", ended=NOW, dirs=folders)
    report = examined(cluster(range(5), bookies=("b1",)), [open_dataset(path, "inventory")])
    assert levels(report)["index of b1"] is PreflightLevel.CRITICAL
