"""The commands that read plans and make new ones of them: plan show, plan diff, plan split, plan edit."""

import itertools
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import FOLDER, make_output, output_options, parse_ledger, scope_option
from reconcile.cli.output import Result
from reconcile.cli.plan_ledgers import ledgers
from reconcile.findings.refusal_texts import in_words
from reconcile.jobs.estimates import Step, estimate_s
from reconcile.jobs.estimates import in_words as time_in_words
from reconcile.words import counted, is_or_are, released_holds

if TYPE_CHECKING:
    from recovery.model.ids import LedgerId

_SHOWN: Final = 10
_NAMED: Final = "-"
"""Typed for the ledger that an option of its own names."""
_CATALOG: Final = "catalog://"
_HASH: Final = 12
"""Digits of a hash that a line for people shows where the whole one stands elsewhere."""


@click.group(epilog="Example: bkmeta plan show plan")
def plan() -> None:
    """Read a plan, list its ledgers, compare two, cut one into waves, or change one. No store is touched."""


plan.add_command(ledgers)


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
    from reconcile.cli.deletions import deletion_lines
    from reconcile.cli.targets import rehearsal_root
    from reconcile.compare.deletions import by_session
    from reconcile.plan.action_rows import LEAVE
    from reconcile.plan.plan_reader import overview
    from recovery.dataset import open_dataset

    output = make_output(shared)
    dataset = open_dataset(path, "plan")
    dataset.verify()
    found = overview(dataset, shown=shown)
    manifest = dataset.manifest
    counts, coverage, binding = manifest["counts"], manifest["coverage"], manifest["binding"]
    left = sum(ops.get(LEAVE, 0) for ops in found.phases.values())
    total = sum(sum(ops.values()) for ops in found.phases.values()) - left
    back = "1 ledger comes back" if counts["restored"] == 1 else f"{counts['restored']} ledgers come back"
    verdict = f"{counted(total, 'write')}: {back}, {counts['held']} {is_or_are(counts['held'])} held"
    if counts.get("released"):
        verdict += f", {released_holds(counts['released'])}"
    if coverage.get("not_scanned"):
        unseen = len(coverage["not_scanned"])
        verdict += f"; {counted(unseen, 'bookie')} {'was' if unseen == 1 else 'were'} not looked at"
    if found.problems:
        verdict = f"INVALID, {found.problems[0]}"
    details = [*found.problems[1:], f"hash {found.hash}, {'not ' if found.problems else ''}as the manifest says"]
    details += [f"made {binding.get('made')} for {binding.get('root') or 'a store without a known root'}"]
    details += [f"layout {binding.get('layout')}, instance {', '.join(binding.get('instance_ids', ())) or 'unknown'}"]
    details.append(f"to write it takes {time_in_words(estimate_s(Step.APPLY, total))}")
    details += _coverage(coverage)
    inputs = binding.get("inputs", ())
    details += [f"made of the {one['kind']} {one['name']} {one['digest'][:_HASH]}" for one in inputs[:_SHOWN]]
    details += [f"and of {len(inputs) - _SHOWN} more"] if len(inputs) > _SHOWN else []
    chosen = {name: one for name, one in manifest.get("settings", {}).items() if one["from"] != "default"}
    details += [f"made with {name} {one['value']} ({one['from']})" for name, one in chosen.items()]
    details += [f"edited: {text}" for text in binding.get("edits", ())]
    details += ["", "phases, in their order:"]
    details += [
        f"  {phase.value} {phase.name.lower():<12} " + ", ".join(f"{count} {op}" for op, count in sorted(ops.items()))
        for phase, ops in found.phases.items()
    ]
    if left:
        details.append(f"  'leave' writes nothing, unless you choose: bkmeta plan edit --choose; {left} of the actions")
    if set(found.waves) - {0}:
        details += ["", "waves:", *(f"  {wave}: {counted(count, 'write')}" for wave, count in found.waves.items())]
    if found.first:
        details += [
            "",
            f"the first {len(found.first)} of {counted(total, 'write')}, phase by phase, by ledger:",
            *(f"  {line}" for line in found.first),
        ]
    if counts["held"]:
        details += ["", f"held by this plan, {counts['held']}:"]
        reasons = sorted(manifest.get("reasons", {}).items(), key=lambda item: -item[1])
        details += [f"  {count}, {in_words(reason)} ({reason})" for reason, count in reasons]
    if earlier := counts.get("held_in_store"):
        details += ["", f"held by records of an earlier plan, which this one leaves as they are: {earlier}"]
    deletions = by_session(dataset)
    if deletions:
        details += ["", *deletion_lines(dataset, deletions)]
    if found.holds:
        details += ["", "held, and not settled by what was looked at:"]
        details += [
            f"  {hold.ledger}{f' {hold.topic}' if hold.topic else ''} ({hold.reason}) on {', '.join(hold.holders)}"
            for hold in found.holds
        ]
    unused = rehearsal_root(dataset)
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
                {"ledger": str(hold.ledger), "reason": hold.reason, "topic": hold.topic, "holders": list(hold.holders)}
                for hold in found.holds
            ],
            "reasons": manifest.get("reasons", {}),
            "deletions": [one.to_json() for one in deletions],
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
    from reconcile.cli.targets import writes_of
    from reconcile.plan.plan_reader import open_whole
    from reconcile.plan.views import differences

    output = make_output(shared)
    left, right = open_whole(one)[0], open_whole(other)[0]
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
        keys = "1 key is" if total == 1 else f"{total} keys are"
        verdict = (
            f"{keys} written differently: {counts['only_in_a']} by the first only, "
            f"{counts['only_in_b']} by the second only, {counts['differing']} by both"
        )
    details = [f"A {str(d.manifest.get('hash'))[:_HASH]}: {counted(writes_of(d), 'write')}" for d in (left, right)]
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
    epilog="Example: bkmeta plan split plan --waves canary,1%,rest --out plan-in-waves",
)
@click.argument("path", metavar="PLAN", type=FOLDER)
@click.option(
    "--waves",
    "spec",
    default="canary,1%,rest",
    show_default=True,
    metavar="SPEC",
    help="Shares of the ledgers, in order; a canary is one bucket of 4096.",
)
@click.option("--out", type=FOLDER, required=True, help="A new folder for the new plan; it will hold passwords.")
@output_options
def split(path: Path, spec: str, out: Path, **shared: Any) -> None:  # noqa: ANN401 - click's options
    """Cut PLAN into waves that are applied one by one: a new plan with a new hash; PLAN stays as it is.

    Keep the cluster frozen until the last wave is applied: bookies delete what a partial root does not name.
    """
    from reconcile.cli.targets import store_of
    from reconcile.plan import views
    from recovery.dataset import open_dataset

    output = make_output(shared)
    try:
        waves = views.parse_waves(spec)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--waves") from error
    whole = open_dataset(path, "plan")
    whole.verify()
    manifest, found = views.split(whole, waves, out)
    details = [
        f"wave {wave.number}: {counted(wave.ledgers, 'ledger')}, {counted(wave.actions, 'write')}, "
        f"buckets {wave.first_bucket} to {wave.last_bucket}"
        for wave in found
    ]
    details.append("LAYOUT, instance id and cookies come with the last wave: stay frozen until it is applied")
    result = Result(
        "plan-split",
        f"{counted(len(found), 'wave')}; the new plan has hash {manifest['hash']}",
        0,
        counts={**manifest["counts"], "waves": len(found)},
        coverage=manifest["coverage"],
        details=details,
        following=shlex.join(
            ["bkmeta", "apply", str(out), "--metadata", store_of(whole), "--wave", "1", "--confirm", manifest["hash"]]
        ),
        facts={
            "plan": str(out),
            "hash": manifest["hash"],
            "split_from": manifest["binding"]["split_from"],
            "waves": [{name: getattr(wave, name) for name in type(wave).__slots__} for wave in found],
        },
    )
    sys.exit(output.show(result))


