"""Exit codes: the page says what each command declares, and every code that a command declares is seen in some test."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

import pytest

from reconcile.cli.command import Exit
from reconcile.deletes.certificate import CertifiedLedger, encode_certificate, make_certificate
from recovery.backup.chain import BackupWriter
from recovery.dataset import Dataset, open_dataset, write_manifest, write_part
from recovery.model.ids import LedgerId
from tests.simulation.bookie_dir import BOOKIE, BookieDir, make_bookie
from tests.support import backups, impact_judge
from tests.support.archives import ALL, capture_case, closed_of, disks_of, make_task
from tests.support.command import ROOT, Done, commands, run
from tests.support.impacts import write_catalog
from tests.support.inventories import write_inventory
from tests.support.plan_folder import Ledger, write_plan
from tests.support.service import write_findings

pytestmark = pytest.mark.long

PAGE = ROOT / "docs/operations/exit-codes.md"
STORE = "zk+hierarchical://127.0.0.1:1/ledgers"
"""Where nothing listens."""
VERIFY = "reconcile/check/test_verify_zookeeper.py"
ETCD = "etcd://127.0.0.1:2379/ledgers"
GONE_ETCD = "etcd://127.0.0.1:1/ledgers"
FOUR = [f"bk{number}:3181" for number in range(1, 5)]
CASE = "c01-clean-sorted"
LARGEST = str(max(closed_of(CASE).items(), key=lambda item: len(item[1]))[0])
"""The ledger with the most entries in it."""
LEDGERS = [Ledger(n, [(0, ("b1", "b2", "b3"))], last=n, length=n + 1) for n in range(1, 9)]
CLOSED = [impact_judge.Ledger(number, (2, 2, 2), "CLOSED", 9, ((0, (FOUR[0], FOUR[1])),)) for number in (1, 2)]


@dataclass(frozen=True)
class World:
    """What the command lines below are about, each made when a line names it: most name one thing, or none."""

    root: Path

    @cached_property
    def bookie(self) -> BookieDir:
        """A bookie's folders."""
        return make_bookie(self.root / "bookie", {5: [0, 1], 6: [0], 9: range(12)})

    @cached_property
    def inventory(self) -> Path:
        """An inventory of that bookie."""
        return write_inventory(self.root / "inventory", BOOKIE, range(40), instance="one")

    @cached_property
    def plan(self) -> Dataset:
        """A plan of eight ledgers."""
        return write_plan(self.root / "plan", LEDGERS)

    @cached_property
    def other(self) -> Dataset:
        """A plan of four of them."""
        return write_plan(self.root / "other", LEDGERS[:4])

    @cached_property
    def broken(self) -> Dataset:
        """A plan that was altered."""
        made = write_plan(self.root / "broken", LEDGERS)
        folder = Path(made.path)
        parts = {name: made.parts(name) for name in made.manifest["tables"]}
        parts["actions"] = [write_part(folder, "actions", "fewer", [made.read("actions")[1:]], secret=True)]
        kept = {name: made.manifest[name] for name in ("hash_version", "hash", "counts", "reasons")}
        binding, coverage = made.manifest["binding"], made.manifest["coverage"]
        write_manifest(folder, "plan", parts, binding=binding, coverage=coverage, secret=True, extra=kept)
        return open_dataset(made.path, "plan")

    @cached_property
    def catalog(self) -> Dataset:
        """A capture of four bookies."""
        return write_catalog(self.root / "catalog", FOUR, CLOSED)

    @cached_property
    def doubtful(self) -> Dataset:
        """The same, of which a part could not be read."""
        return write_catalog(self.root / "doubtful", FOUR, CLOSED, gaps=["/ledgers/00: access denied"])

    def make_backup(self, *, gap: str | None = None, damaged: bool = False) -> Path:
        """Make a backup with two bases, and perhaps a gap before the second, or a segment that was cut."""
        writer, store = backups.make_backup(self.root / "backup")
        backups.write_base(writer, store, gap)
        if damaged:
            segment = self.root / "backup" / writer.manifest.segments[0].part.file
            segment.write_bytes(segment.read_bytes()[:-1])
        return self.root / "backup"

    def observe(self, *settings: str) -> list[object]:
        """Return the words that run an observer with a file of settings."""
        path = self.root / "settings"
        path.write_text("\n".join(settings))
        return ["backup", "observer", "--zookeeper", "127.0.0.1:1", "--dir", self.new, "--settings", path]

    def begin_backup(self) -> Path:
        """Begin a backup that has no base yet."""
        BackupWriter(self.root / "backup", backups.BINDING).begin_base()
        return self.root / "backup"

    @cached_property
    def archive(self) -> Path:
        """An archive of a cluster's closed ledgers."""
        make_task(capture_case(CASE, self.root / "captured"), self.root / "archive", disks_of(CASE))(ALL)
        return self.root / "archive"

    @property
    def new(self) -> Path:
        """A folder that is not there."""
        return self.root / "new"

    def configure_service(self) -> Path:
        """Write a configuration of which this host has all."""
        path = self.root / "serve.toml"
        path.write_text(f'metadata = "{STORE}"\ndata = "{self.root}/data"\n')
        return path

    def collect(self, *more: object) -> list[object]:
        """Collect the bookie."""
        journals, ledgers = self.bookie.journal_dirs[0], self.bookie.ledger_dirs[0]
        return ["collect", "--ledger-dir", ledgers, "--journal-dir", journals, "--out", self.new, *more]

    def scrutinize(self, name: str, *ledgers: int) -> Path:
        """Write a scrutiny that found something wrong with ledgers."""
        write_findings(self.root / name, ledgers)
        return self.root / name


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """What a line may name; stores are given up quickly."""
    monkeypatch.setenv("BKMETA_PATIENCE_S", "0.2")
    monkeypatch.setenv("BKMETA_ZK_AUTH", "me:secret")
    return World(tmp_path)


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """Let this process write no file longer than so many bytes: what a full disk says, without one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def damaged(world: World) -> list[object]:
    """Damage an index file, and look at it."""
    file = world.bookie.index(5)
    file.write_bytes(bytes(64))
    return ["inspect", file]


def cut(world: World) -> list[object]:
    """Damage an index file, and collect."""
    damaged(world)
    return world.collect()


def exported(world: World, *ledgers: object, whole: bool = True) -> list[object]:
    """Export ledgers from all of the bookie's disks, or not from all."""
    disks = world.bookie.all_dirs if whole else world.bookie.ledger_dirs
    return ["export", *ledgers, *(word for d in disks for word in ("--disk", f"{BOOKIE}={d}")), "--out", world.new]


