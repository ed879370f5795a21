"""A plan applied where it can do no harm, and read back."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from reconcile.jobs.context import Context, WireOptions, add_remedy, throttle
from reconcile.jobs.verify import ReadBack, open_bookies, read_back
from reconcile.plan.manifest import read_plan_manifest
from reconcile.plan.plan_reader import require_whole
from reconcile.stores import list_principals, open_store, require_same_keys
from reconcile.write import apply
from reconcile.write import rehearse as engine
from reconcile.write.apply_results import Applied
from recovery.dataset import Dataset
from recovery.errors import InputError
from recovery.place import to_place

if TYPE_CHECKING:
    from recovery.bookies.disk_reader import BookieDisks
    from recovery.bookies.wire_reader import RunningCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearseRequest:
    """What is rehearsed, and where.

    Attributes:
        plan: the plan.
        uri: of a root that is absent, or of an earlier rehearsal.
        source: bookies' folders, or how running bookies are asked; no folders: no entries are read.
        registry: URI of the root that running bookies are registered in; None: the plan's own.
        sample: how many ledgers are read back; None: all.
        aliases: other names of bookies in records → ids.
    """

    plan: Dataset
    uri: str
    source: Mapping[str, Sequence[Path]] | WireOptions
    registry: str | None = None
    sample: int | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What came of it.

    Attributes:
        root: that was written.
        plan_hash: of the plan.
        made: when the rehearsal was begun.
        applied: what was written.
        read: what was read back; None: no entries were read.
    """

    root: str
    plan_hash: str
    made: str
    applied: Applied
    read: ReadBack | None


@dataclass(frozen=True, slots=True)
class RemovalResult:
    """What a removal removed.

    Attributes:
        root: of the rehearsal.
        keys: how many keys.
    """

    root: str
    keys: int


def rehearse(request: RehearseRequest, context: Context) -> Rehearsed:
    """Apply a plan where it can do no harm, and read back what was written.

    Raises:
        InputError: the plan is in a store, where no journal can stand.
        GuardRefusedError: the root is neither absent nor marked as a rehearsal of this plan.
        PlanError: the plan is not what its hash was made of.
        UnavailableError: the store does not answer.
    """
    plan, binding = request.plan, read_plan_manifest(request.plan).binding
    here = to_place(plan.path)
    if not isinstance(here, Path):
        problem = "is in a store, and a rehearsal keeps its journal beside the plan, on a disk"
        raise InputError(plan.path, problem, "copy the plan to a folder of this machine, and rehearse that")
    with ExitStack() as stack:
        opened = stack.enter_context(open_store(request.uri, context.access, writable=True))
        require_same_keys(opened, binding.layout or "")
        has_bookies = bool(request.source)
        bookies: RunningCluster | Mapping[str, BookieDisks] = {}
        if has_bookies:
            registry = replace(opened, root=binding.root or opened.root)
            if request.registry:
                registry = stack.enter_context(open_store(request.registry, context.access))
            bookies = stack.enter_context(open_bookies(request.source, registry, context, request.aliases))
        seen = require_whole(plan)
        mark = engine.begin(plan, seen.hash, opened.store, opened.root, now=context.now)
        journal = here / engine.JOURNALS / mark.journal
        stopped = add_remedy("the rehearsal is begun, go on: run the same command again")
        with stopped, context.reporter.progress("writing", "writes") as progress:
            applied = apply.apply(
                lambda: plan.batches("actions"),
                opened.store,
                opened.root,
                journal,
                apply.ApplyOptions(
                    plan_hash=seen.hash,
                    resume=journal.exists(),
                    principals=list_principals(context.access, opened),
                    outside=opened.root + engine.OUTSIDE,
                ),
                now=context.now,
                progress=throttle(progress),
            )
        read = None
        if has_bookies:
            read = read_back(plan, opened.store, opened.root, bookies, request.sample, context)
        return Rehearsed(opened.root, seen.hash, mark.made, applied, read)


def remove_rehearsal(uri: str, context: Context) -> RemovalResult:
    """Remove a rehearsal with all that is in it.

    Raises:
        GuardRefusedError: the root is not marked, or bookies are registered in it.
        UnavailableError: the store does not answer.
    """
    with open_store(uri, context.access, writable=True) as opened:
        with context.reporter.progress("removing", "keys") as progress:
            keys = engine.remove(opened.store, opened.root, progress=throttle(progress))
        return RemovalResult(opened.root, keys)
