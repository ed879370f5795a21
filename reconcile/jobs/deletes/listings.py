"""What upper layers refer to, listed for deletes, with the time that each listing speaks of; what a store lists."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.errors import BackendError
from backends.protocols import ScannableStore
from backends.registry import OpenStore
from reconcile.clusters import InstanceSource, require_one
from reconcile.deletes.certificate import Certificate
from reconcile.deletes.own_root import OwnRoot, read_instance_id, read_last_listing
from reconcile.deletes.purge import count_since
from reconcile.deletes.tombstones import SKEW_MS
from reconcile.deletes.verification.absence import Absence, measure_absence
from reconcile.deletes.verification.evidence import ReferenceListing
from reconcile.jobs.context import Context, connect, now_ms
from reconcile.references import TOPICS, References, find_pravega, has_topics, list_uncopied, of_store, read_listing
from reconcile.stores import is_live, is_store
from recovery.codecs.store_kind import kind_of
from recovery.dataset import Dataset
from recovery.errors import InputError


@dataclass(frozen=True, slots=True)
class ListedReferences:
    """One listing of all that was named, and of Pulsar's records where they are beside the ledgers.

    Attributes:
        listing: for verdicts.
        sources: what was read: its name, and the digest of a file's bytes; empty: of a store.
    """

    listing: ReferenceListing
    sources: tuple[tuple[str, str], ...]


def list_references(names: Sequence[str], opened: OpenStore, context: Context) -> ListedReferences:
    """Read what upper layers refer to; a store that fails makes the listing incomplete.

    Args:
        names: files and URIs.
        opened: the ledgers' store: Pulsar's records that are beside them are read unasked; of a copy as of its time.
        context: of the job.

    Raises:
        InputError: a file cannot be read, or is none; or a store is of another cluster.
        UnsupportedStoreError: a URI that is malformed, or of a store that is not read.
    """
    at_ms = now_ms(context)
    parts: list[References] = []
    sources: list[tuple[str, str]] = []
    problems: list[str] = []
    above = opened.root.rpartition("/")[0]
    logs: str | None = None
    try:
        logs = find_pravega(opened)
        if logs is not None or has_topics(opened.store, above + TOPICS):
            parts.append(of_store(opened))
            sources.append((f"{logs or above + TOPICS} beside the ledgers", ""))
            shown_ms, doubts = _look_at_copy(opened)
            at_ms, problems = min(at_ms, shown_ms or at_ms), [*problems, *doubts]
        else:
            problems += _list_uncopied(opened)
    except BackendError as error:
        problems.append(f"the upper layer's records could not be read ({error})")
    for name in dict.fromkeys(names):
        if not is_store(name):
            path = Path(name)
            rows, stated_ms = read_listing(path)
            parts.append(References(rows))
            with path.open("rb") as file:
                sources.append((str(path.resolve()), hashlib.file_digest(file, "sha256").hexdigest()))
            file_ms = path.stat().st_mtime_ns // 1_000_000 if stated_ms is None else stated_ms
            if file_ms > at_ms + SKEW_MS:
                problems.append(f"{name} was listed later than now: a clock is wrong")
            at_ms = min(at_ms, file_ms)
            continue
        try:
            with connect(name, context) as store:
                parts.append(of_store(store))
                shown_ms, doubts = _look_at_copy(store)
                at_ms, problems = min(at_ms, shown_ms or at_ms), [*problems, *doubts]
            sources.append((name, ""))
        except BackendError as error:
            problems.append(f"{name} could not be listed ({error})")
    united = References.unite(parts)
    if united is not None:
        problems += [f"{where} cannot be read ({why})" for where, why in united.unreadable[:1]]
        problems += [f"a copy of a store lacks a part ({gap})" for gap in united.gaps[:1]]
        own = InstanceSource(f"the store {opened.uri}", read_instance_id(opened.store, opened.root) or None)
        require_one([own, *united.stores])
    is_stated = any(digest for _, digest in sources)
    listing = ReferenceListing(united, at_ms, "; ".join(problems), is_stated, has_pravega=logs is not None)
    return ListedReferences(listing, tuple(sources))


def find_moment(opened: OpenStore) -> int | None:
    """Return the time that a copy of a store shows, ms since 1970; None: a running store, or it is not known."""
    if is_live(opened.uri) or not isinstance(opened.store, ScannableStore):
        return None
    return opened.store.point().at_ms


def _look_at_copy(opened: OpenStore) -> tuple[int | None, list[str]]:
    """Return the time that a store shows, None if that is now; and what keeps a copy from being a whole listing."""
    if is_live(opened.uri):
        return None, []
    shown_ms = find_moment(opened)
    problems = [] if shown_ms else [f"{opened.uri} is a copy without the time that it shows"]
    return shown_ms, [*problems, *_list_uncopied(opened)]


def _list_uncopied(opened: OpenStore) -> list[str]:
    """Return why a copy of chosen parts of a store does not show what Pulsar names; none: it does, or Pulsar cannot."""
    if not kind_of(opened.layout_hint).has_pulsar:
        return []
    return [f"{opened.uri} has no copy of {key}: take one with what Pulsar keeps" for key in list_uncopied(opened)]


@dataclass(frozen=True, slots=True)
class ListedAgain:
    """What a verification read, read once more.

    Attributes:
        listing: of running stores, and of files that are still here.
        as_then: names of what was not: files that are gone, and copies of stores.
    """

    listing: ReferenceListing
    as_then: tuple[str, ...]


def list_again(certificate: Certificate, opened: OpenStore, context: Context) -> ListedAgain:
    """List again what a certificate's verification read, as far as it is still here.

    Raises:
        UnsupportedStoreError: a URI that is malformed, or of a store that is not read.
    """
    rows = certificate.body["evidence"].get("references", [])
    sources = {source["name"]: bool(source["sha256"]) for row in rows for source in row["sources"]}
    named = {name: is_file for name, is_file in sorted(sources.items()) if is_file or is_store(name)}
    here = [name for name, is_file in named.items() if (Path(name).is_file() if is_file else is_live(name))]
    as_then = tuple(name for name in named if name not in here)
    try:
        return ListedAgain(list_references(here, opened, context).listing, as_then)
    except InputError as error:
        return ListedAgain(ReferenceListing(None, now_ms(context), str(error)), as_then)


def measure_since_listing(
    opened: OpenStore, own: OwnRoot | None, capture: Dataset, at_ms: int, history: str | None = None
) -> Absence | None:
    """Return what went since the last verification listed the store; None: there was none.

    Args:
        opened: the store.
        own: our own root in it; None: there is none.
        capture: of the store now.
        at_ms: now.
        history: URI of a backup of the store, which has who was deleted since; None: there is none.

    Raises:
        DatasetError: the capture or the backup is damaged.
        InputError: the URI names no backup, or one of another store.
        FormatError: what that verification wrote is not ours to read.
    """
    earlier = None if own is None else read_last_listing(opened.store, own)
    if own is None or earlier is None:
        return None
    explained = 0
    if history is not None:
        from reconcile.jobs.backup_history import open_history, read_deletes  # noqa: PLC0415 - loaded for backups alone

        explained = read_deletes(open_history(history, capture), capture, since_ms=earlier.at_ms).num_rows
    purged = count_since(own.tombstones.read_all(), earlier.at_ms)
    return measure_absence(capture, earlier, purged, at_ms, explained)
