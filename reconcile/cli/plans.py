"""The commands that read plans and make new ones of them: plan show, plan diff, plan split."""

import itertools
import shlex
import sys
from pathlib import Path
from typing import Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import FOLDER, make_output, output_options
from reconcile.cli.output import Result
from reconcile.reasons import in_words

_SHOWN: Final = 10
_HASH: Final = 12
"""Digits of a hash that a line for people shows where the whole one stands elsewhere."""


@click.group(epilog="Example: bkmeta plan show plan")
def plan() -> None:
    """Read a plan, compare two, or cut one into waves. No store is touched."""


@plan.command(
    cls=Command,
    exits={
        Exit.DONE: "the plan is whole",
        Exit.FAILED: "INVALID: it is not what its hash was made of",
        Exit.USAGE: "no plan, or not a whole one",
    },
    epilog="Example: bkmeta plan show plan --first 20",
)
@click.argument("path", metavar="PLAN", type=FOLDER)
@click.option("--first", "shown", type=click.IntRange(0), default=_SHOWN, show_default=True, help="Lines of each list.")
@output_options
def show(path: Path, shown: int, **shared: Any) -> None:  # noqa: ANN401 - click's options
    """Say what PLAN would write, what it holds back and why, and whether its files are what its hash was made of."""
    from reconcile.plans import overview  # noqa: PLC0415 - not for --help
    from recovery.dataset import open_dataset  # noqa: PLC0415

    output = make_output(shared)
    dataset = open_dataset(path, "plan")
    dataset.verify()
    found = overview(dataset, shown=shown)
    manifest = dataset.manifest
    counts, coverage, binding = manifest["counts"], manifest["coverage"], manifest["binding"]
    total = sum(sum(ops.values()) for ops in found.phases.values())
    verdict = f"{total} writes: {counts['restored']} ledgers come back, {counts['held']} are held"
    if coverage.get("not_scanned"):
        verdict += f"; {len(coverage['not_scanned'])} bookies were not looked at"
    if found.problems:
        verdict = f"INVALID, {found.problems[0]}"
    details = [*found.problems[1:], f"hash {found.hash}, {'not ' if found.problems else ''}as the manifest says"]
    details += [f"made {binding.get('made')} for {binding.get('root') or 'a store without a known root'}"]
    details += [f"layout {binding.get('layout')}, instance {', '.join(binding.get('instance_ids', ())) or 'unknown'}"]
    details += _coverage(coverage)
    details += ["", "phases, in their order:"]
    details += [
        f"  {phase.value} {phase.name.lower():<12} " + ", ".join(f"{count} {op}" for op, count in sorted(ops.items()))
        for phase, ops in found.phases.items()
    ]
    if set(found.waves) - {0}:
        details += ["", "waves:", *(f"  {wave}: {count} writes" for wave, count in found.waves.items())]
    if found.first:
        details += ["", f"first {len(found.first)} of {total} writes:", *(f"  {line}" for line in found.first)]
    if counts["held"]:
        details += ["", f"held by this plan, {counts['held']}:"]
        reasons = sorted(manifest.get("reasons", {}).items(), key=lambda item: -item[1])
        details += [f"  {count}, {in_words(reason)} ({reason})" for reason, count in reasons]
    if earlier := counts.get("held_in_store"):
        details += ["", f"held by records of an earlier plan, which this one leaves as they are: {earlier}"]
    if found.holds:
        details += ["", "held, and not settled by what was looked at:"]
        details += [f"  {hold.ledger} ({hold.reason}) on {', '.join(hold.holders)}" for hold in found.holds]
    kind = "legacyhierarchical" if binding.get("layout") == "legacy" else binding.get("layout")
    unused = f"zk+{kind}://HOST:2181/rehearsal"
    following = shlex.join(["bkmeta", "rehearse", str(path), "--metadata", unused, "--disk", "BOOKIE-ID=DIR"])
    result = Result(
        "plan-show",
        verdict,
        Exit.FAILED if found.problems else 0,
        counts={**counts, "writes": total, "altered": found.altered},
        coverage=coverage,
        details=details,
        following="do not apply it: make the plan again" if found.problems else following,
        facts={
            "plan": str(path),
            "hash": found.hash,
            "hash_in_manifest": manifest.get("hash"),
            "problems": list(found.problems),
            "binding": binding,
            "phases": {phase.name.lower(): dict(ops) for phase, ops in found.phases.items()},
            "waves": {str(wave): count for wave, count in found.waves.items()},
            "first": [
                {"seq": line.seq, "op": line.op, "kind": line.kind, "key": line.key, "expects": line.expects}
                for line in found.first
            ],
            "held": [
                {"ledger": str(hold.ledger), "reason": hold.reason, "holders": list(hold.holders)}
                for hold in found.holds
            ],
            "reasons": manifest.get("reasons", {}),
        },
    )
    sys.exit(output.show(result))


