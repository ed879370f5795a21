"""`plan diff`: what two plans write differently."""

import sys
from typing import Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import PLACE, csv_option, make_output, output_options
from reconcile.cli.output import Result
from reconcile.words import count_noun
from recovery.place import DatasetPlace

_SHOWN: Final = 10


_HASH: Final = 12
"""Digits of a hash that a line for people shows where the whole one stands elsewhere."""


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "both write the same",
        Exit.USAGE: "no plan, or not a whole one",
        Exit.FOUND: "they write differently",
    },
    epilog="Example: bkmeta plan diff plan-monday plan-tuesday",
)
@click.argument("one", metavar="A", type=PLACE)
@click.argument("other", metavar="B", type=PLACE)
@click.option("--first", "shown", type=click.IntRange(0), default=_SHOWN, show_default=True, help="Differences listed.")
@csv_option
@output_options
def diff(one: DatasetPlace, other: DatasetPlace, shown: int, **shared: Any) -> None:  # noqa: ANN401 - click's options
    """Say what plans A and B would write differently, key by key; passwords are compared and never shown."""
    from reconcile.jobs.plans.review import diff_plans

    output = make_output(shared)
    differences = diff_plans(one, other, shown)
    first, second, total = differences.first, differences.second, differences.total
    verdict = "both plans write the same"
    if total:
        keys = "1 key is" if total == 1 else f"{total} keys are"
        verdict = (
            f"{keys} written differently: {differences.only_in_first} by the first only, "
            f"{differences.only_in_second} by the second only, {differences.differing} by both"
        )
    details = [
        f"{name} {manifest.hash[:_HASH]}: {count_noun(manifest.counts.writes, 'write')}"
        for name, manifest in (("A", first), ("B", second))
    ]
    details += [str(difference) for difference in differences.listed]
    if total > len(differences.listed):
        details.append(f"and {total - len(differences.listed)} more: --first {total}")
    result = Result(
        "plan-diff",
        verdict,
        Exit.FOUND if total else 0,
        counts={
            "actions_a": differences.first_actions,
            "actions_b": differences.second_actions,
            "only_in_a": differences.only_in_first,
            "only_in_b": differences.only_in_second,
            "differing": differences.differing,
        },
        coverage={"a": first.coverage.to_json(), "b": second.coverage.to_json()},
        details=details,
        facts={
            "a": {"plan": str(one), "hash": first.hash},
            "b": {"plan": str(other), "hash": second.hash},
            "differences": [
                {
                    "key": difference.key,
                    "a": difference.first,
                    "b": difference.second,
                    "fields": [{"field": name, "a": a, "b": b} for name, a, b in difference.fields],
                }
                for difference in differences.listed
            ],
        },
        rows="differences",
        columns=("key", "a", "b", "fields"),
    )
    sys.exit(output.show(result))
