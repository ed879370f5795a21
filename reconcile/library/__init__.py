"""bkmeta as a library: `import bkmeta` is this module. Each function does what the command of its name does.

Functions take keyword arguments with the defaults of the command line, read credentials from the same environment
variables, print nothing and return typed results. Nothing is loaded before it is needed: Spark and
Java only for large clusters, or where `master` names Spark.

    import bkmeta

    bkmeta.collect(ledger_dirs=["/mnt/bk1/ledgers"], journal_dirs=["/mnt/bk1/journal"], out="inv/bk1")
    made = bkmeta.recover(inventories=["inv"], metadata="zk+hierarchical://zk1:2181/ledgers", out="plan")
    print(made.manifest.counts.restored, made.manifest.hash)
    bkmeta.open_plan("plan").arrow("actions", columns=["ledger", "op", "key"])

Errors are those of `recovery.errors`, `reconcile.errors` and `backends.errors`: each names the thing, what is wrong,
and what to do.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal

from recovery import __version__

if TYPE_CHECKING:
    import pyarrow as pa

    from reconcile.check.impact.answer import ImpactAnswer
    from reconcile.deletes.certificate import CertificateCheck
    from reconcile.jobs.archive.read import ReadLedger
    from reconcile.jobs.archive.run import Archived
    from reconcile.jobs.archive.verify import VerifiedArchive
    from reconcile.jobs.collect.bookie import CollectedBookie
    from reconcile.jobs.context import Context, WireOptions
    from reconcile.jobs.deletes.verify import VerifiedDeletes
    from reconcile.jobs.recover import Recovered
    from reconcile.jobs.scrutiny.request import Scrutinized
    from recovery.capture.summary import CaptureSummary
    from recovery.dataset import Dataset
    from recovery.model.ids import LedgerId
    from recovery.spark import DataFrame, SparkSession

__all__ = [
    "OpenDataset",
    "__version__",
    "archive",
    "capture",
    "check_certificate",
    "check_impact",
    "collect",
    "open_findings",
    "open_inventory",
    "open_plan",
    "read_archive",
    "recover",
    "scrutinize",
    "verify_archive",
    "verify_deletes",
]

Place = str | PathLike[str]
"""A folder of this machine, or the URI of one in an object store."""
File = str | PathLike[str]
"""A file of this machine."""
_WITH_FINDINGS: Final = ("plan", "scrutiny", "orphans")


@dataclass(frozen=True, slots=True)
class OpenDataset:
    """A dataset that bkmeta wrote; the page *Tables* of the documentation has every table and column.

    Attributes:
        path: of its folder.
        kind: inventory, plan, scrutiny or orphans.
        manifest: its description, as `manifest.json` has it.
        rows: table → how many rows it has.
    """

    path: str
    kind: str
    manifest: Mapping[str, Any]
    rows: Mapping[str, int]

    def arrow(self, table: str, *, columns: Sequence[str] | None = None) -> "pa.Table":
        """Return a table, in the order of its rows; whatever is read is compared with the hashes of the manifest.

        Args:
            table: its name.
            columns: those that are read; None: all.

        Raises:
            DatasetError: a file is gone or damaged.
            KeyError: the dataset has no such table or column.
        """
        rows: pa.Table = self._open().read(table, columns=None if columns is None else list(columns))
        return rows

    def spark(self, table: str, session: "SparkSession") -> "DataFrame":
        """Return a table as Spark reads its folder. Nothing is compared with hashes: `verify` does that.

        Raises:
            KeyError: the dataset has no such table.
        """
        if table not in self.rows:
            raise KeyError(table)
        return session.read.parquet(f"{self.path}/{table}")

    def verify(self) -> None:
        """Compare every file with the hashes of the manifest.

        Raises:
            DatasetError: names the first file that differs.
        """
        self._open().verify()

    def _open(self) -> "Dataset":
        from recovery.dataset import Dataset

        return Dataset(self.path, self.manifest)


def open_inventory(path: Place) -> OpenDataset:
    """Open what `collect` wrote: tables `copies`, `bookies`, `damage`.

    Raises:
        DatasetError: no inventory, of a newer version, altered, or with files missing.
    """
    return _open(path, "inventory")


def open_plan(path: Place) -> OpenDataset:
    """Open what `recover` wrote: tables `actions`, `findings`, `reconstruction`, `sides`, `candidates`.

    Raises:
        DatasetError: no plan, of a newer version, altered, or with files missing.
    """
    return _open(path, "plan")


def open_findings(path: Place) -> OpenDataset:
    """Open what has a table `findings`: a plan, a scrutiny's run, or a list of orphans.

    Raises:
        DatasetError: none of these, of a newer version, altered, or with files missing.
    """
    from reconcile.jobs.collect.inventories import read_kind
    from recovery.place import to_place

    kind = read_kind(to_place(str(path)))
    return _open(path, kind if kind in _WITH_FINDINGS else "scrutiny")


def collect(
    *,
    out: Place,
    ledger_dirs: Sequence[File] = (),
    index_dirs: Sequence[File] = (),
    journal_dirs: Sequence[File] = (),
    bookie_conf: File | None = None,
    bookie_id: str | None = None,
    passwords: Sequence[bytes] = (),
    since: Place | None = None,
    incremental: bool = False,
    deep: bool = False,
    max_mb_s: float | None = None,
    processes: int = 1,
    metadata: str | None = None,
) -> "CollectedBookie":
    """Read one bookie's disks into an inventory; the bookie may run, or its disks be mounted read-only.

    Args:
        out: a new folder for the inventory.
        ledger_dirs: the bookie's folders of ledgers, with or without their `current/`.
        index_dirs: of indexes, where they are others.
        journal_dirs: of journals.
        bookie_conf: its `bk_server.conf`, which names the folders instead.
        bookie_id: where no cookie can be read; None: the cookie's.
        passwords: that may have made HMACs.
        since: an earlier inventory of the bookie that was made with `incremental`.
        incremental: keep what the next collection need not read again.
        deep: compare every entry in index, logs and journals.
        max_mb_s: million bytes that are read in a second, at most; None: no limit.
        processes: that read indexes at the same time, at most.
        metadata: URI of the running store, whose last transaction dates the inventory; None: it is not asked.

    Raises:
        InputError: no folders, or none that are a bookie's.
        DatasetError: the folder cannot be written.
        UnavailableError: the store does not answer.
    """
    from reconcile.jobs.collect.bookie import collect_bookie, read_latest_txn
    from recovery.collect.disk.bookie_conf import read_conf
    from recovery.collect.options import CollectOptions
    from recovery.errors import InputError
    from recovery.place import to_place

    if bool(ledger_dirs) == (bookie_conf is not None):
        raise InputError("the bookie's folders", "are not named, or named twice", "give ledger_dirs or bookie_conf")
    conf = None if bookie_conf is None else read_conf(Path(bookie_conf))
    context = _make_context()
    options = CollectOptions(
        ledger_dirs=_paths(ledger_dirs) if conf is None else conf.ledger_dirs,
        index_dirs=_paths(index_dirs) if conf is None else conf.index_dirs,
        journal_dirs=_paths(journal_dirs) if conf is None else conf.journal_dirs,
        bookie_id=bookie_id,
        configured_id=None if conf is None else conf.bookie_id,
        may_lack=conf is not None,
        passwords=tuple(passwords),
        max_mb_s=max_mb_s,
        deep=deep,
        processes=processes,
        keep=incremental,
        since=None if since is None else to_place(str(since)),
        as_of=None if metadata is None else read_latest_txn(metadata, context),
        expands_storage=None if conf is None else conf.expands_storage,
        stamps_cookies=None if conf is None else conf.stamps_cookies,
    )
    return collect_bookie(options, to_place(str(out)), context)


def capture(
    *,
    metadata: str,
    out: Place,
    at: str | None = None,
    ops_s: float | None = None,
    subtrees: Sequence[str] = (),
    pulsar: bool = False,
) -> "CaptureSummary":
    """Read a metadata store, or a copy of one, into a catalog.

    Args:
        metadata: URI of the store, as `bk_server.conf` names it, or of a copy (`zkfiles://`, `etcdfile://`).
        out: a new folder for the catalog; it will hold passwords.
        at: a transaction number or an ISO 8601 time; None: the latest.
        ops_s: reads a second, at most; None: no limit.
        subtrees: keys of the store; everything below them is read, too.
        pulsar: read what Pulsar keeps beside the ledgers.

    Raises:
        UnsupportedStoreError: the URI is malformed, or of a store that is not read.
        UnavailableError: the store does not answer.
        DatasetError: the folder cannot be written.
        InputError: nothing names a layout.
    """
    from reconcile.jobs import capture as job
    from recovery.capture.subtrees import SubtreeChoice
    from recovery.place import to_place

    request = job.CaptureRequest(
        uri=metadata, out=to_place(str(out)), at=at, ops_s=ops_s, subtrees=SubtreeChoice(tuple(subtrees), pulsar)
    )
    return job.capture(request, _make_context())


def recover(
    *,
    out: Place,
    inventories: Sequence[Place] = (),
    metadata: str | None = None,
    layout: str | None = None,
    snapshots: Sequence[str] = (),
    expect_bookies: Sequence[str] | None = None,
    default_quorum: tuple[int, int, int] | None = None,
    passwords: Sequence[bytes] = (),
    references: Sequence[str] = (),
    aliases: Mapping[str, str] | None = None,
    lost: Sequence[str] = (),
    tail: Literal["inclusive", "acknowledged", "open"] = "inclusive",
    master: str | None = None,
) -> "Recovered":
    """Turn inventories into a plan that brings lost ledger metadata back. Nothing but the plan is written.

    Needs the extra `spark`. Above a million copies of ledgers, or where `master` is given, Spark does the work: it
    needs Java, and a session that this process has already is ended with the call.

    Args:
        out: a new folder for the plan; it will hold passwords.
        inventories: folders of inventories, or folders that hold some; or tables of entries.
        metadata: URI of the store to be repaired; None: `layout` says what it is.
        layout: of the store, where `metadata` is not given: hierarchical, longhierarchical, …
        snapshots: what the store held earlier: folders, files or URIs.
        expect_bookies: ids of all bookies of the cluster; None: they are not known.
        default_quorum: E, W and A where nothing else decides.
        passwords: candidates.
        references: files and URIs of what upper layers know.
        aliases: other names of bookies in records → ids.
        lost: bookies, or `BOOKIE=DIR`, that are gone for good.
        tail: where a ledger is closed whose last entries may not have been acknowledged.
        master: Spark's; None: this process where that takes seconds, else that of Spark's own settings, else this host.

    Raises:
        InputError: no Java or Spark, files that cannot be used, neither or both of `metadata` and `layout`.
        DatasetError: an inventory or catalog is damaged, or the plan cannot be written.
        SparkError: Spark failed.
        UnsupportedStoreError: a URI is malformed, or of a store that is not read.
        UnavailableError: a store does not answer.
    """
    from reconcile.jobs import recover as job
    from reconcile.plan.actions import Passwords
    from recovery.codecs.store import Layout
    from recovery.errors import InputError
    from recovery.infer.lost_disks import LostDisk
    from recovery.infer.search import Tail
    from recovery.place import to_place

    if (metadata is None) == (layout is None):
        raise InputError("the store", "is not named, or named twice", "give metadata, or layout without a store")
    request = job.RecoverRequest(
        out=to_place(str(out)),
        inventories=_find_inventories(inventories),
        disks={},
        uri=metadata,
        layout=None if layout is None else Layout(layout),
        snapshots=tuple(snapshots),
        passwords=Passwords.from_candidates(passwords),
        expected=None if expect_bookies is None else tuple(expect_bookies),
        default_quorum=default_quorum,
        references=tuple(references),
        tail=Tail(tail),
        lost=tuple(map(LostDisk.parse, lost)),
        raise_past=None,
        master=master,
        python=None,
        aliases=dict(aliases or {}),
    )
    return job.recover(request, _make_context())


def scrutinize(
    *,
    metadata: str,
    out: Place | None = None,
    inventories: Sequence[Place] = (),
    wire: bool | None = None,
    since: Place | None = None,
    history: str | None = None,
    references: Sequence[str] = (),
    topology: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
    grace: timedelta = timedelta(days=1),
    share: tuple[int, int] = (1, 1),
    fail_on: Literal["info", "warning", "critical"] = "warning",
    min_coverage: float = 99.0,
    recheck_after: timedelta = timedelta(minutes=10),
    rechecks: int = 1,
    master: str | None = None,
) -> "Scrutinized":
    """Compare every closed ledger with what its bookies hold. Reads only.

    Args:
        metadata: URI of the store.
        out: a new folder for the run, whose findings `open_findings` reads; None: none is kept.
        inventories: of bookies that do not answer what they hold, or of all.
        wire: ask running bookies; None: where no inventories are given.
        since: an earlier run, which says what is new and what is resolved.
        history: `backup:PLACE`, a backup of the store: it says which records are newer than an inventory.
        references: files and URIs of what upper layers know.
        topology: bookie id or host → location; None: placement is not judged.
        aliases: other names of bookies in records → ids.
        grace: how long a mark, or a recovery, may last.
        share: (n, of how many): the part of all ledgers that is compared.
        fail_on: the lightest severity that counts as failing.
        min_coverage: per cent of copies that must be judged.
        recheck_after: until bookies that did not answer are asked again.
        rechecks: how often they are.
        master: Spark's; None: this process where that takes seconds, else that of Spark's own settings, else this host.

    Raises:
        UnsupportedStoreError: the URI is malformed, or of a store that is not read.
        UnavailableError: the store does not answer.
        DatasetError: an inventory is damaged, or the folder cannot be written.
        InputError: files that cannot be used.
    """
    from reconcile.check.scrutiny.judge import Demands
    from reconcile.jobs.scrutiny.request import ScrutinyRequest
    from reconcile.jobs.scrutiny.scrutinize import scrutinize as run
    from reconcile.rules.segments.placement import PlacementSettings
    from recovery.place import to_place

    with ExitStack() as stack:
        folder = str(out) if out is not None else f"{stack.enter_context(TemporaryDirectory(prefix='bkmeta-'))}/run"
        request = ScrutinyRequest(
            uri=metadata,
            out=to_place(folder),
            inventories=_find_inventories(inventories),
            wire=_ask(aliases) if (not inventories if wire is None else wire) else None,
            demands=Demands(grace.total_seconds(), topology, PlacementSettings()),
            share=share,
            fail_on=fail_on,
            min_coverage=min_coverage,
            recheck_after_s=recheck_after.total_seconds(),
            rechecks=rechecks,
            since=None if since is None else to_place(str(since)),
            master=master,
            aliases=dict(aliases or {}),
            references=tuple(references),
            is_kept=out is not None,
            history=history,
        )
        return run(request, _make_context())


def check_impact(
    *,
    metadata: str,
    bookies: Sequence[Sequence[str]] = (),
    domains: Sequence[str] = (),
    hosts: Sequence[str] = (),
    target: Literal["read-only", "down", "gone"] = "down",
    ledgers: Sequence["LedgerId | int | str"] = (),
    inventories: Sequence[Place] = (),
    evidence: Sequence[Place] = (),
    references: Sequence[str] = (),
    topology: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
    most_unavailable: float = 25.0,
    stable_for: int = 1,
    cache: File | None = None,
    max_age: timedelta = timedelta(minutes=10),
    master: str | None = None,
    out: Place | None = None,
) -> "ImpactAnswer":
    """Say whether bookies may be taken away, and which ledgers are affected. Reads only.

    Args:
        metadata: URI of the store, of a copy, or a captured catalog.
        bookies: sets of ids; each is judged alone.
        domains: locations, or the beginning of locations, instead.
        hosts: patterns of host names, instead.
        target: what is done to them.
        ledgers: only these; empty: all.
        inventories: what bookies hold.
        evidence: runs of `scrutinize`, and what they know of copies.
        references: files and URIs of what upper layers know.
        topology: bookie id or host → location; None: the store's rack information.
        aliases: other names of bookies in records → ids.
        most_unavailable: per cent of the capacity that may be lost.
        stable_for: captures in a row that must be safe.
        cache: folder of captures that are used again; None: the user's.
        max_age: of such a capture.
        master: Spark's; None: this process where that takes seconds, else that of Spark's own settings, else this host.
        out: a new folder for the dataset of affected segments; None: none is written.

    Raises:
        UnsupportedStoreError: the URI is malformed, or of a store that is not read.
        UnavailableError: the store does not answer.
        DatasetError: a catalog or an inventory is damaged, or a folder cannot be written.
        InputError: a bookie or a domain is named that does not exist.
    """
    from reconcile.check.impact.names import ImpactTarget
    from reconcile.jobs.collect.tables import with_tables
    from reconcile.jobs.impact.check import check_impact as run
    from reconcile.jobs.impact.question import ImpactRequest, Taken
    from reconcile.jobs.references import read_references
    from reconcile.operator_files import find_cache_folder
    from recovery.dataset import open_dataset
    from recovery.place import to_place

    context = _make_context()
    with with_tables(_find_inventories(inventories), context.now()) as folders:
        request = ImpactRequest(
            uri=metadata,
            cache=find_cache_folder() if cache is None else Path(cache),
            max_age=max_age,
            taken=Taken(tuple(map(tuple, bookies)), tuple(domains), tuple(hosts), ImpactTarget(target)),
            topology=topology,
            ledgers=_parse_ledgers(ledgers) or None,
            references=read_references(references, context),
            inventories=tuple(open_dataset(folder, "inventory") for folder in folders),
            evidence=tuple(to_place(str(run)) for run in evidence),
            most_unavailable=most_unavailable,
            stable_for=stable_for,
            aliases=dict(aliases or {}),
            master=master,
            out=None if out is None else to_place(str(out)),
        )
        return run(request, context)


def verify_deletes(
    *,
    metadata: str,
    ledgers: Sequence["LedgerId | int | str"] = (),
    inventories: Sequence[Place] = (),
    wire: bool = False,
    references: Sequence[str] = (),
    evidence: Sequence[Place] = (),
    aliases: Mapping[str, str] | None = None,
    min_age: timedelta = timedelta(days=1),
    freshness: timedelta = timedelta(days=1),
    stable_for: int = 2,
    certificate: File | None = None,
    sign_key: File | None = None,
    confirm: int | None = None,
    absent: int | None = None,
    journal: File | None = None,
) -> "VerifiedDeletes":
    """Decide for each ledger whether it may be deleted. Writes tombstones; deletes nothing.

    Args:
        metadata: URI of the store.
        ledgers: which; empty: all that were requested and whose verification is due.
        inventories: of bookies.
        wire: ask running bookies.
        references: files and URIs of what upper layers know.
        evidence: runs of `scrutinize`, and what they know of copies.
        aliases: other names of bookies in records → ids.
        min_age: of a ledger when references were listed.
        freshness: age of an inventory, at most.
        stable_for: safe verifications in a row before a purge.
        certificate: file for the certificate of the ledgers that may be purged; None: none is made.
        sign_key: PEM file of the Ed25519 private key that signs it.
        confirm: number of deletes that a person confirmed although the breaker trips.
        absent: number of ledgers that are no longer in the store, and a person confirmed.
        journal: folder of the journal; None: the default one of the store.

    Raises:
        GuardRefusedError: bkmeta's own root is not ours, or the clocks differ.
        InputError: neither inventories nor `wire`, or files that cannot be used.
        UnavailableError: the store does not answer.
        DatasetError: an inventory is damaged.
    """
    from reconcile.deletes.verification.verdicts import Rules
    from reconcile.jobs.deletes.clusters import DeleteTarget
    from reconcile.jobs.deletes.looks import Looks
    from reconcile.jobs.deletes.verify import VerifyDeletesRequest
    from reconcile.jobs.deletes.verify import verify_deletes as run
    from recovery.errors import InputError
    from recovery.place import to_place

    looks = Looks(_find_inventories(inventories), _ask(aliases) if wire else None, aliases=dict(aliases or {}))
    if not looks.are_asked:
        raise InputError("what bookies hold", "is not known", "give inventories or wire=True")
    rules = Rules(_to_ms(min_age), _to_ms(freshness), confirmed=confirm, absent=absent)
    request = VerifyDeletesRequest(
        target=DeleteTarget(metadata, None if journal is None else Path(journal)),
        ledgers=_parse_ledgers(ledgers),
        looks=looks,
        references=tuple(references),
        rules=rules,
        looks_needed=stable_for,
        certificate=None if certificate is None else Path(certificate),
        sign_key=None if sign_key is None else Path(sign_key),
        runs=tuple(to_place(str(run)) for run in evidence),
    )
    return run(request, _make_context())


def check_certificate(
    *, file: File, key: File | None = None, ledgers: Sequence["LedgerId | int | str"] = ()
) -> "CertificateCheck":
    """Say whether a certificate of deletes holds now, and names some ledgers. No store is read.

    Args:
        file: the certificate.
        key: PEM file of the Ed25519 public key that must have signed it; None: a signature is not checked.
        ledgers: that it must name.

    Raises:
        InputError: the file or the key cannot be read.
    """
    from reconcile.jobs.deletes import certificate as job

    request = job.CertificateRequest(
        file=Path(file), key=None if key is None else Path(key), ledgers=_parse_ledgers(ledgers)
    )
    return job.check(request, _make_context())


def archive(
    *,
    metadata: str,
    place: Place,
    disks: Mapping[str, Sequence[File]] | None = None,
    ledgers: Sequence["LedgerId | int | str"] = (),
    older_than: timedelta | None = None,
    topics: str | None = None,
    max_mb_s: float | None = None,
    aliases: Mapping[str, str] | None = None,
    journal: File | None = None,
    master: str | None = None,
) -> "Archived":
    """Copy closed ledgers into an archive, each once, and mark them. Writes marks beside the ledgers root.

    Needs the extra `spark` and Java; a session that this process has already is ended with the call. No bookie is
    written to.

    Args:
        metadata: URI of the store.
        place: folder of the archive, or its URI: a new one, or one of the same cluster.
        disks: bookie → its folders, which are read; None: the running bookies are.
        ledgers: these only; empty: all.
        older_than: only ledgers whose record has not changed for so long.
        topics: only ledgers with messages of these topics of Pulsar: persistent://tenant/namespace/topic, `*` and `?`.
        max_mb_s: MiB that are read in a second, of all bookies together; None: no limit.
        aliases: other names of bookies in records → ids.
        journal: folder of the journal; None: the default one of the store.
        master: Spark's; None: that of Spark's own settings, else this host.

    Raises:
        DatasetError: the place is no archive and not empty, another run writes there, or it cannot be written.
        GuardRefusedError: the archive is of another cluster, or bkmeta's own root is not ours.
        InputError: no ledgers root, no Java or Spark, or folders that are no bookie's.
        SparkError: Spark failed.
        UnavailableError: the store does not answer.
    """
    from reconcile.jobs.archive import run as job
    from reconcile.jobs.deletes.clusters import DeleteTarget
    from recovery.place import to_place

    request = job.RunRequest(
        target=DeleteTarget(metadata, None if journal is None else Path(journal)),
        place=to_place(str(place)),
        source=_ask(aliases) if disks is None else {name: _paths(folders) for name, folders in disks.items()},
        master=master,
        aliases=dict(aliases or {}),
        ledgers=_parse_ledgers(ledgers),
        older_than=older_than,
        topics=topics,
        max_mb_s=max_mb_s,
    )
    return job.archive(request, _make_context())


def verify_archive(
    *,
    place: Place,
    ledgers: Sequence["LedgerId | int | str"] = (),
    sample: int | None = None,
    master: str | None = None,
) -> "VerifiedArchive":
    """Prove an archive from its place alone: that no entry is missing, and that each digest and each hash agrees.

    Args:
        place: of the archive.
        ledgers: these only; empty: all.
        sample: so many ledgers, other ones at each call; None: all.
        master: Spark's, whose tasks read; None: this process reads.

    Raises:
        DatasetError: the place is no archive, or cannot be reached.
        InputError: both `ledgers` and `sample`.
        SparkError: Spark failed.
    """
    import secrets

    from reconcile.jobs.archive import verify as job
    from recovery.errors import InputError
    from recovery.place import to_place

    if ledgers and sample is not None:
        raise InputError("what is read", "is named twice", "give ledgers or sample")
    seed = 0 if sample is None else secrets.randbits(62)
    request = job.VerifyArchiveRequest(
        place=to_place(str(place)), ledgers=_parse_ledgers(ledgers), sample=sample, seed=seed, master=master
    )
    return job.verify_archive(request, _make_context())


def read_archive(
    *,
    place: Place,
    ledger: "LedgerId | int | str",
    out: File,
    form: Literal["raw", "jsonl", "parquet", "pulsar"] = "jsonl",
    first: int = 0,
    last: int | None = None,
) -> "ReadLedger":
    """Write entries of a ledger out of an archive to a file. No store and no bookie is asked.

    Args:
        place: of the archive.
        ledger: which.
        out: a new file, which only its owner may read.
        form: of the file; the page *Archives* of the formats describes each.
        first: first entry.
        last: last entry; None: to the end.

    Raises:
        DatasetError: the place is no archive, an object of it is gone or damaged, or the disk is full.
        InputError: the archive has no such ledger, or the file is there already.
    """
    from reconcile.jobs.archive import read as job
    from recovery.bookies.entry_files import EntryFormat
    from recovery.place import to_place

    [named] = _parse_ledgers([ledger])
    request = job.ReadRequest(place=to_place(str(place)), ledger=named, form=EntryFormat(form), first=first, last=last)
    return job.read_to_file(request, Path(out), _make_context())


def _make_context() -> "Context":
    from reconcile.cli.access import EnvironmentAccess
    from reconcile.jobs.context import Context, SilentReporter

    return Context(EnvironmentAccess(), SilentReporter(), lambda: datetime.now(UTC))


def _open(path: Place, kind: str) -> OpenDataset:
    from recovery.dataset import open_dataset
    from recovery.place import to_place

    dataset = open_dataset(to_place(str(path)), kind)
    rows = {name: dataset.rows(name) for name in dataset.manifest["tables"]}
    return OpenDataset(dataset.path, dataset.kind, dataset.manifest, rows)


def _paths(names: Sequence[File]) -> tuple[Path, ...]:
    return tuple(map(Path, names))


def _find_inventories(names: Sequence[Place]) -> tuple[str, ...]:
    """Return inventories, those in and below folders, and files of tables, in their order."""
    from reconcile.jobs.collect.inventories import find_inventories

    found = ((name,) if Path(name).is_file() else find_inventories([name]) for name in map(str, names))
    return tuple(dict.fromkeys(path for paths in found for path in paths))


def _parse_ledgers(names: Sequence["LedgerId | int | str"]) -> "tuple[LedgerId, ...]":
    from recovery.errors import InputError
    from recovery.model.ids import LedgerId, parse

    try:
        return tuple(name if isinstance(name, LedgerId) else parse(str(name)) for name in names)
    except ValueError as error:
        raise InputError(
            "a ledger", f"is named wrongly: {error}", "give a number, SCOPE:LEDGER or 32 digits"
        ) from error


def _ask(aliases: Mapping[str, str] | None) -> "WireOptions":
    from backends.bookie.client import BookieOptions
    from reconcile.jobs.context import WireOptions

    return WireOptions(BookieOptions(), dict(aliases or {}))


def _to_ms(time: timedelta) -> int:
    return time // timedelta(milliseconds=1)