def impact(world: World, catalog: Dataset, *more: object) -> list[object]:
    """Ask what becomes of a capture's cluster."""
    return ["check-impact", "--metadata", f"catalog://{catalog.path}", "--catalog", world.root / "cache", *more]


def confirmed(world: World) -> list[object]:
    """Apply the plan, confirmed."""
    return ["apply", world.plan.path, "--metadata", STORE, "--confirm", world.plan.manifest["hash"]]


def explained(world: World, *more: object) -> list[object]:
    """Explain a ledger of which the plan is sure."""
    return ["explain", "5", *more]


def certified(world: World, days: int = 0) -> Path:
    """Write a certificate of ledger 1 that was made so many days ago."""
    path = world.root / "certificate.json"
    ledgers = [CertifiedLedger(LedgerId(0, 1), 0, "")]
    made = make_certificate("one", "/ledgers", ledgers, {}, {}, datetime.now(UTC) - timedelta(days=days))
    path.write_bytes(encode_certificate(made))
    return path


Line = Callable[[World], list[object]]

LINES: dict[tuple[str, Exit], Line] = {
    ("preflight", Exit.DONE): lambda _: ["preflight"],
    ("preflight", Exit.USAGE): lambda _: ["preflight", "--metadata", "nonsense"],
    ("preflight", Exit.UNDECIDABLE): lambda _: ["preflight", "--metadata", STORE],
    ("freeze", Exit.FAILED): lambda _: ["freeze", "--metadata", STORE],
    ("freeze", Exit.USAGE): lambda _: ["freeze", "--metadata", "nonsense"],
    ("freeze", Exit.REFUSED): lambda _: ["freeze", "--metadata", ETCD],
    ("thaw", Exit.FAILED): lambda _: ["thaw", "--metadata", STORE],
    ("thaw", Exit.USAGE): lambda _: ["thaw", "--metadata", "nonsense"],
    ("thaw", Exit.REFUSED): lambda _: ["thaw", "--metadata", ETCD],
    ("collect", Exit.DONE): lambda w: w.collect(),
    ("collect", Exit.FAILED): lambda w: w.collect(),
    ("collect", Exit.USAGE): lambda w: w.collect("--bookie-id", "another:3181"),
    ("collect", Exit.UNDECIDABLE): cut,
    ("capture", Exit.FAILED): lambda w: ["capture", "--metadata", STORE, "--out", w.new],
    ("capture", Exit.USAGE): lambda w: ["capture", "--metadata", "nonsense", "--out", w.new],
    ("backup follow", Exit.FAILED): lambda w: ["backup", "follow", "--metadata", GONE_ETCD, "--to", w.new],
    ("backup follow", Exit.USAGE): lambda w: ["backup", "follow", "--metadata", "nonsense", "--to", w.new],
    ("backup observer", Exit.DONE): lambda w: [*w.observe("server.1=zk1:2888:3888"), "--write-only"],
    ("backup observer", Exit.FAILED): lambda w: w.observe(),
    ("backup observer", Exit.USAGE): lambda w: w.observe("dataDir=/other"),
    ("backup list", Exit.DONE): lambda w: ["backup", "list", w.make_backup()],
    ("backup list", Exit.USAGE): lambda w: ["backup", "list", w.new],
    ("backup list", Exit.FOUND): lambda w: ["backup", "list", w.make_backup(gap="a test")],
    ("backup list", Exit.UNDECIDABLE): lambda w: ["backup", "list", w.begin_backup()],
    ("backup verify", Exit.DONE): lambda w: ["backup", "verify", w.make_backup()],
    ("backup verify", Exit.USAGE): lambda w: ["backup", "verify", w.make_backup(), "--at", "yesterday"],
    ("backup verify", Exit.FOUND): lambda w: ["backup", "verify", w.make_backup(damaged=True)],
    ("backup prune", Exit.DONE): lambda w: ["backup", "prune", w.make_backup(), "--keep", "1d"],
    ("backup prune", Exit.USAGE): lambda w: ["backup", "prune", w.new, "--keep", "1d"],
    ("backup prune", Exit.FAILED): lambda w: ["backup", "prune", w.make_backup(), "--keep", "1d"],
    ("rescue", Exit.DONE): lambda w: ["rescue", "status", "--out", w.new],
    ("rescue", Exit.USAGE): lambda w: ["rescue", "--out", w.new],
    ("undelete", Exit.FAILED): lambda w: ["undelete", "--metadata", STORE, "--out", w.new],
    ("undelete", Exit.USAGE): lambda w: ["undelete", "--metadata", "nonsense", "--out", w.new],
    ("scrutinize", Exit.FAILED): lambda w: ["scrutinize", "--metadata", STORE, "--out", w.new],
    ("scrutinize", Exit.USAGE): lambda w: ["scrutinize", "--metadata", "nonsense", "--out", w.new],
    ("drill", Exit.FAILED): lambda w: ["drill", "--inventory", w.inventory, "--metadata", STORE, "--out", w.new],
    ("drill", Exit.USAGE): lambda w: ["drill", "--metadata", STORE, "--out", w.new],
    ("recover", Exit.FAILED): lambda w: [
        "recover", "--inventory", w.inventory, "--metadata", STORE, "--out", w.new
    ],
    ("recover", Exit.USAGE): lambda w: ["recover", "--inventory", w.plan.path, "--layout", "flat", "--out", w.new],
    ("explain", Exit.DONE): lambda w: explained(w, "--plan", w.plan.path),
    ("explain", Exit.FAILED): lambda w: explained(w, "--metadata", STORE),
    ("explain", Exit.USAGE): lambda w: explained(w, "--plan", w.inventory),
    ("plan show", Exit.DONE): lambda w: ["plan", "show", w.plan.path],
    ("plan show", Exit.FAILED): lambda w: ["plan", "show", w.broken.path],
    ("plan show", Exit.USAGE): lambda w: ["plan", "show", w.inventory],
    ("scrutiny diff", Exit.DONE): lambda w: ["scrutiny", "diff", w.scrutinize("run", 5), w.root / "run"],
    ("scrutiny diff", Exit.USAGE): lambda w: ["scrutiny", "diff", w.plan.path, w.new],
    ("scrutiny diff", Exit.FOUND): lambda w: ["scrutiny", "diff", w.scrutinize("one", 5), w.scrutinize("two", 6)],
    ("plan diff", Exit.DONE): lambda w: ["plan", "diff", w.plan.path, w.plan.path],
    ("plan diff", Exit.USAGE): lambda w: ["plan", "diff", w.plan.path, w.new],
    ("plan diff", Exit.FOUND): lambda w: ["plan", "diff", w.plan.path, w.other.path],
    ("plan ledgers", Exit.DONE): lambda w: ["plan", "ledgers", w.plan.path, "--few-copies"],
    ("plan ledgers", Exit.USAGE): lambda w: ["plan", "ledgers", w.plan.path, "--undecided", "--outcome", "held"],
    ("plan split", Exit.DONE): lambda w: ["plan", "split", w.plan.path, "--waves", "50%,rest", "--out", w.new],
    ("plan split", Exit.FAILED): lambda w: ["plan", "split", w.plan.path, "--waves", "rest", "--out", w.new],
    ("plan split", Exit.USAGE): lambda w: ["plan", "split", w.plan.path, "--waves", "5%", "--out", w.new],
    ("plan edit", Exit.DONE): lambda w: ["plan", "edit", w.plan.path, "--drop", "3", "--out", w.new],
    ("plan edit", Exit.FAILED): lambda w: ["plan", "edit", w.plan.path, "--drop", "3", "--out", w.new],
    ("plan edit", Exit.USAGE): lambda w: ["plan", "edit", w.plan.path, "--out", w.new],
    ("undo", Exit.FAILED): lambda w: ["undo", w.new, "--metadata", STORE],
    ("undo", Exit.USAGE): lambda w: ["undo", w.new, "--metadata", "nonsense"],
    ("audit show", Exit.USAGE): lambda w: ["audit", "show", w.new],
    ("audit verify", Exit.USAGE): lambda w: ["audit", "verify", w.new],
    ("rehearse", Exit.FAILED): lambda w: ["rehearse", w.plan.path, "--metadata", STORE],
    ("rehearse", Exit.USAGE): lambda w: ["rehearse", w.plan.path, "--metadata", "nonsense"],
    ("apply", Exit.FAILED): confirmed,
    ("apply", Exit.USAGE): lambda w: ["apply", w.broken.path, "--metadata", STORE],
    ("apply", Exit.REFUSED): lambda w: ["apply", w.plan.path, "--metadata", STORE],
    ("verify", Exit.FAILED): lambda w: ["verify", w.plan.path, "--metadata", STORE, "--disk", f"b1={w.root}"],
    ("verify", Exit.USAGE): lambda w: ["verify", w.plan.path, "--metadata", STORE, "--disk", "b1"],
    ("export", Exit.DONE): lambda w: exported(w, 5, 6),
    ("export", Exit.FAILED): lambda w: exported(w, 9),
    ("export", Exit.USAGE): lambda w: exported(w, "five"),
    ("export", Exit.FOUND): lambda w: exported(w, 5, 7),
    ("export", Exit.UNDECIDABLE): lambda w: exported(w, 5, whole=False),
    ("inspect", Exit.DONE): lambda w: ["inspect", w.bookie.log()],
    ("inspect", Exit.USAGE): lambda w: ["inspect", w.new],
    ("inspect", Exit.FOUND): damaged,
    ("check-impact", Exit.DONE): lambda w: impact(w, w.catalog),
    ("check-impact", Exit.FAILED): lambda w: ["check-impact", "--metadata", STORE, "--catalog", w.new],
    ("check-impact", Exit.USAGE): lambda w: impact(w, w.catalog, "--bookies", "bk9:3181"),
    ("check-impact", Exit.FOUND): lambda w: impact(w, w.catalog, "--bookies", "bk1:3181,bk2:3181"),
    ("check-impact", Exit.UNDECIDABLE): lambda w: impact(w, w.doubtful, "--bookies", "bk4:3181"),
    ("orphans", Exit.FAILED): lambda w: ["orphans", "--metadata", STORE, "--out", w.new],
    ("orphans", Exit.USAGE): lambda w: ["orphans", "--metadata", "nonsense", "--out", w.new],
    ("delete request", Exit.FAILED): lambda _: ["delete", "request", "1", "--metadata", STORE],
    ("delete request", Exit.USAGE): lambda _: ["delete", "request", "--metadata", STORE],
    ("delete verify", Exit.FAILED): lambda w: [
        "delete", "verify", "1", "--metadata", STORE, "--inventory", w.inventory
    ],
    ("delete verify", Exit.USAGE): lambda _: ["delete", "verify", "1", "--metadata", STORE],
    ("delete purge", Exit.FAILED): lambda w: ["delete", "purge", "--metadata", STORE, "--certificate", certified(w)],
    ("delete purge", Exit.USAGE): lambda w: ["delete", "purge", "--metadata", STORE, "--certificate", w.new],
    ("delete confirm", Exit.FAILED): lambda w: ["delete", "confirm", "--metadata", STORE, "--inventory", w.inventory],
    ("delete confirm", Exit.USAGE): lambda _: ["delete", "confirm", "--metadata", STORE],
    ("delete undo", Exit.FAILED): lambda _: ["delete", "undo", "1", "--metadata", STORE],
    ("delete undo", Exit.USAGE): lambda _: ["delete", "undo", "--metadata", STORE],
    ("delete policy show", Exit.FAILED): lambda _: ["delete", "policy", "show", "--metadata", STORE],
    ("delete policy show", Exit.USAGE): lambda _: ["delete", "policy", "show", "--metadata", "nonsense"],
    ("delete policy set", Exit.FAILED): lambda _: ["delete", "policy", "set", "--breaker", "1", "--metadata", STORE],
    ("delete policy set", Exit.USAGE): lambda _: ["delete", "policy", "set", "--metadata", STORE],
    ("approve", Exit.USAGE): lambda w: ["approve", w.new, "--key", w.new, "--out", w.new],
    ("delete status", Exit.FAILED): lambda _: ["delete", "status", "--metadata", STORE],
    ("delete status", Exit.USAGE): lambda _: ["delete", "status", "--metadata", "nonsense"],
    ("tombstones list", Exit.FAILED): lambda _: ["tombstones", "list", "--metadata", STORE],
    ("tombstones list", Exit.USAGE): lambda _: ["tombstones", "list", "--metadata", "nonsense"],
    ("tombstones expire", Exit.FAILED): lambda _: ["tombstones", "expire", "--metadata", STORE],
    ("tombstones expire", Exit.USAGE): lambda _: ["tombstones", "expire", "--metadata", "nonsense"],
    ("tombstones decommission", Exit.FAILED): lambda _: ["tombstones", "decommission", "b:1", "--metadata", STORE],
    ("tombstones decommission", Exit.USAGE): lambda _: ["tombstones", "decommission", "b 1", "--metadata", STORE],
    ("archive mark", Exit.FAILED): lambda _: ["archive", "mark", "1", "--metadata", STORE],
    ("archive mark", Exit.USAGE): lambda _: ["archive", "mark", "--metadata", STORE],
    ("archive unmark", Exit.FAILED): lambda _: ["archive", "unmark", "1", "--metadata", STORE],
    ("archive unmark", Exit.USAGE): lambda _: ["archive", "unmark", "--metadata", STORE],
    ("archive show", Exit.FAILED): lambda _: ["archive", "show", "--metadata", STORE],
    ("archive show", Exit.USAGE): lambda _: ["archive", "show", "one", "--metadata", STORE],
    ("archive run", Exit.FAILED): lambda w: ["archive", "run", "--metadata", STORE, "--wire", "--to", w.new],
    ("archive run", Exit.USAGE): lambda w: ["archive", "run", "--metadata", STORE, "--to", w.new],
    ("archive verify", Exit.DONE): lambda w: ["archive", "verify", "--from", w.archive],
    ("archive verify", Exit.USAGE): lambda w: ["archive", "verify", "--from", w.new],
    ("archive verify", Exit.FOUND): lambda w: ["archive", "verify", "--from", w.archive, LARGEST, "99999"],
    ("archive read", Exit.DONE): lambda w: ["archive", "read", "--from", w.archive, LARGEST, "--out", w.new],
    ("archive read", Exit.FAILED): lambda w: ["archive", "read", "--from", w.archive, LARGEST, "--out", w.new],
    ("archive read", Exit.USAGE): lambda w: ["archive", "read", "--from", w.new, "1", "--out", w.new],
    ("archive read", Exit.FOUND): lambda w: [
        "archive", "read", "--from", w.archive, LARGEST, "--entries", "0-99999", "--out", w.new
    ],
    ("certificate check", Exit.DONE): lambda w: ["certificate", "check", certified(w), "1"],
    ("certificate check", Exit.USAGE): lambda w: ["certificate", "check", w.new],
    ("certificate check", Exit.FOUND): lambda w: ["certificate", "check", certified(w), "2"],
    ("certificate check", Exit.UNDECIDABLE): lambda w: ["certificate", "check", certified(w, days=2), "1"],
    ("conf write", Exit.DONE): lambda w: ["conf", "write", w.new],
    ("conf write", Exit.USAGE): lambda w: ["conf", "write", certified(w)],
    ("serve", Exit.DONE): lambda w: ["serve", "--config", w.configure_service(), "--check"],
    ("serve", Exit.FOUND): lambda _: ["serve", "--config", ROOT / "conf" / "serve.toml", "--check"],
    ("serve", Exit.USAGE): lambda w: ["serve", "--config", w.new],
    ("ask", Exit.FAILED): lambda _: ["ask", "get-status", "--service", "127.0.0.1:1", "--deadline", "1s"],
    ("ask", Exit.USAGE): lambda _: ["ask", "nonsense"],
    ("doctor", Exit.DONE): lambda _: ["doctor", "--no-spark"],
    ("doctor", Exit.USAGE): lambda _: ["doctor", "--no-spark", "--metadata", "nonsense"],
    ("doctor", Exit.FOUND): lambda _: ["doctor", "--no-spark", "--metadata", STORE],
}  # fmt: skip
"""Command lines that end so, and need neither Spark nor a server."""

