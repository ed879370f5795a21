"""The figures of a scrutiny as Prometheus' text format has them.

    each begins with bookkeeper_metadata_scrutiny_
    ledgers{verdict}                clean, skipped, undecided, with_findings
    findings{category}              findings, the suppressed ones included
    findings_by_severity{severity}  likewise
    failing                         findings that make the run fail
    skipped{reason}                 ledgers that were skipped
    undecided{reason}               ledgers that stayed undecided
    copies{state}                   asked, judged: of all closed ledgers, the skipped ones included
    copies_not_judged{reason}       the others
    marks                           under-replication marks of closed ledgers
    marks_oldest_seconds            since when the oldest is there, since 1970; missing: there is none
    marks_same_runs                 runs in a row in which no mark fell or changed
    bookies{state}                  known, answered, without_lists, silent, not_registered
    ended_seconds                   when the run ended, since 1970
    adds_up                         1; 0: INVALID

Source: https://prometheus.io/docs/instrumenting/exposition_formats/, text format 0.0.4.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from reconcile.check.scrutiny.mark_progress import MarkProgress
from reconcile.jobs.scrutiny.request import Scrutinized


def format_metrics(result: Scrutinized, ended_s: float) -> str:
    """Return the text of the file of one run.

    Args:
        result: of the run.
        ended_s: when it ended, since 1970.
    """
    return format_families(list_metrics(result, ended_s, adds_up=result.adds_up))


def list_metrics(result: Scrutinized, ended_s: float, *, adds_up: bool) -> Iterator[Metric]:
    """Yield the figures of one run, or of several together.

    Args:
        result: of them.
        ended_s: when the last one ended, since 1970.
        adds_up: whether the sums of each run add up.
    """
    coverage, marks = result.coverage, msgspec.convert(result.coverage["marks"], MarkProgress)
    families: list[tuple[str, str, str, Mapping[str, float]]] = [
        ("ledgers", "Ledgers by what became of them.", "verdict", {
            "clean": result.clean, "skipped": sum(result.skipped.values()),
            "undecided": sum(result.undecided.values()), "with_findings": result.with_findings}),
        ("findings", "Findings by category.", "category", result.found),
        ("findings_by_severity", "Findings by severity.", "severity", result.by_severity),
        ("failing", "Findings that make the run fail.", "", {"": result.failing}),
        ("skipped", "Ledgers that were skipped.", "reason", result.skipped),
        ("undecided", "Ledgers that stayed undecided.", "reason", result.undecided),
        ("copies", "Copies that records of closed ledgers ask for.", "state", {
            "asked": coverage["positions"], "judged": coverage["judged"]}),
        ("copies_not_judged", "Copies that were not judged.", "reason", result.not_judged),
        ("marks", "Under-replication marks of closed ledgers.", "", {"": marks.number}),
        ("marks_oldest_seconds", "Since when the oldest mark is there.", "", {
            "": marks.oldest.timestamp()} if marks.oldest is not None else {}),
        ("marks_same_runs", "Runs in a row in which no mark fell or changed.", "", {"": marks.same_runs}),
        ("bookies", "Bookies by what came of asking them.", "state", {
            "known": coverage["bookies"], "answered": coverage["answered"],
            "without_lists": coverage["without_lists"], "silent": len(coverage["silent"]),
            "not_registered": len(coverage["not_registered"])}),
        ("ended_seconds", "When the run ended.", "", {"": ended_s}),
        ("adds_up", "1 where every listed ledger became one thing.", "", {"": int(adds_up)}),
    ]  # fmt: skip
    for name, text, label, values in families:
        yield from make_family(f"bookkeeper_metadata_scrutiny_{name}", text, label, values)


def make_family(
    name: str, text: str, label: str, values: Mapping[str, float], *, is_counter: bool = False
) -> Iterator[Metric]:
    """Yield one family of figures.

    Args:
        name: of the family; of a counter without ``_total``.
        text: its description.
        label: of each value's key; empty: there is one value, without a label.
        values: key → value; none: the family is left out.
        is_counter: whether it only ever grows.
    """
    if not values:
        return
    kind = CounterMetricFamily if is_counter else GaugeMetricFamily
    family = kind(name, text, labels=[label] if label else [])
    for key, value in values.items():
        family.add_metric([key] if label else [], value)
    yield family


class _Families:
    """Figures as a registry of Prometheus' client collects them."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def format_families(families: Iterable[Metric], *, further: CollectorRegistry | None = None) -> str:
    """Return figures as text.

    Args:
        families: the figures.
        further: a registry with more of them; it is not changed.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(list(families)))
    text = generate_latest(registry) + (b"" if further is None else generate_latest(further))
    return text.decode()
