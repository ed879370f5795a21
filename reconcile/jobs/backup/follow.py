"""A backup that follows a live store: a base, then every change, sealed every few seconds.

    thread    does
    caller's  takes changes from the feed, and seals them
    base      captures the store again when the last base is old; changes are sealed meanwhile

Where changes are missing, a new base is captured, and the gap is sealed with it.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from backends.errors import UnavailableError
from backends.protocols import ChangeFeed, FeedGap, Followed, LiveStore, ScannableStore
from backends.registry import OpenStore, StoreAddress, open_feed, parse_store_uri
from reconcile.jobs.backup.prune import forget_before
from reconcile.jobs.capture import capture_store
from reconcile.jobs.context import Context, SilentReporter
from reconcile.stores import choose_identity
from recovery.backup.chain import BackupWriter
from recovery.backup.encryption import Recipient
from recovery.capture.subtrees import NO_SUBTREES, SubtreeChoice
from recovery.capture.summary import CaptureSummary
from recovery.codecs.store import OWN_ROOT
from recovery.codecs.store_kind import kind_of
from recovery.dataset import open_dataset
from recovery.errors import InputError
from recovery.model.tables import BACKUP_CHANGES
from recovery.place import DatasetPlace

_LOG: Final = logging.getLogger(__name__)
_AGAIN_MS: Final = 60_000
"""Until a base that could not be captured is tried again."""


@dataclass(frozen=True, slots=True)
class FollowRequest:
    """What is followed, and where to.

    Attributes:
        uri: the live store.
        place: the backup's folder; one that is there is gone on with.
        logs: folders of a ZooKeeper server's logs.
        subtrees: what is followed of upper layers.
        seal_after: changes are sealed after so long.
        seal_bytes: or as soon as there are so many bytes of them.
        base_every: until the next base.
        recipient: who can read the backup; None: it is not encrypted.
        keep: every moment of so long can be restored; what is older goes with each new base. None: nothing goes.
    """

    uri: str
    place: DatasetPlace
    logs: tuple[str, ...] = ()
    subtrees: SubtreeChoice = NO_SUBTREES
    seal_after: timedelta = timedelta(seconds=5)
    seal_bytes: int = 1 << 20
    base_every: timedelta = timedelta(hours=24)
    recipient: Recipient | None = None
    keep: timedelta | None = None


@dataclass(slots=True)
class FollowStatus:
    """How far a follower is.

    Attributes:
        changes, seals, bases, gaps: of this run.
        through: last transaction that is sealed.
        until_ms: all that was committed before this time is sealed; 0: nothing is.
        gap: why the last gap is there; empty: there was none in this run.
    """

    changes: int = 0
    seals: int = 0
    bases: int = 0
    gaps: int = 0
    through: int = 0
    until_ms: int = 0
    gap: str = ""

    def measure_rpo_s(self, now_ms: int) -> float:
        """Return the age of what is sealed: so many seconds of changes would be lost now."""
        return max(0, now_ms - self.until_ms) / 1000


@dataclass(slots=True)
class _Waiting:
    """Changes that are not sealed yet."""

    through: int
    until_ms: int
    tables: list[pa.Table] = field(default_factory=list)
    bytes: int = 0

    def take(self, followed: Followed) -> None:
        """Take changes; those that were taken before are left out."""
        rows = followed.rows.filter(pc.greater(followed.rows["txn"], self.through))
        if rows.num_rows:
            self.tables.append(_as_changes(rows))
            self.bytes += rows.nbytes
        self.through = max(self.through, followed.through)
        self.until_ms = max(self.until_ms, followed.until_ms)


def follow_store(
    request: FollowRequest, context: Context, ended: threading.Event, report: Callable[[FollowStatus], None]
) -> FollowStatus:
    """Follow a store until `ended` is set; return how far it came.

    Args:
        request: what, and where to.
        context: whom stores take it for, and the clock.
        ended: set to end it; what was received by then is sealed.
        report: called after each seal.

    Raises:
        AccessDeniedError: changes may not be read.
        CorruptStoreError: the store's history is not the one that was followed.
        DatasetError: the folder cannot be written, holds another backup, or another one writes it.
        UnavailableError: the store does not answer, and there is no base yet.
        UnsupportedStoreError: the URI is malformed, or of a store that is not followed.
    """
    address = parse_store_uri(request.uri)
    root = address.root.rstrip("/")
    subtrees = request.subtrees.resolve(root, kind_of(address.layout_hint), request.uri)
    tops = (root, root + OWN_ROOT, *subtrees)
    access = context.access
    feed = open_feed(
        request.uri,
        tops,
        logs=request.logs,
        auth=choose_identity(access, request.uri),
        sasl=access.sasl,
        tls=access.tls,
        patience_s=access.patience_s,
    )
    with closing(feed):
        binding = {
            "uri": request.uri,
            "root": root,
            "layout": address.layout_hint,
            "tops": list(tops),
            "means": feed.means,
            "history": feed.identify(),
        }
        writer = BackupWriter(request.place, binding, request.recipient)
        return _Run(request, context, feed, address, writer, ended, report).run()


class _Run:
    """One follower at work."""

    def __init__(
        self,
        request: FollowRequest,
        context: Context,
        feed: ChangeFeed,
        address: StoreAddress,
        writer: BackupWriter,
        ended: threading.Event,
        report: Callable[[FollowStatus], None],
    ) -> None:
        self._request = request
        self._context = context
        self._feed = feed
        self._address = address
        self._writer = writer
        self._ended = ended
        self._report = report
        self._status = FollowStatus(through=writer.manifest.through, until_ms=writer.manifest.until_ms)
        self._capturing: _BaseThread | None = None
        self._next_base_ms = 0.0

    def run(self) -> FollowStatus:
        """Follow."""
        gap: str | None = None
        try:
            if not self._writer.has_base:
                self._capture_base(None)
            while not self._ended.is_set():
                if gap is not None:
                    self._capture_base(gap)
                gap = self._follow()
        finally:
            if self._capturing is not None:
                self._writer.give_up_base(self._capturing.folder)
        return self._status

    def _now_ms(self) -> int:
        return int(self._context.now().timestamp() * 1000)

    def _follow(self) -> str | None:
        """Seal what the feed gives; return why there is a gap, or None where it was stopped."""
        manifest = self._writer.manifest
        waiting = _Waiting(manifest.through, manifest.until_ms)
        sealed_ms = self._now_ms()
        after_ms = self._request.seal_after / timedelta(milliseconds=1)
        changes = self._feed.follow(manifest.through)
        try:
            for item in changes:
                gap = item.why if isinstance(item, FeedGap) else None
                if isinstance(item, Followed):
                    waiting.take(item)
                now_ms = self._now_ms()
                is_due = now_ms - sealed_ms >= after_ms or waiting.bytes >= self._request.seal_bytes
                # A clock that is put back delays nothing.
                if is_due or gap is not None or self._ended.is_set() or now_ms < sealed_ms:
                    self._seal(waiting, now_ms)
                    waiting = _Waiting(self._writer.manifest.through, self._writer.manifest.until_ms)
                    sealed_ms = now_ms
                if gap is not None or self._ended.is_set():
                    return gap
                self._look_after_base(now_ms)
        finally:
            changes.close()  # type: ignore[attr-defined]  # a generator
        return None

    def _seal(self, waiting: _Waiting, now_ms: int) -> None:
        rows = pa.concat_tables(waiting.tables) if waiting.tables else _NONE
        manifest = self._writer.manifest
        if not rows.num_rows and (waiting.through, waiting.until_ms) == (manifest.through, manifest.until_ms):
            return
        self._writer.seal(rows, waiting.through, waiting.until_ms, now_ms)
        self._status.changes += rows.num_rows
        self._status.seals += 1
        self._say()

    def _say(self) -> None:
        self._status.through = self._writer.manifest.through
        self._status.until_ms = self._writer.manifest.until_ms
        self._report(self._status)

    # Bases

    def _capture_base(self, gap: str | None) -> None:
        """Capture a base now: nothing can be sealed before it is there."""
        if self._capturing is not None:
            # What it captures begins before the gap's end is known.
            self._capturing.join()
            self._writer.give_up_base(self._capturing.folder)
            self._capturing = None
        thread = self._begin_base(at_once=True)
        while thread.error is not None:
            self._writer.give_up_base(thread.folder)
            if gap is None or not isinstance(thread.error, UnavailableError):
                raise thread.error
            _LOG.warning("no base yet: %s", thread.error)
            if self._ended.wait(1):
                return
            thread = self._begin_base(at_once=True)
        self._add_base(thread, gap)

    def _begin_base(self, *, at_once: bool = False) -> "_BaseThread":
        # Where nothing happens, a base shows an old moment: that one is due again says the time of the last capture.
        self._next_base_ms = self._now_ms() + self._request.base_every / timedelta(milliseconds=1)
        thread = _BaseThread(self._request, self._context, self._feed, self._address, self._writer.begin_base())
        if at_once:
            thread.run()
        else:
            thread.start()
        return thread

    def _look_after_base(self, now_ms: int) -> None:
        """Add a base that is captured, and begin the next one when the last one is old."""
        thread = self._capturing
        if thread is not None:
            if thread.is_alive():
                return
            self._capturing = None
            if thread.error is None:
                self._add_base(thread, None)
            else:
                self._writer.give_up_base(thread.folder)
                _LOG.warning("no new base: %s", thread.error)
                self._next_base_ms = now_ms + _AGAIN_MS
            return
        last_ms = max((base.until_ms for base in self._writer.manifest.bases), default=0)
        due_ms = max(last_ms + self._request.base_every / timedelta(milliseconds=1), self._next_base_ms)
        if now_ms >= due_ms:
            self._capturing = self._begin_base()

    def _add_base(self, thread: "_BaseThread", gap: str | None) -> None:
        summary = thread.summary
        if summary is None:
            raise InputError(self._request.uri, "gave no base", "see the log")
        bound = self._writer.manifest.binding.get("instance_id")
        if bound is not None and summary.instance_id is not None and summary.instance_id != bound:
            self._writer.give_up_base(thread.folder)
            problem = f"is of cluster instance {summary.instance_id} now, the backup is of {bound}"
            raise InputError(self._request.uri, problem, "follow into another folder")
        self._writer.add_base(thread.folder, thread.txn, thread.at_ms, self._now_ms(), gap)
        self._status.bases += 1
        if self._request.keep is not None:
            forget_before(self._writer, self._request.keep, 1, self._now_ms())
            self._writer.remove_strays(self._now_ms())
        if gap is not None:
            self._status.gaps += 1
            self._status.gap = gap
            _LOG.warning("a gap in the backup, up to %#x: %s", thread.txn, gap)
        self._say()


class _BaseThread(threading.Thread):
    """Captures a base; its result is there when it has ended.

    Attributes:
        folder: of the catalog.
        summary: of the capture; None: it failed.
        txn: what the base shows.
        at_ms: when the capture began.
        error: why it failed; None: it did not.
    """

    def __init__(
        self, request: FollowRequest, context: Context, feed: ChangeFeed, address: StoreAddress, folder: DatasetPlace
    ) -> None:
        super().__init__(name="base", daemon=True)
        self._request = request
        self._feed = feed
        self._address = address
        # A base that is captured beside the changes shows no progress.
        self._context = Context(context.access, SilentReporter(), context.now)
        self.folder = folder
        self.summary: CaptureSummary | None = None
        self.txn = 0
        self.at_ms = 0
        self.error: Exception | None = None

    def run(self) -> None:
        """Capture it."""
        try:
            self._capture()
        except Exception as error:  # noqa: BLE001 - who looks after it raises it, or tries again
            self.error = error

    def _capture(self) -> None:
        with closing(self._feed.open_base()) as store:
            opened = OpenStore(store, self._address.root, self._address.layout_hint, self._request.uri)
            self.at_ms = int(self._context.now().timestamp() * 1000)
            shown_txn = store.latest_txn() if isinstance(store, LiveStore) else None
            summary = capture_store(
                opened, self.folder, self._context, with_history=False, subtrees=self._request.subtrees
            )
            if isinstance(store, ScannableStore):
                point = store.point()
                shown_txn = point.txn
                self.at_ms = point.at_ms or self.at_ms
            if summary.gaps:
                _LOG.warning("the base lacks what could not be read: %s", summary.gaps[0])
            open_dataset(self.folder, "catalog")
            self.txn = shown_txn or 0
            self.summary = summary


_NONE: Final = BACKUP_CHANGES.remove(0).empty_table()


def _as_changes(rows: pa.Table) -> pa.Table:
    """Return what a feed gave as a backup has it."""
    columns = {
        "path": rows["key"],
        "at": _as_times(rows["at_ms"]),
        "received_at": _as_times(rows["received_ms"]),
        "created_at": _as_times(rows["created_ms"]),
    }
    unchanged = {name: rows[name] for name in _NONE.column_names if name in rows.column_names}
    return pa.table({name: (unchanged | columns)[name] for name in _NONE.column_names}, schema=_NONE.schema)


def _as_times(milliseconds: pa.ChunkedArray) -> pa.ChunkedArray:
    return milliseconds.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
