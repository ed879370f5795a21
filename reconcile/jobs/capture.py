"""A metadata store into a catalog."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from backends.registry import OpenStore
from reconcile.jobs.context import Context, connect, throttle
from recovery.capture import live
from recovery.capture.subtrees import NO_SUBTREES, SubtreeChoice
from recovery.capture.summary import CaptureSummary
from recovery.codecs.store import Layout
from recovery.codecs.store_kind import kind_of
from recovery.dataset import DatasetWriter
from recovery.place import DatasetPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """What is captured.

    Attributes:
        uri: the store.
        out: a new folder for the catalog.
        at: the point in time that a person named; None: the latest.
        ops_s: reads a second, at most; None: as many as the store answers.
        subtrees: what is read of upper layers.
        settings: of the run, each with where it came from, for the manifest.
    """

    uri: str
    out: DatasetPlace
    at: str | None = None
    ops_s: float | None = None
    subtrees: SubtreeChoice = NO_SUBTREES
    settings: Mapping[str, object] = field(default_factory=dict)


def capture(request: CaptureRequest, context: Context) -> CaptureSummary:
    """Read a store into a catalog.

    Raises:
        UnsupportedStoreError: the URI is malformed, or of a store that is not read.
        UnavailableError: the store does not answer; there is no catalog then.
        DatasetError: the folder cannot be written.
        InputError: nothing names a layout.
    """
    with connect(request.uri, context, at=request.at, ops_s=request.ops_s) as opened:
        return capture_store(
            opened, request.out, context, at=request.at, settings=request.settings, subtrees=request.subtrees
        )


def capture_store(
    opened: OpenStore,
    out: DatasetPlace,
    context: Context,
    known: Iterable[pa.Table] = (),
    *,
    at: str | None = None,
    settings: Mapping[str, object] | None = None,
    with_rights: bool = True,
    with_own_root: bool = True,
    with_history: bool = True,
    subtrees: SubtreeChoice = NO_SUBTREES,
) -> CaptureSummary:
    """Read an open store into a catalog.

    Args:
        opened: the store.
        out: a new folder.
        context: of the job.
        known: scope and ledger of ledgers that somebody knows of: asked for by key where no listing names them.
        at: the point in time that a person named; None: the latest.
        settings: for the manifest; None: another manifest has them.
        with_rights: the ACLs of ledgers, too: who looks only does not need them.
        with_own_root: bkmeta's own root, too: likewise, and it may be as large as the ledgers.
        with_history: what a store remembers of keys, too: etcd sends all that any key ever was.
        subtrees: what is read of upper layers.

    Raises:
        UnavailableError: the store stopped answering; there is no catalog then.
        DatasetError: the folder cannot be written.
        InputError: nothing names a layout, or a subtree is none.
    """
    layout = Layout(opened.layout_hint) if opened.layout_hint else None
    paths = subtrees.resolve(opened.root, kind_of(opened.layout_hint), opened.uri)
    binding: dict[str, object] = {"uri": opened.uri, "root": opened.root}
    binding |= ({} if at is None else {"at": at}) | ({"subtrees": list(paths)} if paths else {})
    with (
        DatasetWriter(out, "catalog", binding=binding, secret=True, settings=settings) as writer,
        context.reporter.progress("reading the store", "ledgers") as progress,
    ):
        return live.capture(
            opened.store,
            opened.root,
            layout,
            writer,
            clock=context.now,
            progress=throttle(progress),
            known=known,
            with_rights=with_rights,
            with_own_root=with_own_root,
            with_history=with_history,
            subtrees=paths,
        )
