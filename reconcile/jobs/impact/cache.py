"""Captures that are kept for a while, so that a question before a reboot costs no listing of the whole store.

    <folder>/<hash of the store's URI>/<time of the capture>/   a catalog; the newest whole one counts
    <folder>/<hash of the store's URI>/unrecoverable.jsonl      what persons declared: at, by, reason, bookie
    <folder>/<hash of the store's URI>/moments.json             when captures found the store at which transaction

What changes by the minute is read anew even where records are not: who is registered, cookies, the auditor, and whether
re-replication is disabled. A bookie that was stopped five minutes ago must count as down.

A capture that is older than asked for, broken off, or of another cluster than the store is of by now, is made again
beside it; two are kept, for somebody may still read the one before.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.check.impact.answer import LossStatement
from reconcile.check.scrutiny.evidence_age import Moment
from reconcile.clusters import is_of_cluster
from reconcile.deletes.own_root import read_instance_id
from reconcile.jobs.capture import CaptureRequest, capture
from reconcile.jobs.context import Context, connect
from reconcile.stores import CATALOG, catalog_path, is_live
from recovery.codecs.store import REPLICATION_DISABLED, UNDERREPLICATION, places
from recovery.dataset import MANIFEST, Dataset, open_dataset
from recovery.errors import DatasetError, InputError

VOTES: Final = f"{UNDERREPLICATION}/auditorelection"
"""Folder of who would be the auditor; the lowest of them is."""
_DAY: Final = timedelta(days=1)
_FORM: Final = "%Y%m%dT%H%M%S.%fZ"
_KEPT: Final = 2
_BROKEN_OFF: Final = timedelta(days=1)
"""A capture without an end that is older than this is nobody's."""
_STATEMENTS: Final = "unrecoverable.jsonl"
_MOMENTS: Final = "moments.json"


@dataclass(frozen=True, slots=True)
class Captured:
    """A store's records, as they were at a time.

    Attributes:
        catalog: of kind catalog.
        at: when the store was as the catalog shows it.
        alive: registrations in it are of bookies that ran then.
        is_fresh: captured for this question.
        since_txn: the newest transaction that the store is known to have had a day before; None: none is known.
    """

    catalog: Dataset
    at: datetime
    alive: bool
    is_fresh: bool
    since_txn: int | None = None


def provide_catalog(uri: str, folder: Path, max_age: timedelta, context: Context) -> Captured:
    """Return a store's records, captured now if none is young enough.

    Args:
        uri: the store, files of one, or a capture, which is taken as it is.
        folder: of the cache.
        max_age: of what is used again; zero or less: nothing is.
        context: of the job.

    Raises:
        UnsupportedStoreError: the URI is malformed, or of a store that is not read.
        UnavailableError: the store does not answer.
        DatasetError: the folder cannot be written.
    """
    path = catalog_path(uri)
    if path is not None:
        return _describe(open_dataset(path, CATALOG), None, alive=False, is_fresh=False)
    own = _folder_of(uri, folder)
    now = context.now()
    for name, captured in _list_captures(own):
        if timedelta(0) <= now - captured < max_age:
            try:
                kept = _describe(open_dataset(own / name, CATALOG), own, alive=is_live(uri), is_fresh=False)
            except DatasetError:
                # Damaged: made again.
                break
            with connect(uri, context) as opened:
                if is_of_cluster(kept.catalog, read_instance_id(opened.store, opened.root)):
                    return kept
            break
    target = name_capture(uri, folder, now)
    capture(CaptureRequest(uri=uri, out=target), context)
    return _describe(keep_capture(target, now), own, alive=is_live(uri), is_fresh=True)


def find_newest(uri: str, folder: Path) -> datetime | None:
    """Return when the newest whole capture of a store began; None: there is none.

    Raises:
        InputError: the folder cannot be made.
    """
    own = _folder_of(uri, folder)
    return next((captured for name, captured in _list_captures(own) if (own / name / MANIFEST).exists()), None)


def name_capture(uri: str, folder: Path, now: datetime) -> Path:
    """Return where a capture of a store that begins now belongs.

    Raises:
        InputError: the folder cannot be made.
    """
    return _folder_of(uri, folder) / now.astimezone(UTC).strftime(_FORM)


def keep_capture(target: Path, now: datetime) -> Dataset:
    """Return a capture that was made; older ones than the one before it are removed.

    Raises:
        DatasetError: it is not whole.
    """
    catalog = open_dataset(target, CATALOG)
    _forget_old(target.parent, target.name, now)
    _keep_moment(target.parent, catalog)
    return catalog