FULL_DISK = {
    (name, Exit.FAILED) for name in ("collect", "plan split", "plan edit", "export", "archive read", "backup prune")
}
"""Of these, on a full disk."""

COLLECT, CHECK, CLI, WRITE = "recovery/collect", "reconcile/check", "reconcile/cli", "reconcile/write"
SCRUTINY = "reconcile/jobs/scrutiny/test_scrutinize_real.py"
FREEZING, DELETES = "reconcile/write/freezing", "reconcile/deletes"
UNDELETE = "reconcile/jobs/undelete/test_undelete.py"
ORPHANS = "reconcile/jobs/orphans/test_orphans_real.py"
CONF_FILES = "reconcile/jobs/diagnose/test_conf_files.py"
PIPELINE = "reconcile/jobs/deletes/test_deletes_pipeline_real.py"
ARCHIVE = "real/test_archive.py"
ELSEWHERE: dict[tuple[str, Exit], str] = {
    ("backup follow", Exit.DONE): f"{CLI}/test_backup_commands.py::test_a_lost_store_comes_back_from_its_backup",
    ("collect", Exit.FOUND): f"{COLLECT}/test_vanished_files.py::test_the_first_line_says_so_and_the_last_what_to_do",
    ("preflight", Exit.FOUND): f"{CHECK}/test_preflight_zookeeper.py::test_no_root",
    ("freeze", Exit.DONE): f"{FREEZING}/test_freeze_zookeeper.py::test_frozen_as_others_see_it_and_thawed_as_it_was",
    ("freeze", Exit.FOUND): f"{FREEZING}/test_freeze_zookeeper.py::test_a_server_that_ignores_rights_is_not_frozen",
    ("freeze", Exit.UNDECIDABLE): f"{FREEZING}/test_freeze_zookeeper.py::test_every_principal_loses_the_rights",
    ("freeze", Exit.PARTLY): f"{FREEZING}/test_freeze.py::test_rights_that_changed_meanwhile_stop_the_run",
    ("thaw", Exit.DONE): f"{FREEZING}/test_freeze_zookeeper.py::test_frozen_as_others_see_it_and_thawed_as_it_was",
    ("thaw", Exit.FOUND): f"{CLI}/test_cli_exits_store.py::test_thaw_with_a_journal_that_is_not_of_the_freeze",
    ("thaw", Exit.PARTLY): f"{FREEZING}/test_freeze.py::test_rights_that_changed_meanwhile_stop_the_run",
    ("capture", Exit.DONE): "real/test_runbook.py::test_every_command_of_the_runbook_does_what_it_says_in_its_order",
    ("capture", Exit.FOUND): f"{CLI}/test_cli_bad_input_real.py::test_roots_that_are_not_what_was_named",
    ("capture", Exit.UNDECIDABLE): f"{CLI}/test_cli_bad_input_real.py::test_a_store_that_may_not_be_read",
    ("recover", Exit.DONE): f"{CLI}/test_cli_bad_input_real.py::test_recover_that_is_broken_off",
    ("recover", Exit.FOUND): "real/test_restore_running.py::test_a_restore_beside_bookies_that_run",
    ("recover", Exit.UNDECIDABLE): "real/test_restore_running.py::test_a_restore_beside_bookies_that_run",
    ("rescue", Exit.FAILED): f"{CLI}/test_rescue.py::test_a_host_that_cannot_be_reached_ends_the_run",
    ("rescue", Exit.FOUND): "real/test_rescue_disasters.py::test_a_bookie_that_is_gone_is_asked_about",
    ("rescue", Exit.UNDECIDABLE): "real/test_rescue_disasters.py::test_a_wiped_store_comes_back_by_one_command",
    ("rescue", Exit.REFUSED): f"{CLI}/test_rescue.py::test_a_stop_from_inside_a_container_is_not_believed",
    ("undelete", Exit.DONE): f"{UNDELETE}::test_a_session_in_its_window_comes_back_and_nothing_else",
    ("undelete", Exit.FOUND): f"{UNDELETE}::test_what_does_not_come_back_is_named_with_its_reason",
    ("undelete", Exit.UNDECIDABLE): f"{UNDELETE}::test_a_history_with_a_gap_is_said_to_have_one",
    ("scrutinize", Exit.DONE): f"{SCRUTINY}::test_a_healthy_share_is_silent",
    ("scrutinize", Exit.FOUND): f"{SCRUTINY}::test_each_harm_is_found_and_nothing_else",
    ("scrutinize", Exit.UNDECIDABLE): f"{SCRUTINY}::test_a_lost_bookie_that_no_auditor_will_mark_is_told",
    **{
        ("drill", code): f"reconcile/jobs/records/test_drill_spark.py::{test}"
        for code, test in (
            (Exit.DONE, "test_what_a_capture_is_worth"),
            (Exit.FOUND, "test_what_a_capture_is_worth"),
            (Exit.UNDECIDABLE, "test_a_record_that_nobody_can_read_is_undecided"),
        )
    },
    ("explain", Exit.FOUND): "reconcile/explain/test_ledger_golden.py::test_an_id_that_nobody_has",
    ("explain", Exit.UNDECIDABLE): "reconcile/explain/test_ledger_golden.py::test_an_id_that_nobody_has",
    ("rehearse", Exit.DONE): f"{CHECK}/test_verify_zookeeper.py::test_a_rehearsal_is_read_back_and_removed",
    ("rehearse", Exit.FOUND): f"{CLI}/test_cli_exits_store.py::test_what_a_rehearsal_finds",
    ("rehearse", Exit.UNDECIDABLE): f"{CLI}/test_cli_exits_store.py::test_what_a_rehearsal_finds",
    ("rehearse", Exit.REFUSED): f"{CHECK}/test_verify_zookeeper.py::test_a_root_that_is_not_ours_is_refused_with_5",
    ("rehearse", Exit.PARTLY): f"{CLI}/test_cli_exits_store.py::test_what_a_rehearsal_finds",
    ("undo", Exit.DONE): "real/test_runbook.py::test_every_command_of_the_runbook_does_what_it_says_in_its_order",
    ("undo", Exit.REFUSED): f"{WRITE}/test_undo_zookeeper.py::test_undo_takes_back_what_an_apply_wrote",
    ("undo", Exit.PARTLY): f"{WRITE}/test_undo_zookeeper.py::test_undo_takes_back_what_an_apply_wrote",
    ("audit show", Exit.DONE): f"{WRITE}/test_undo_zookeeper.py::test_the_journals_tell_who_did_what",
    ("audit verify", Exit.DONE): f"{WRITE}/test_undo_zookeeper.py::test_the_journals_tell_who_did_what",
    ("audit verify", Exit.FOUND): f"{WRITE}/test_undo_zookeeper.py::test_the_journals_tell_who_did_what",
    ("audit verify", Exit.PARTLY): f"{WRITE}/test_undo_zookeeper.py::test_the_journals_tell_who_did_what",
    ("apply", Exit.DONE): f"{CLI}/test_cli_bad_input_real.py::test_apply_that_is_stopped",
    ("apply", Exit.FOUND): (
        "reconcile/jobs/changes/test_touched.py::test_the_next_wave_waits_for_the_scrutiny_of_the_one_before"
    ),
    ("apply", Exit.PARTLY): f"{CLI}/test_cli_bad_input_real.py::test_what_stands_in_the_way_is_left",
    **{
        (name, Exit.PARTLY): f"{DELETES}/test_packed.py::test_a_node_that_others_change_all_the_time"
        for name in ("tombstones expire", "tombstones decommission", "archive mark", "archive unmark", "archive run")
    },
    ("archive run", Exit.DONE): f"{ARCHIVE}::test_a_bookie_that_is_down_is_passed_over",
    ("archive run", Exit.FOUND): f"{ARCHIVE}::test_every_closed_ledger_is_archived_and_marked_and_damage_named",
    ("archive run", Exit.UNDECIDABLE): f"{ARCHIVE}::test_a_bookie_that_is_down_is_passed_over",
    ("archive run", Exit.REFUSED): f"{ARCHIVE}::test_a_bookie_that_is_down_is_passed_over",
    **{
        (name, Exit.REFUSED): f"{PIPELINE}::test_a_root_that_is_not_ours_is_refused"
        for name in ("tombstones list", "tombstones expire", "archive mark", "archive unmark", "archive show")
    },
    **{
        (name, Exit.DONE): f"{PIPELINE}::test_a_tombstone_waits_for_a_bookie_until_it_is_decommissioned"
        for name in ("tombstones list", "tombstones expire", "tombstones decommission")
    },
    ("tombstones decommission", Exit.REFUSED): f"{PIPELINE}::"
    "test_a_tombstone_waits_for_a_bookie_until_it_is_decommissioned",
    **{
        (f"archive {name}", Exit.DONE): f"{PIPELINE}::test_the_archival_rule_wants_a_mark"
        for name in ("mark", "unmark", "show")
    },
    ("archive show", Exit.FOUND): f"{PIPELINE}::test_the_archival_rule_wants_a_mark",
    **{
        (f"delete {name}", Exit.PARTLY): f"{DELETES}/test_packed.py::test_a_node_that_others_change_all_the_time"
        for name in ("request", "verify", "confirm", "undo", "policy set")
    },
    ("recover", Exit.REFUSED): f"{CLI}/test_approval.py::test_disks_are_given_up_when_two_people_signed_it",
    ("delete policy show", Exit.DONE): f"{CLI}/test_deletes_commands.py::test_a_policy_is_in_every_capture",
    ("delete policy show", Exit.REFUSED): f"{DELETES}/test_policy.py::"
    "test_a_policy_that_cannot_be_read_is_not_passed_over",
    ("delete policy set", Exit.DONE): f"{CLI}/test_deletes_commands.py::test_one_person_purges_nothing_alone",
    ("delete policy set", Exit.REFUSED): f"{CLI}/test_deletes_commands.py::"
    "test_to_loosen_a_policy_takes_the_approvals_that_it_asks_for",
    ("approve", Exit.DONE): f"{CLI}/test_approval.py::test_a_plan_is_written_when_two_people_signed_it",
    **{
        (f"delete {name}", Exit.DONE): f"{PIPELINE}::test_a_purge_from_request_to_expiry"
        for name in ("request", "verify", "purge", "confirm", "status")
    },
    **{
        (f"delete {name}", Exit.REFUSED): f"{PIPELINE}::test_a_root_that_is_not_ours_is_refused"
        for name in ("request", "verify", "confirm", "status")
    },
    ("orphans", Exit.DONE): f"{ORPHANS}::test_one_ledger_that_nobody_names_is_the_only_candidate",
    ("orphans", Exit.FOUND): f"{ORPHANS}::test_one_ledger_that_nobody_names_is_the_only_candidate",
    ("orphans", Exit.UNDECIDABLE): f"{ORPHANS}::test_a_file_is_one_listing_until_it_is_written_anew",
    ("orphans", Exit.REFUSED): f"{PIPELINE}::test_a_root_that_is_not_ours_is_refused",
    ("delete request", Exit.FOUND): f"{PIPELINE}::test_what_is_not_there_is_said",
    ("delete status", Exit.FOUND): f"{PIPELINE}::test_what_is_not_there_is_said",
    ("delete verify", Exit.FOUND): f"{PIPELINE}::test_a_breaker_asks_for_the_number",
    ("delete verify", Exit.UNDECIDABLE): f"{PIPELINE}::test_a_bookie_that_does_not_answer_makes_it_undecided",
    ("conf write", Exit.FAILED): f"{CONF_FILES}::test_an_installation_without_examples_says_so",
    ("delete purge", Exit.REFUSED): f"{PIPELINE}::test_what_changed_since_the_certificate_is_left_out_of_a_purge",
    ("delete purge", Exit.FOUND): f"{PIPELINE}::test_what_changed_since_the_certificate_is_left_out_of_a_purge",
    ("delete purge", Exit.PARTLY): f"{DELETES}/test_purge.py::test_many_that_are_left_out_stop_a_purge",
    ("delete confirm", Exit.FOUND): f"{PIPELINE}::test_a_purge_from_request_to_expiry",
    ("delete confirm", Exit.UNDECIDABLE): f"{PIPELINE}::test_a_purge_from_request_to_expiry",
    ("delete undo", Exit.DONE): f"{PIPELINE}::test_an_undo_before_the_purge_is_exact",
    ("delete undo", Exit.REFUSED): f"{PIPELINE}::test_an_undo_after_the_purge_needs_every_holder",
    **{
        ("ask", code): "reconcile/service/test_server_etcd.py::test_ask_ends_as_the_command_that_was_run"
        for code in (Exit.DONE, Exit.FOUND, Exit.UNDECIDABLE, Exit.REFUSED, Exit.PARTLY)
    },
    ("verify", Exit.DONE): f"{VERIFY}::test_verify_tells_readable_from_not_looked_at_from_gone",
    ("verify", Exit.FOUND): f"{VERIFY}::test_verify_tells_readable_from_not_looked_at_from_gone",
    ("verify", Exit.UNDECIDABLE): f"{VERIFY}::test_verify_tells_readable_from_not_looked_at_from_gone",
}  # fmt: skip
"""Tests in which a command ends so, for what needs more."""


