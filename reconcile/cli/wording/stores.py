"""What is said about two stores that were held together."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reconcile.cli.command import Exit
from reconcile.cli.output import Result
from reconcile.words import count_noun
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.jobs.records.against import Compared


def make_result(compared: "Compared", fail_on: str, out: DatasetPlace) -> Result:
    """Return what is shown.

    Args:
        compared: the stores.
        fail_on: the lightest severity that ends with 3.
        out: the folder of the run.
    """
    severe = ("critical",) if fail_on == "critical" else ("critical", "warning")
    failing = sum(compared.by_severity.get(severity, 0) for severity in severe)
    code = (
        Exit.FAILED
        if not compared.adds_up
        else Exit.FOUND
        if failing
        else Exit.UNDECIDABLE
        if compared.undecided
        else Exit.DONE
    )
    verdict = {
        Exit.FAILED: "INVALID: the sums of this run do not add up; report it",
        Exit.FOUND: f"the stores differ in {count_noun(compared.differing, 'ledger')} of {compared.listed}",
        Exit.UNDECIDABLE: f"{count_noun(compared.undecided, 'ledger')} changed at every look; the others are equal",
        Exit.DONE: f"the stores say the same of {count_noun(compared.clean, 'ledger')}",
    }[code]
    return Result(
        "scrutinize",
        verdict,
        code,
        counts={
            "listed": compared.listed,
            "clean": compared.clean,
            "undecided": {"changing": compared.undecided} if compared.undecided else {},
            "with_findings": compared.differing,
            "failing": failing,
            **compared.sums,
        },
        details=list(_describe(compared)),
        following=f"all are in {out}/findings" if compared.differing else "",
        facts={
            "found": {"STORES_DIFFER": compared.differing} if compared.differing else {},
            "by_severity": dict(compared.by_severity),
            "fields": dict(compared.fields),
            "out": str(out),
        },
    )


def _describe(compared: "Compared") -> Iterator[str]:
    sums = compared.sums
    yield f"ledgers: {sums['first']} in the first store, {sums['second']} in the second, {compared.listed} in either"
    yield f"only in the first: {sums['only_first']}; only in the second: {sums['only_second']}"
    yield f"the same said in other bytes: {sums['other_bytes']}"
    for name, count in sorted(compared.fields.items()):
        yield f"{name} differs: {count_noun(count, 'ledger')}"
    for row in compared.worst:
        values = {(statement["side"], statement["field"]): statement["value"] for statement in row["evidence"]}
        yield f"{row['severity']} ledger {row['ledger']}: {values['both', 'fields that differ']}"
