"""`plan ledgers`: the ledgers of a plan, list by list, with their topics; or their ids alone, for other programs."""

import itertools
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import PLACE, csv_option, make_output, output_options, quote_command, require_bookie_ids
from reconcile.cli.output import Result
from reconcile.findings.categories import Category
from reconcile.findings.refusal_texts import describe_reason
from reconcile.words import count_noun
from recovery.infer.refusal import Refusal
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.plan.views.ledger_lists import LedgerLine

OUTCOMES: Final = ("restored", "guarded", "held", "waiting", "deleted", "accepted_loss")
_SHOWN: Final = 1000
_COLUMNS: Final = ("ledger", "topic", "outcome", "reason", "last_entry", "missing_copies", "holders")
_HOLDERS: Final = 8
_RECOVER: Final = "bookkeeper shell recover -f -l {ledger} {bookie}"
_REUSED: Final = (
    "the last {ledgers}: two ledgers have the id (ID_REUSE). Export the older one first: a new copy of the younger one "
    "may replace its entries. A command does nothing where the younger record does not name {bookie}"
)


@click.command(
    "ledgers",
    cls=Command,
    exits={
        Exit.DONE: "they are listed; perhaps there are none",
        Exit.USAGE: "no plan, or options that exclude each other",
    },
    epilog="Example: bkmeta plan ledgers plan --few-copies --ids > few-copies.txt",
)
@click.argument("path", metavar="PLAN", type=PLACE)
@click.option("--outcome", type=click.Choice(OUTCOMES), help="What the plan does with them.")
@click.option(
    "--reason",
    type=click.Choice([str(reason) for reason in Refusal]),
    help="Only ledgers that are not restored for this reason.",
    metavar="REASON",
)
@click.option(
    "--few-copies", is_flag=True, help="Only ledgers that come back with fewer copies than their records promise."
)
@click.option("--undecided", is_flag=True, help="Only ledgers that the evidence does not settle.")
@click.option("--category", metavar="CATEGORY", help="Only ledgers with a finding of this category.")
@click.option(
    "--repair",
    metavar="BOOKIE",
    help="Print commands instead, one a line. They copy the guarded ledgers that name this lost bookie, which "
    "replication workers leave alone. Last come ids that two ledgers have, while a lock keeps the older copies.",
)
@click.option("--ids", is_flag=True, help="Only ids, one a line, and all of them.")
@click.option("--first", "shown", type=click.IntRange(0), default=_SHOWN, show_default=True, help="Ledgers listed.")
@csv_option
@output_options
def ledgers(
    path: DatasetPlace,
    outcome: str | None,
    reason: str | None,
    category: str | None,
    repair: str | None,
    shown: int,
    *,
    few_copies: bool,
    undecided: bool,
    ids: bool,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """List the ledgers of PLAN: all, or of one outcome, of one reason, with few copies, undecided, or with a finding.

    Those with few copies can be read once they are restored; replicate them again when the store is thawed.
    """
    if (undecided or category) and (outcome or reason or few_copies or (undecided and category)):
        raise click.UsageError("--undecided and --category stand alone: they are not of what the plan does")
    if repair and (undecided or category or outcome or reason or few_copies or ids or _is_for_programs(shared)):
        raise click.UsageError("--repair stands alone: it prints commands")
    if ids and _is_for_programs(shared):
        raise click.UsageError("--ids is text: give it, --json or --csv")
    from reconcile.jobs.plans.review import list_guarded_ledgers, list_plan_ledgers, list_reused_ledgers
    from reconcile.plan.views.ledger_lists import LedgerFilter

    if category is not None and category not in set(Category):
        raise click.BadParameter(f"there is no category {category!r}; findings are listed in the plan's report")
    if repair:
        require_bookie_ids([repair], "--repair")
        for ledger in list_guarded_ledgers(path, repair):
            click.echo(_RECOVER.format(ledger=ledger, bookie=shlex.quote(repair)))
        reused = 0
        for reused, ledger in enumerate(list_reused_ledgers(path), 1):  # noqa: B007 - the last number is their count
            click.echo(_RECOVER.format(ledger=ledger, bookie=shlex.quote(repair)))
        if reused:
            click.echo(_REUSED.format(ledgers=count_noun(reused, "command"), bookie=repair), err=True)
        sys.exit(Exit.DONE)
    as_csv = bool(shared["as_csv"])
    output = make_output(shared)
    lines = list_plan_ledgers(path, LedgerFilter(outcome, reason, few_copies, undecided, category))
    if ids:
        for line in lines:
            click.echo(str(line.ledger))
        sys.exit(Exit.DONE)
    listed = list(itertools.islice(lines, shown))
    total = len(listed) + sum(1 for _ in lines)
    words = [
        *([outcome] if outcome else []),
        *([reason] if reason else []),
        *(["few copies"] if few_copies else []),
        *([category] if category else []),
    ]
    chosen_words = f" ({', '.join(words)})" if words else " (undecided)" if undecided else ""
    following = ""
    if few_copies and total:
        following = quote_command("bkmeta", "plan", "ledgers", path, "--few-copies", "--ids") + " > few-copies.txt"
    elif listed:
        following = quote_command("bkmeta", "explain", listed[0].ledger, "--plan", path)
    more = [f"and {total - len(listed)} more: --first {total}, or --ids"] if total > len(listed) else []
    verdict = f"1 ledger{chosen_words}" if total == 1 else f"{total} ledgers{chosen_words}"
    result = Result(
        "plan-ledgers",
        "; ".join([verdict, *more]) if as_csv else verdict,
        Exit.DONE,
        counts={"ledgers": total, "listed": len(listed)},
        details=[*(_describe_line(line) for line in listed), *more],
        following=following,
        facts={"plan": str(path), "ledgers": [_as_json(line) for line in listed]},
        rows="ledgers",
        columns=_COLUMNS,
    )
    sys.exit(output.show(result))


def _is_for_programs(shared: Mapping[str, Any]) -> bool:
    return bool(shared["as_json"] or shared["as_csv"])


def _describe_line(line: "LedgerLine") -> str:
    words = [line.outcome.replace("_", " ")] if line.outcome else []
    if line.topic:
        words.insert(0, line.topic)
    if line.reason:
        words.append(describe_reason(line.reason))
    if line.missing_copies:
        words.append(
            "1 copy of an entry is missing"
            if line.missing_copies == 1
            else f"{line.missing_copies} copies of entries are missing"
        )
    if line.holders:
        more = f" and {len(line.holders) - _HOLDERS} more" if len(line.holders) > _HOLDERS else ""
        words.append("on " + ", ".join(line.holders[:_HOLDERS]) + more)
    return f"{line.ledger}: " + "; ".join(words)


def _as_json(line: "LedgerLine") -> dict[str, object]:
    return {
        "ledger": str(line.ledger),
        "topic": line.topic,
        "outcome": line.outcome,
        "reason": line.reason,
        "last_entry": line.last_entry,
        "missing_copies": line.missing_copies,
        "holders": list(line.holders),
    }
