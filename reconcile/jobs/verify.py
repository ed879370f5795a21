"""The ledgers of a plan, read back from bookies or their disks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from backends.protocols import MetadataStore
from backends.registry import OpenStore
from reconcile.check import verify as engine
from reconcile.check.guard_locks import GuardsSeen, look_at_guards
from reconcile.check.verify_results import ReadableCluster, VerifyResult
from reconcile.jobs.context import Context, WireOptions, throttle
from reconcile.jobs.starts import BookieStarts, decide_starts_now
from reconcile.plan.manifest import read_plan_manifest
from reconcile.plan.plan_reader import open_whole
from reconcile.rules.segments.member_names import require_other_names
from reconcile.stores import open_store
from recovery.bookies.addresses import read_members
from recovery.dataset import Dataset
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from recovery.bookies.disk_reader import BookieDisks
    from recovery.bookies.wire_reader import RunningCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """What is read back.

    Attributes:
        plan: its folder.
        uri: the store that it was applied to.
        source: bookies' folders, or how running bookies are asked.
        sample: how many ledgers are drawn; None: all.
        aliases: other names of bookies in records → ids.
    """

    plan: DatasetPlace
    uri: str
    source: Mapping[str, Sequence[Path]] | WireOptions
    sample: int | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What was read back, and from which bookies.

    Attributes:
        verified: what came of each ledger.
        bookies: their ids.
        unresolved: names of bookies without an address, each with the reason.
        has_wire: running bookies were asked; else disks were read.
        guards: how all locks of the plan stand.
        is_early: whether a lock is so young that somebody who held one before may still remove it.
        starts: which bookies of the plan may start now; none: that was not asked.
    """

    verified: VerifyResult
    bookies: tuple[str, ...]
    unresolved: Mapping[str, str]
    has_wire: bool
    guards: GuardsSeen
    is_early: bool
    starts: BookieStarts = field(default_factory=BookieStarts)


class NamedDisks(Mapping[str, "BookieDisks"]):
    """Disks of bookies by id, which are there under the other names of a bookie as well.

    Args:
        disks: by id.
        aliases: name → id.
    """

    def __init__(self, disks: "Mapping[str, BookieDisks]", aliases: Mapping[str, str]) -> None:
        self._disks = disks
        self._aliases = aliases

    def __getitem__(self, name: str) -> "BookieDisks":
        return self._disks[self._aliases.get(name, name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._disks)

    def __len__(self) -> int:
        return len(self._disks)


def verify(request: VerifyRequest, context: Context) -> ReadBack:
    """Read the ledgers of a plan back: records from the store, entries through them.

    Raises:
        DatasetError: it is not a whole plan.
        InputError: folders that are no bookie's.
        UnavailableError: the store does not answer.
    """
    plan, _ = open_whole(request.plan)
    with ExitStack() as stack:
        opened = stack.enter_context(open_store(request.uri, context.access))
        cluster = stack.enter_context(open_bookies(request.source, opened, context, request.aliases))
        read = read_back(plan, opened.store, opened.root, cluster, request.sample, context)
        return replace(read, starts=decide_starts_now(read_plan_manifest(plan), opened))


@contextmanager
def open_bookies(
    source: Mapping[str, Sequence[Path]] | WireOptions,
    registry: OpenStore,
    context: Context,
    aliases: Mapping[str, str],
) -> "Iterator[RunningCluster | Mapping[str, BookieDisks]]":
    """Give bookies to read entries from.

    Args:
        source: their folders, or how they are asked.
        registry: the store that running bookies are registered in.
        context: of the job.
        aliases: other names of bookies in records → ids.
    """
    if isinstance(source, WireOptions):
        from recovery.bookies.wire_reader import RunningCluster  # noqa: PLC0415 - loaded where bookies are asked

        members = read_members(registry.store, registry.root, registry.layout_hint, aliases)
        with RunningCluster(members, source.options) as cluster:
            yield cluster
        return
    require_other_names(aliases, source)
    with open_disks_of(source, context) as disks:
        yield NamedDisks(disks, aliases)


@contextmanager
def open_disks_of(source: Mapping[str, Sequence[Path]], context: Context) -> "Iterator[Mapping[str, BookieDisks]]":
    """Give the disks of bookies to read entries from.

    Args:
        source: their folders.
        context: of the job.

    Raises:
        InputError: folders that are no bookie's.
    """
    from recovery.bookies.disk_reader import open_disks  # noqa: PLC0415 - loaded where disks are read

    with ExitStack() as stack:
        disks: dict[str, BookieDisks] = {}
        with context.reporter.progress("opening disks", "bookies") as progress:
            for number, (bookie, folders) in enumerate(source.items()):
                disks[bookie] = stack.enter_context(open_disks(bookie, folders))
                progress(number + 1, len(source))
        yield disks


def read_back(
    plan: Dataset,
    store: MetadataStore,
    root: str,
    bookies: "RunningCluster | Mapping[str, BookieDisks]",
    sample: int | None,
    context: Context,
) -> ReadBack:
    """Read ledgers of a plan back from open bookies."""
    cluster: ReadableCluster = bookies
    with context.reporter.progress("reading back", "ledgers") as progress:
        verified = engine.verify(plan, store, root, cluster, sample=sample, progress=throttle(progress))
    now_ms = int(context.now().timestamp() * 1000)
    guards = look_at_guards(plan, store, root, now_ms)
    is_early = guards.is_early(now_ms)
    unresolved = {} if isinstance(bookies, Mapping) else dict(bookies.unresolved)
    names = tuple(sorted(name for name, _ in bookies.items()))
    has_wire = not isinstance(bookies, Mapping)
    return ReadBack(verified, names, unresolved, has_wire=has_wire, guards=guards, is_early=is_early)