def _coverage(coverage: dict[str, Any]) -> list[str]:
    lines = [f"bookies looked at: {len(coverage.get('scanned', ()))}"]
    for key, text in (("not_scanned", "not looked at"), ("not_complete", "not read completely")):
        names = coverage.get(key) or []
        if names:
            more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            lines.append(f"{text}: {', '.join(names[:_SHOWN])}{more}")
    if not coverage.get("members_known_from"):
        lines.append("nothing says which bookies the cluster has")
    return lines


@plan.command(
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
    from reconcile.plans import differences  # noqa: PLC0415 - not for --help
    from recovery.dataset import open_dataset  # noqa: PLC0415

    output = make_output(shared)
    left, right = open_dataset(one, "plan"), open_dataset(other, "plan")
    left.verify()
    right.verify()
    found = differences(left, right)
    listed = list(itertools.islice(found, shown))
    counts = {"only_in_a": 0, "only_in_b": 0, "differing": 0}
    for difference in itertools.chain(listed, found):
        side = "only_in_b" if difference.one is None else "only_in_a" if difference.other is None else "differing"
        counts[side] += 1
    total = sum(counts.values())
    sizes = {"actions_a": left.rows("actions"), "actions_b": right.rows("actions")}
    verdict = "both plans write the same"
    if total:
        verdict = (
            f"{total} keys are written differently: {counts['only_in_a']} by the first only, "
            f"{counts['only_in_b']} by the second only, {counts['differing']} by both"
        )
    details = [f"A {str(d.manifest.get('hash'))[:_HASH]}: {d.rows('actions')} writes" for d in (left, right)]
    details[1] = "B" + details[1][1:]
    details += [str(difference) for difference in listed]
    if total > len(listed):
        details.append(f"and {total - len(listed)} more: --first {total}")
    result = Result(
        "plan-diff",
        verdict,
        Exit.FOUND if total else 0,
        counts={**sizes, **counts},
        coverage={"a": left.manifest["coverage"], "b": right.manifest["coverage"]},
        details=details,
        facts={
            "a": {"plan": str(one), "hash": left.manifest.get("hash")},
            "b": {"plan": str(other), "hash": right.manifest.get("hash")},
            "differences": [
                {
                    "key": difference.key,
                    "a": difference.one,
                    "b": difference.other,
                    "fields": [{"field": name, "a": a, "b": b} for name, a, b in difference.fields],
                }
                for difference in listed
            ],
        },
    )
    sys.exit(output.show(result))


@plan.command(
    cls=Command,
    exits={
        Exit.DONE: "the new plan was written",
        Exit.FAILED: "the disk of --out is full",
        Exit.USAGE: "a plan, shares or a folder that cannot be used",
    },
    epilog="Example: bkmeta plan split plan --waves 1%,10%,rest --out plan-in-waves",
)
@click.argument("path", metavar="PLAN", type=FOLDER)
@click.option(
    "--waves", "spec", required=True, metavar="SPEC", help="Shares of the ledgers, in order, e.g. 1%,10%,rest."
)
@click.option("--out", type=FOLDER, required=True, help="A new folder for the new plan; it will hold passwords.")
@output_options
def split(path: Path, spec: str, out: Path, **shared: Any) -> None:  # noqa: ANN401 - click's options
    """Cut PLAN into waves that are applied one by one: a new plan with a new hash; PLAN stays as it is.

    Keep the cluster frozen until the last wave is applied: bookies delete what a partial root does not name.
    """
    from reconcile import plans  # noqa: PLC0415 - not for --help
    from recovery.dataset import open_dataset  # noqa: PLC0415

    output = make_output(shared)
    try:
        waves = plans.parse_waves(spec)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--waves") from error
    whole = open_dataset(path, "plan")
    whole.verify()
    manifest, found = plans.split(whole, waves, out)
    details = [
        f"wave {wave.number}: {wave.ledgers} ledgers, {wave.actions} writes, "
        f"buckets {wave.first_bucket} to {wave.last_bucket}"
        for wave in found
    ]
    details.append("LAYOUT, instance id and cookies come with the last wave: stay frozen until it is applied")
    result = Result(
        "plan-split",
        f"{len(found)} waves; the new plan has hash {manifest['hash']}",
        0,
        counts={**manifest["counts"], "waves": len(found)},
        coverage=manifest["coverage"],
        details=details,
        following=shlex.join(
            ["bkmeta", "apply", str(out), "--metadata", "URI", "--wave", "1", "--confirm", manifest["hash"]]
        ),
        facts={
            "plan": str(out),
            "hash": manifest["hash"],
            "split_from": manifest["binding"]["split_from"],
            "waves": [{name: getattr(wave, name) for name in type(wave).__slots__} for wave in found],
        },
    )
    sys.exit(output.show(result))
