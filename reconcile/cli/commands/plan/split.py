"""`plan split`: a plan cut into waves."""

import shlex
import sys
from typing import Any

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import PLACE, make_output, output_options
from reconcile.cli.output import Result
from reconcile.words import count_noun
from recovery.place import DatasetPlace


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "the new plan was written",
        Exit.FAILED: "the disk of --out is full",
        Exit.USAGE: "a plan, shares or a folder that cannot be used",
    },
    epilog="Example: bkmeta plan split plan --waves canary,1%,rest --out plan-in-waves",
)
@click.argument("path", metavar="PLAN", type=PLACE)
@click.option(
    "--waves",
    "spec",
    default="canary,1%,rest",
    show_default=True,
    metavar="SPEC",
    help="Shares of the ledgers, in order; a canary is one bucket of 4096.",
)
@click.option("--out", type=PLACE, required=True, help="A new folder for the new plan; it will hold passwords.")
@output_options
def split(path: DatasetPlace, spec: str, out: DatasetPlace, **shared: Any) -> None:  # noqa: ANN401 - click's options
    """Cut PLAN into waves that are applied one by one: a new plan with a new hash; PLAN stays as it is.

    Keep the cluster frozen until the last wave is applied: bookies delete what a partial root does not name.
    """
    from reconcile.cli.wording.plans import store_of
    from reconcile.jobs.plans.change import split as run
    from reconcile.plan.waves import parse_waves

    output = make_output(shared)
    try:
        waves = parse_waves(spec)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--waves") from error
    cut = run(path, waves, out)
    manifest = cut.manifest
    details = [
        f"wave {wave.number}: {count_noun(wave.ledgers, 'ledger')}, {count_noun(wave.actions, 'write')}, "
        f"buckets {wave.first_bucket} to {wave.last_bucket}"
        for wave in cut.waves
    ]
    details.append("LAYOUT, instance id and cookies come with the last wave: stay frozen until it is applied")
    result = Result(
        "plan-split",
        f"{count_noun(len(cut.waves), 'wave')}; the new plan has hash {manifest.hash}",
        0,
        counts={**manifest.counts.to_json(), "waves": len(cut.waves)},
        coverage=manifest.coverage.to_json(),
        details=details,
        following=shlex.join(
            ["bkmeta", "apply", str(out), "--metadata", store_of(cut.whole), "--wave", "1", "--confirm", manifest.hash]
        ),
        facts={
            "plan": str(out),
            "hash": manifest.hash,
            "split_from": manifest.binding.split_from,
            "waves": [{name: getattr(wave, name) for name in type(wave).__slots__} for wave in cut.waves],
        },
    )
    sys.exit(output.show(result))