def page() -> dict[str, list[str]]:
    """The page's table: command → its cells."""
    rows = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return {cells[0].strip(" `"): [cell.strip().replace("`", "") for cell in cells[1:]] for cells in rows}


def test_the_page_says_what_the_commands_declare() -> None:
    """Command by command and code by code, in the same words."""
    declared = {name: [command.exits.get(Exit(code), "") for code in range(7)] for name, command in commands().items()}
    assert page() == declared


def test_every_declared_code_is_seen() -> None:
    """Each cell of the table is run here, or by a test that is named here and exists."""
    cells = {(name, code) for name, command in commands().items() for code in command.exits}
    assert not set(LINES) & set(ELSEWHERE)
    assert set(LINES) | set(ELSEWHERE) == cells
    for test in set(ELSEWHERE.values()):
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), test


@pytest.mark.parametrize("cell", LINES, ids=lambda cell: f"{cell[0]}-{cell[1].value}".replace(" ", "-"))
def test_a_command_ends_as_it_declares(
    cell: tuple[str, Exit], world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the code, for people in words and for programs in an object that says the same code."""
    line = [*LINES[cell](world), "--json"]
    if cell in FULL_DISK:
        with disk_of(1000):
            done: Done = run(capsys, *line)
    else:
        done = run(capsys, *line)
    assert (done.code, done.result["exit_code"]) == (cell[1], cell[1]), done.result["verdict"]
    assert done.result["verdict"]
    expected = "error" if cell[1] in (Exit.USAGE, Exit.REFUSED) else cell[0].replace(" ", "-")
    assert done.result["schema"].partition("/")[0] in (f"bkmeta.{expected}", "bkmeta.error")
