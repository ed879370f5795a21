"""`plan diff`: what two plans write differently."""

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import FOLDER, make_output, output_options
from reconcile.cli.output import Result
from reconcile.words import count_noun

if TYPE_CHECKING:
    pass


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
@click.argument("one", metavar="A", type=FOLDER)
@click.argument("other", metavar="B", type=FOLDER)
@click.option("--first", "shown", type=click.IntRange(0), default=_SHOWN, show_default=True, help="Differences listed.")
@output_options
def diff(one: Path, other: Path, shown: int, **shared: Any) -> None:  # noqa: ANN401 - click's options
    """Say what plans A and B would write differently, key by key; passwords are compared and never shown."""
    from reconcile.jobs.apply import count_writes
    from reconcile.plan.differences import compare_plans
    from reconcile.plan.manifest import read_plan_manifest
    from reconcile.plan.plan_reader import open_whole

    output = make_output(shared)
    left, right = open_whole(one)[0], open_whole(other)[0]
    found = compare_plans(left, right)
    listed = list(itertools.islice(found, shown))
    counts = {"only_in_a": 0, "only_in_b": 0, "differing": 0}
    for difference in itertools.chain(listed, found):
        side = "only_in_b" if difference.first is None else "only_in_a" if difference.second is None else "differing"
        counts[side] += 1
    total = sum(counts.values())
    sizes = {"actions_a": left.rows("actions"), "actions_b": right.rows("actions")}
    verdict = "both plans write the same"
    if total:
        keys = "1 key is" if total == 1 else f"{total} keys are"
        verdict = (
            f"{keys} written differently: {counts['only_in_a']} by the first only, "
            f"{counts['only_in_b']} by the second only, {counts['differing']} by both"
        )
    manifests = [read_plan_manifest(plan) for plan in (left, right)]
    details = [
        f"{name} {manifest.hash[:_HASH]}: {count_noun(count_writes(plan), 'write')}"
        for name, plan, manifest in zip("AB", (left, right), manifests, strict=True)
    ]
    details += [str(difference) for difference in listed]
    if total > len(listed):
        details.append(f"and {total - len(listed)} more: --first {total}")
    result = Result(
        "plan-diff",
        verdict,
        Exit.FOUND if total else 0,
        counts={**sizes, **counts},
        coverage={name: manifest.coverage.to_json() for name, manifest in zip("ab", manifests, strict=True)},
        details=details,
        facts={
            "a": {"plan": str(one), "hash": manifests[0].hash},
            "b": {"plan": str(other), "hash": manifests[1].hash},
            "differences": [
                {
                    "key": difference.key,
                    "a": difference.first,
                    "b": difference.second,
                    "fields": [{"field": name, "a": a, "b": b} for name, a, b in difference.fields],
                }
                for difference in listed
            ],
        },
    )
    sys.exit(output.show(result))
