"""What is said about a plan: the commands that come next for its store, and its deletions with what undoes them.

A store is named with its real address, wherever the plan knows it. Lines are for people, commands ready to be copied.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from backends.errors import UnsupportedStoreError
from reconcile.cli.options import quote_command
from reconcile.plan.actions import REUSE_LOCK_TIME
from reconcile.plan.views.deletions import LISTED, SessionDeletions, find_capture_before
from reconcile.stores import is_live, is_store
from reconcile.words import count_noun
from recovery.dataset import MANIFEST, Dataset, open_dataset
from recovery.place import to_place

if TYPE_CHECKING:
    from reconcile.plan.manifest import SubtreeCounts

_STORE: Final = "store"
"""Folder of a plan in which the capture of the store is that it was made for."""
_UNKNOWN: Final = "URI"
_REHEARSAL: Final = "bkmeta-rehearsal"
_OUT: Final = "plan-2"
_EVIDENCE: Final = {
    "record": "whose own record names what it is of",
    "entry": "whose entry is a schema of a topic",
    "producers": "with producers of a topic",
    "order": "with an id behind some topic's last ledger",
    "none": "of which nothing is known",
}


def store_of(plan: Dataset) -> str:
    """Return the URI of the store that a plan was made for; ``URI`` where it does not know one that can be written."""
    folder = to_place(plan.path) / _STORE
    if not (folder / MANIFEST).is_file():
        return _UNKNOWN
    uri = str(open_dataset(folder, "catalog").manifest["binding"].get("uri") or "")
    try:
        return uri if is_store(uri) and is_live(uri) else _UNKNOWN
    except UnsupportedStoreError:
        return _UNKNOWN


def rehearsal_root(plan: Dataset) -> str:
    """Return the URI of a root beside the plan's, in the same store, that nobody uses."""
    from backends.registry import parse_store_uri
    from reconcile.plan.manifest import read_plan_manifest
    from recovery.codecs.store_kind import kind_of

    layout = read_plan_manifest(plan).binding.layout
    kind = kind_of(layout)
    layout = "legacyhierarchical" if layout == "legacy" else layout
    uri = store_of(plan)
    hosts = f"HOST:{kind.port}" if uri == _UNKNOWN else parse_store_uri(uri).hosts
    return kind.uri.format(layout=layout, hosts=hosts.replace(",", kind.joins_hosts), folder=_REHEARSAL)


def deletion_lines(plan: Dataset, deletions: Sequence[SessionDeletions]) -> list[str]:
    """Return the sessions that deleted most, in the order of their transactions, each with what can be done.

    Args:
        plan: that they are of.
        deletions: of its sessions, in that order.
    """
    most = sorted(deletions, key=lambda session: (-session.undecided, -session.ledgers))[:LISTED]
    listed = [session for session in deletions if session in most]
    if not listed:
        return []
    more = len(deletions) - len(listed)
    return [
        "deleted, by session, in the order of their transactions:",
        *(f"  {line}" for session in listed for line in _lines(plan, session)),
        *([f"  and {more} sessions that deleted fewer"] if more else []),
    ]


def _lines(plan: Dataset, session: SessionDeletions) -> Iterator[str]:
    yield str(session)
    if not session.undecided:
        return
    edit = ["bkmeta", "plan", "edit", plan.path]
    to = ["--out", to_place(plan.path).with_name(_OUT)]
    restore = quote_command(*edit, "--restore-deleted-by", session.name, *to)
    accept = quote_command(*edit, "--accept-deleted-by", session.name, *to)
    earlier = find_capture_before(plan, session)
    if earlier is None:
        yield f"  it was wanted, and bookies may delete them: {accept}"
        yield f"  it was not: {restore}"
        return
    yield f"  it was a mistake: {restore}"
    capture = quote_command(
        "bkmeta", "capture", "--metadata", earlier.uri, "--at", earlier.at, "--out", f"before-{session.name}"
    )
    yield f"  or take the whole store as it was before: {capture}"
    yield f"    and recover again with --snapshot before-{session.name} in place of the later one"
    yield f"  it was wanted: {accept}"


def describe_reuse(plan: str, ids: int, locks: int) -> Iterator[str]:
    """Yield what has to be done where two ledgers have an id that is in the store.

    Args:
        plan: its folder.
        ids: such ids.
        locks: of these, those that the plan locks for a time.
    """
    if not ids:
        return
    listing = quote_command("bkmeta", "plan", "ledgers", plan, "--category", "ID_REUSE", "--ids")
    yield (
        f"{count_noun(ids, 'id')} of two ledgers: the store has the record of the younger one, and only disks have the "
        "older one. Before any bookie starts, save the older ones:"
    )
    yield f"  {listing} > reused.txt"
    yield "  xargs bkmeta export --disk BOOKIE-ID=DIR --logs --out reused < reused.txt"
    yield "  or name their loss: bkmeta plan edit --accept-loss LEDGER"
    if locks:
        yield (
            f"{count_noun(locks, 'lock')} (action keep) for {REUSE_LOCK_TIME.days} days. A lock holds off the "
            "over-replicated check alone: bookies collect an older copy all the same when the younger ledger is "
            "trimmed or deleted. No worker repairs the younger ledger while its lock is there. The next plan removes "
            "a lock that is past its end, or whose loss is named"
        )


def count_candidates(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield a line of the ledgers that came after the snapshot of Pulsar's nodes, by what says whose each is."""
    if not counts:
        return
    known = [f"{counts[name]} {words}" for name, words in _EVIDENCE.items() if name in counts]
    yield (
        f"made after the snapshot, and named by no topic of it: {count_noun(counts['ledgers'], 'ledger')}: "
        f"{', '.join(known)}. No reader finds them until a topic has them: bkmeta plan edit --adopt, --adopt-candidates"
    )


def describe_subtrees(subtrees: "Sequence[SubtreeCounts]") -> Iterator[str]:
    """Yield a line for each subtree of an upper layer that a plan brings back; nothing of one that no side has."""
    for subtree in subtrees:
        if not (subtree.nodes or subtree.newer or subtree.added):
            continue
        stands = subtree.nodes - subtree.created - subtree.differing
        words = [f"{count_noun(subtree.nodes, 'node')} in the snapshot, {subtree.created} created, {stands} there"]
        if subtree.raised:
            words.append(f"{count_noun(subtree.raised, 'counter')} raised")
        if subtree.differing:
            words.append(
                f"{subtree.differing} with other bytes in the store, which stay unless you choose: "
                f"bkmeta plan edit --replace-below {subtree.path}"
            )
        if subtree.added:
            words.append(f"{subtree.added} created of topics that no snapshot has")
        if subtree.newer:
            words.append(f"{subtree.newer} only in the store, which stay")
        yield f"{subtree.path}: {', '.join(words)}"