def read_present_nodes(uri: str, nodes: pa.Table, context: Context) -> pa.Table:
    """Return a capture's nodes with those of now in the place of registrations, cookies, votes and the switch.

    Args:
        uri: a live store.
        nodes: path, kind, raw, created_txn and changed_txn of CATALOG_NODES.
        context: of the job.

    Raises:
        UnavailableError: the store does not answer.
        AccessDeniedError: something of it may not be read.
    """
    with connect(uri, context) as opened:
        where = places(opened.layout_hint)
        writable, read_only = where.registrations
        folders = {writable: "registration", read_only: "registration", where.cookies: "cookie", VOTES: "other"}
        kinds = {REPLICATION_DISABLED: "other"}
        for folder, kind in folders.items():
            names = opened.store.children(opened.root + folder) or []
            kinds |= {f"{folder}/{name}": kind for name in names if f"{folder}/{name}" != read_only}
        values = opened.store.get_many([opened.root + path for path in kinds])
        present = [
            {
                "path": path,
                "kind": kind,
                "raw": node.value,
                "created_txn": node.created_txn,
                "changed_txn": node.changed_txn,
            }
            for (path, kind), (_, node) in zip(kinds.items(), values, strict=True)
            if node is not None
        ]
    changing = pc.is_in(nodes["kind"], value_set=pa.array(["registration", "cookie"]))
    changing = pc.or_(changing, pc.starts_with(nodes["path"], f"{VOTES}/"))
    changing = pc.or_(changing, pc.equal(nodes["path"], REPLICATION_DISABLED))
    return pa.concat_tables([nodes.filter(pc.invert(changing)), pa.Table.from_pylist(present, schema=nodes.schema)])


def _folder_of(uri: str, folder: Path) -> Path:
    own = folder / hashlib.sha256(uri.encode()).hexdigest()[:16]
    try:
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        remedy = "name another folder for the captures"
        raise InputError(str(own), f"cannot be made ({error.strerror or error})", remedy) from error
    return own


def _describe(catalog: Dataset, own: Path | None, *, alive: bool, is_fresh: bool) -> Captured:
    at: datetime = catalog.read("sources", columns=["at"])["at"][0].as_py()
    older = [] if own is None else [moment.txn for moment in _read_moments(own) if moment.time <= at - _DAY]
    return Captured(catalog, at, alive, is_fresh, max(older, default=None))


def _read_moments(own: Path) -> list[Moment]:
    """Return when captures found the store at which transaction; a file that is damaged counts as none."""
    with suppress(OSError, ValueError, TypeError, IndexError):
        return [Moment.from_json(fields) for fields in json.loads((own / _MOMENTS).read_text(encoding="utf-8"))]
    return []


def _keep_moment(own: Path, catalog: Dataset) -> None:
    """Keep a capture's transaction and time; of those that are older than a day only the newest is of use."""
    source = catalog.read("sources", columns=["at", "txn"]).to_pylist()[0]
    if source["txn"] is None:
        return
    known = sorted([*_read_moments(own), Moment(source["txn"], source["at"])], key=lambda moment: moment.time)
    older = [moment for moment in known if moment.time <= source["at"] - _DAY]
    beside = own / f".{_MOMENTS}.{os.getpid()}"
    # The next question finds one as well; what is lost with a full disk is only a narrower choice of shapes.
    with suppress(OSError):
        beside.write_text(json.dumps([moment.to_json() for moment in [*older[-1:], *known[len(older) :]]]))
        beside.replace(own / _MOMENTS)


def _list_captures(own: Path) -> list[tuple[str, datetime]]:
    """Return the captures of a store, the newest first, with their times."""
    captures = []
    for entry in own.iterdir():
        try:
            captured = datetime.strptime(entry.name, _FORM).replace(tzinfo=UTC)
        except ValueError:
            continue
        captures.append((entry.name, captured))
    return sorted(captures, reverse=True)


def _forget_old(own: Path, latest: str, now: datetime) -> None:
    """Remove captures but the latest, which need not be the newest by name: a clock may have been set back."""
    whole = 1
    for name, captured in _list_captures(own):
        if name == latest:
            continue
        is_whole = (own / name / MANIFEST).exists()
        whole += is_whole
        if (is_whole and whole > _KEPT) or (not is_whole and now - captured > _BROKEN_OFF):
            shutil.rmtree(own / name, ignore_errors=True)


def record_statements(uri: str, folder: Path, statements: Sequence[LossStatement]) -> None:
    """Keep what a person declared.

    Raises:
        InputError: it cannot be written.
    """
    path = _folder_of(uri, folder) / _STATEMENTS
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(statement)) + "\n" for statement in statements)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        remedy = "free space, or name another folder for the captures"
        raise InputError(str(path), f"cannot be written ({error.strerror or error})", remedy) from error


def read_statements(uri: str, folder: Path) -> tuple[LossStatement, ...]:
    """Return what persons declared of a store's bookies, the latest of each; lines that are none are left out."""
    path = _folder_of(uri, folder) / _STATEMENTS
    latest: dict[str, LossStatement] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        try:
            statement = LossStatement(**json.loads(line))
        except (ValueError, TypeError):
            continue
        latest[statement.bookie] = statement
    return tuple(latest.values())
