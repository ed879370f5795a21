"""`scrutiny diff`: what two scrutinies found differently."""

import sys
from typing import Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import PLACE, make_output, output_options, quote_command
from reconcile.cli.output import Result
from reconcile.words import count_noun
from recovery.place import DatasetPlace

_SHOWN: Final = 20


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "both found the same",
        Exit.USAGE: "no scrutiny, not a whole one, or two clusters",
        Exit.FOUND: "findings are new, gone or changed",
    },
    epilog="Example: bkmeta scrutiny diff run-monday run-tuesday",
)
@click.argument("earlier", metavar="RUN", type=PLACE)
@click.argument("later", metavar="RUN", type=PLACE)
@click.option(
    "--first",
    "shown",
    type=click.IntRange(0),
    default=_SHOWN,
    show_default=True,
    help="How many of each kind are listed.",
)
@output_options
def diff(earlier: DatasetPlace, later: DatasetPlace, shown: int, **shared: Any) -> None:  # noqa: ANN401 - click's options
    """Say which findings of the second RUN are new, which of the first are gone and why, and which changed.

    Only the folders of the runs are read. A finding is resolved if the second run searched for it again: else its line
    says why it did not.
    """
    from reconcile.findings.view import FindingView
    from reconcile.jobs.scrutiny.diff import diff_scrutinies

    output = make_output(shared)
    compared = diff_scrutinies(earlier, later)
    differences = compared.differences
    resolved = len(differences.resolved)
    counts = {
        "new": differences.new.num_rows,
        "resolved": resolved,
        "not_looked_for": len(differences.gone) - resolved,
        "changed": len(differences.changed),
        "same": differences.unchanged,
    }
    differs = bool(differences.new.num_rows or differences.gone or differences.changed)
    verdict = f"both found the same: {count_noun(differences.unchanged, 'finding')}"
    if differs:
        verdict = (
            f"{counts['new']} new, {resolved} resolved, {counts['not_looked_for']} not looked for again, "
            f"{counts['changed']} changed, {counts['same']} the same"
        )
    new = [FindingView.from_row(row) for row in differences.new.slice(0, shown).to_pylist()]
    details = [
        f"{earlier}: {compared.earlier}; {later}: {compared.later}",
        *(f"new: {finding.line}" for finding in new),
        *(finding.line for finding in differences.gone[:shown]),
        *(finding.line for finding in differences.changed[:shown]),
    ]
    hidden = (
        max(0, differences.new.num_rows - shown)
        + max(0, len(differences.gone) - shown)
        + max(0, len(differences.changed) - shown)
    )
    if hidden:
        most = max(differences.new.num_rows, len(differences.gone), len(differences.changed))
        details.append(
            f"and {hidden} more: {quote_command('bkmeta', 'scrutiny', 'diff', earlier, later)} --first {most}"
        )
    result = Result(
        "scrutiny-diff",
        verdict,
        Exit.FOUND if differs else Exit.DONE,
        counts=counts,
        coverage={"earlier": compared.coverage[0], "later": compared.coverage[1]},
        details=details,
        facts={
            "earlier": {"run": str(earlier), "made": compared.earlier},
            "later": {"run": str(later), "made": compared.later},
            "new": [finding.to_json() for finding in new],
            "gone": [finding.to_json() for finding in differences.gone[:shown]],
            "changed": [
                {
                    "category": finding.row["category"],
                    "about": FindingView.from_row(finding.row).about,
                    "fields": [{"field": name, "earlier": a, "later": b} for name, a, b in finding.fields],
                }
                for finding in differences.changed[:shown]
            ],
        },
    )
    sys.exit(output.show(result))
