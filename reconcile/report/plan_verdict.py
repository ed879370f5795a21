"""The result of a plan in one sentence, for its report and for the person who made it."""

from reconcile.plan.manifest import PlanCounts, PlanManifest
from reconcile.rules.id_reuse import HISTORIES
from reconcile.words import count_noun, count_released_holds, list_names
from recovery.infer.refusal import Refusal


def describe_plan(manifest: PlanManifest) -> str:
    """Return what a plan brings back, what it does not, and which bookies were not scanned."""
    counts, coverage = manifest.counts, manifest.coverage
    back = "comes back" if counts.restored == 1 else "come back"
    verdict = f"{counts.restored} of {count_noun(counts.ledgers - counts.in_store_already, 'lost ledger')} {back}"
    if not coverage.scanned:
        looked_at = count_noun(counts.looked_at, "ledger")
        verdict = f"{looked_at} compared, {counts.with_findings} with findings; no bookie was scanned"
        if counts.restored:
            verdict += f"; {counts.restored} {back} on a snapshot's word alone"
    if counts.guarded:
        verdict += f"; {counts.guarded} can be read, and every copy that may hide more is kept (guarded)"
    if counts.beyond_end:
        ends = "1 of them ends" if counts.beyond_end == 1 else f"{counts.beyond_end} of them end"
        verdict += f"; {ends} below entries that bookies hold"
    if counts.entries_lost:
        verdict += f"; {count_noun(counts.entries_lost, 'entry', 'entries')} of those that come back are on no bookie"
    if counts.deleted:
        stay = "stays" if counts.deleted == 1 else "stay"
        verdict += f"; {counts.deleted} that a client deleted {stay} deleted unless you choose otherwise"
    gone = manifest.reasons.get(str(Refusal.DELETED_SINCE), 0)
    unreadable = counts.held - gone
    if unreadable:
        verdict += "; 1 is held: its" if unreadable == 1 else f"; {unreadable} are held: their"
        verdict += " data is kept, and no client can read it yet"
        several = sum(manifest.reasons.get(str(reason), 0) for reason in HISTORIES)
        verdict += f" ({several} of them: two ledgers under one id, ID_REUSE)" if several else ""
    if counts.released:
        verdict += f"; of an earlier plan {count_released_holds(counts.released)}"
    if counts.settled:
        verdict += f", {counts.settled} of them guarded before"
    if counts.guarded_in_store:
        verdict += f"; {counts.guarded_in_store} stay guarded as an earlier plan left them"
    if counts.held_in_store:
        verdict += f"; records of an earlier plan hold {counts.held_in_store}"
    if counts.ids_reused:
        have = "1 id in the store has" if counts.ids_reused == 1 else f"{counts.ids_reused} ids in the store have"
        verdict += f"; {have} two ledgers (ID_REUSE): export the older ones before any bookie starts"
    if gone:
        were = "was" if gone == 1 else "were"
        verdict += f"; {gone} {were} probably deleted since the snapshot, and their entries in logs are held"
    nodes = sum(subtree.created for subtree in manifest.subtrees)
    if nodes:
        verdict += f"; {count_noun(nodes, 'node')} of upper layers as a snapshot has {'it' if nodes == 1 else 'them'}"
    if coverage.not_scanned:
        were = "was" if len(coverage.not_scanned) == 1 else "were"
        unseen = f"{count_noun(len(coverage.not_scanned), 'bookie')} {were} not scanned"
        verdict = f"{unseen}, and may hold other ledgers: {list_names(coverage.not_scanned)}. {verdict}"
    elif coverage.scanned and not coverage.members_known_from:
        verdict = f"it is not known which bookies the cluster has, so other ledgers may exist. {verdict}"
    return verdict if counts.add_up else f"INVALID, the sums do not add up: {verdict}"


def describe_shares(counts: PlanCounts) -> str:
    """Return how many of the entries on disks come back, are guarded, held or lost."""
    shares = {
        "come back": counts.entries_restored,
        "guarded, readable": counts.entries_guarded,
        "held": counts.entries_held,
        "lost": counts.entries_lost,
    }
    total = sum(shares.values())
    listed = (f"{100 * count / total:.1f} % {outcome} ({count:,})" for outcome, count in shares.items() if count)
    return f"entries of lost ledgers: {', '.join(listed)}" if total else "entries of lost ledgers: none"