def _sessions(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[int | None, ...]:
    """Read sessions as plans show them."""
    from reconcile.compare.deletions import parse_session

    try:
        return tuple(parse_session(value) for value in values)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@plan.command(
    cls=Command,
    exits={
        Exit.DONE: "the new plan was written",
        Exit.FAILED: "the disk of --out is full",
        Exit.USAGE: "a plan, a ledger, an alternative or a folder that cannot be used",
    },
    epilog="Example: bkmeta plan edit plan --accept-loss 4711 --out plan-2",
)
@click.argument("path", metavar="PLAN", type=FOLDER)
@click.option("--drop", "dropped", multiple=True, metavar="LEDGER", help="Write nothing for it: it waits for a person.")
@click.option("--choose", "chosen", multiple=True, metavar="LEDGER=LABEL", help="Write this alternative of its record.")
@click.option(
    "--accept-loss", "lost", multiple=True, metavar="LEDGER", help="Let the bookies delete it; its hold is removed."
)
@click.option(
    "--restore-deleted-by",
    "restored_of",
    multiple=True,
    callback=_sessions,
    metavar="SESSION",
    help="Write the last record of each ledger on bookies that this session deleted; `plan show` lists sessions.",
)
@click.option(
    "--accept-deleted-by",
    "accepted_of",
    multiple=True,
    callback=_sessions,
    metavar="SESSION",
    help="What this session deleted stays deleted: bookies delete it.",
)
@scope_option
@click.option("--ledger-qualified-name", "qualified", metavar="NAME", help="The ledger that is written - above.")
@click.option("--acl", metavar="SPEC", help="Rights of everything that is created: scheme:id:perms,…")
@click.option("--acl-of", "rights", metavar="URI", help="Rights as they were in an earlier catalog: catalog:///DIR.")
@click.option("--replace-instance-id", is_flag=True, help="Replace the store's INSTANCEID with the bookies' own.")
@click.option("--replace-cookie", "cookies", multiple=True, metavar="BOOKIE", help="Replace the store's cookie of it.")
@click.option("--out", type=FOLDER, required=True, help="A new folder for the new plan; it will hold passwords.")
@output_options
def edit(
    path: Path,
    dropped: tuple[str, ...],
    chosen: tuple[str, ...],
    lost: tuple[str, ...],
    restored_of: tuple[int | None, ...],
    accepted_of: tuple[int | None, ...],
    scope: str | None,
    qualified: str | None,
    acl: str | None,
    rights: str | None,
    *,
    replace_instance_id: bool,
    cookies: tuple[str, ...],
    out: Path,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Change what PLAN would write: a new plan with a new hash; PLAN stays as it is.

    LEDGER is a number, scope:number, a qualified name of 32 hex digits, or - for that of --ledger-qualified-name.

    Replacing INSTANCEID or cookies is for a store that somebody initialised again: the versions that are replaced are
    those of the store as it was captured when the plan was made.
    """
    from backends.protocols import parse_rights
    from reconcile.compare.deletions import deleted_by
    from reconcile.compare.three_way import RESTORE
    from reconcile.plan import views
    from recovery.dataset import open_dataset

    def named(text: str, hint: str) -> "LedgerId":
        return parse_ledger(qualified if text == _NAMED and qualified is not None else text, scope, hint=hint)

    output = make_output(shared)
    texts = (*dropped, *lost, *(text.partition("=")[0] for text in chosen))
    if (qualified is not None) != (_NAMED in texts):
        raise click.UsageError(f"--ledger-qualified-name goes with {_NAMED} as the LEDGER of an edit: --drop {_NAMED}")
    choices: dict[LedgerId, str] = {}
    for text in chosen:
        name, equals, label = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not LEDGER=LABEL", param_hint="--choose")
        choices[named(name, "--choose")] = label
    if acl is not None and rights is not None:
        raise click.UsageError("give --acl or --acl-of, not both")
    if acl is not None:
        try:
            parse_rights(acl)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--acl") from error
    if rights is not None and not rights.startswith(_CATALOG):
        raise click.BadParameter(f"{rights!r} is not catalog:///DIR", param_hint="--acl-of")
    before = open_dataset(path, "plan")
    accepted = frozenset(named(text, "--accept-loss") for text in lost)
    if restored_of:
        choices = dict.fromkeys(deleted_by(before, restored_of, restorable=True), RESTORE) | choices
    if accepted_of:
        accepted |= deleted_by(before, accepted_of, restorable=False)
    edits = views.Edits(
        drop=frozenset(named(text, "--drop") for text in dropped),
        accept_loss=accepted,
        choose=choices,
        acl=acl,
        rights=None if rights is None else open_dataset(rights.removeprefix(_CATALOG), "catalog"),
        replace_instance_id=replace_instance_id,
        replace_cookies=frozenset(cookies),
    )
    if not edits.texts:
        raise click.UsageError("nothing to change: name at least one edit")
    before.verify()
    manifest = views.edit(before, edits, out)
    counts = manifest["counts"]
    details = list(edits.texts[:_SHOWN])
    if len(edits.texts) > _SHOWN:
        details.append(f"and {len(edits.texts) - _SHOWN} more edits: bkmeta plan diff lists them")
    details.append(f"made of {before.manifest['hash']}")
    if manifest["binding"]["cookies_held_back"]:
        wait = "1 ledger waits" if counts["waiting"] == 1 else f"{counts['waiting']} ledgers wait"
        details.append(f"{wait} for a person: no cookies are written until each is settled")
    result = Result(
        "plan-edit",
        f"{counted(len(edits.texts), 'edit')}; the new plan has hash {manifest['hash']}",
        0,
        counts=counts,
        coverage=manifest["coverage"],
        details=details,
        following=shlex.join(["bkmeta", "plan", "diff", str(path), str(out)]),
        facts={
            "plan": str(out),
            "hash": manifest["hash"],
            "edited_from": manifest["binding"]["edited_from"],
            "edits": edits.texts,
        },
    )
    sys.exit(output.show(result))
