"""The figures of a scrutiny as Prometheus' text format has them.

    each begins with bookkeeper_metadata_scrutiny_
    ledgers{verdict}                clean, skipped, undecided, with_findings
    findings{category}              findings, the suppressed ones included
    findings_by_severity{severity}
    failing                         findings that make the run fail
    copies{state}                   asked, judged
    bookies{state}                  known, answered, without_lists, silent, not_registered
    ended_seconds                   when the run ended, since 1970
    adds_up                         1; 0: INVALID

Source: https://prometheus.io/docs/instrumenting/exposition_formats/, text format 0.0.4.
"""

from collections.abc import Iterator, Mapping

from reconcile.jobs.scrutiny.request import Scrutinized


def format_metrics(result: Scrutinized, ended_s: float, *, adds_up: bool | None = None) -> str:
    """Return the text of the file.

    Args:
        result: of one run, or of several together.
        ended_s: when it ended, since 1970.
        adds_up: whether each of several runs adds up; None: it is one.
    """
    coverage = result.coverage
    lines: list[str] = []
    families: list[tuple[str, str, str, Mapping[str, float]]] = [
        ("ledgers", "Ledgers by what became of them.", "verdict", {
            "clean": result.clean, "skipped": sum(result.skipped.values()),
            "undecided": sum(result.undecided.values()), "with_findings": result.with_findings}),
        ("findings", "Findings by category.", "category", result.found),
        ("findings_by_severity", "Findings by severity.", "severity", result.by_severity),
        ("failing", "Findings that make the run fail.", "", {"": result.failing}),
        ("copies", "Copies that records ask for.", "state", {
            "asked": coverage["positions"], "judged": coverage["judged"]}),
        ("bookies", "Bookies by what came of asking them.", "state", {
            "known": coverage["bookies"], "answered": coverage["answered"],
            "without_lists": coverage["without_lists"], "silent": len(coverage["silent"]),
            "not_registered": len(coverage["not_registered"])}),
        ("ended_seconds", "When the run ended.", "", {"": ended_s}),
        ("adds_up", "1 where every listed ledger became one thing.", "", {
            "": int(result.adds_up if adds_up is None else adds_up)}),
    ]  # fmt: skip
    for name, text, label, values in families:
        lines += format_family(f"bookkeeper_metadata_scrutiny_{name}", text, label, values)
    return "\n".join(lines) + "\n"


def format_family(
    name: str, text: str, label: str, values: Mapping[str, float], *, kind: str = "gauge"
) -> Iterator[str]:
    """Yield the lines of one family of figures.

    Args:
        name: of the family.
        text: what it is.
        label: of each value's key; empty: there is one value, without a label.
        values: key → value; none: the family is not there.
        kind: Prometheus' type.
    """
    if not values:
        return
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for key, value in values.items():
        yield f'{name}{{{label}="{key}"}} {value}' if label else f"{name} {value}"
