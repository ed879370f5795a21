"""What asking a cluster's bookies gave, in words."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from reconcile.cli.command import Exit
from reconcile.cli.options import carry_options, quote_command
from reconcile.cli.output import Result
from reconcile.words import count_noun
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.jobs.collect.cluster import CollectedCluster
    from recovery.bookies.wire_results import BookieResult

_SHOWN: Final = 10
_CONF: Final = "/etc/bookkeeper/bk_server.conf"


def cluster_result(collected: "CollectedCluster", out: DatasetPlace) -> Result:
    """Say which bookies answered, and what for."""
    from recovery.bookies.addresses import ALIAS_UNRESOLVED
    from recovery.bookies.wire_results import NOT_TOLD, Kind, folder_of

    summary, gaps = collected.summary, collected.gaps
    made = [bookie for bookie in summary.bookies if bookie.kind is Kind.COLLECTED]
    without = [bookie for bookie in summary.bookies if bookie.kind is not Kind.COLLECTED]
    partly = [bookie for bookie in made if bookie.unanswered]
    unknown = bool(without or partly or summary.unresolved or gaps or summary.scoped)
    entries = sum(bookie.entries for bookie in made)
    listed, shown = count_noun(summary.listed, "ledger"), count_noun(entries, "entry", "entries")
    verdict = f"{len(made)} of {count_noun(len(summary.bookies), 'bookie')} answered for {listed}: {shown}"
    if unknown:
        verdict += ", NOT complete: what was not answered may exist"
    details = [
        f"{bookie.bookie}: {count_noun(bookie.ledgers, 'ledger')}, {count_noun(bookie.entries, 'entry', 'entries')}, "
        f"in {bookie.folder}"
        for bookie in made[:_SHOWN]
    ]
    details += [
        f"{bookie.bookie}: nothing is known of {count_noun(bookie.unanswered, 'ledger')} ({bookie.why})"
        for bookie in partly[:_SHOWN]
    ]
    for bookie in without[:_SHOWN]:
        if bookie.kind is Kind.NO_LISTS:
            command = quote_command(
                "bkmeta", "collect", "--bookie-conf", _CONF, "--out", f"inv-{folder_of(bookie.bookie)}"
            )
            details.append(
                f"{bookie.bookie}: does not say what it has of a ledger (DbLedgerStorage, or BookKeeper before 4.10); "
                f"run on its host: {command}"
            )
        else:
            details.append(f"{bookie.bookie}: {bookie.kind.replace('_', ' ')} ({bookie.why})")
    details += [f"{ALIAS_UNRESOLVED} {name}: {why}" for name, why in list(summary.unresolved.items())[:_SHOWN]]
    details += [f"not read in the store: {gap}" for gap in gaps[:_SHOWN]]
    if summary.scoped:
        details.append(
            f"not asked for: {count_noun(summary.scoped, 'ledger')} of other scopes, which no released bookie knows"
        )
    details.append("the wire does not tell: " + "; ".join(NOT_TOLD))
    return Result(
        "collect",
        verdict,
        Exit.UNDECIDABLE if unknown else Exit.DONE,
        counts={
            "ledgers": summary.listed,
            "bookies": len(made),
            "entries": entries,
            "negatives": sum(bookie.negatives for bookie in made),
            "unanswered": sum(bookie.unanswered for bookie in made),
            "damaged": sum(bookie.damaged for bookie in made),
        },
        coverage={
            "complete": False,
            "not_told": list(NOT_TOLD),
            "bookies": {bookie.bookie: _facts(bookie) for bookie in summary.bookies},
            "unresolved": dict(summary.unresolved),
            "gaps": list(gaps),
            "other_scopes": summary.scoped,
        },
        details=details,
        following=quote_command("bkmeta", "explain", "LEDGER", "--inventory-dir", out, *carry_options("--metadata"))
        if made
        else "",
        facts={"out": str(out)},
    )


def _facts(bookie: "BookieResult") -> Mapping[str, object]:
    names = ("why", "folder", "ledgers", "entries", "negatives", "unanswered", "damaged")
    return {"kind": str(bookie.kind), **{name: getattr(bookie, name) for name in names}}
