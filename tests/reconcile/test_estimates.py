"""About how long a step takes: said before it begins, in the words and by the figures of the runbook."""

import json

import pytest

from reconcile.cli.output import Output
from reconcile.estimates import RATES, EstimatedStep, estimate_s, in_words
from tests.support.command import ROOT


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(3, "less than a minute"), (61, "about 1 minute"), (900, "about 15 minutes"), (3 * 3600, "about 3 hours")],
)
def test_durations_are_said_as_people_say_them(seconds: float, said: str) -> None:
    """No seconds of what is known to a factor of three."""
    assert in_words(seconds) == said


def test_the_figures_are_those_of_the_runbook() -> None:
    """Anybody who measures anew mends both."""
    page = (ROOT / "docs/operations/runbook.md").read_text(encoding="utf-8")
    assert f"{RATES[EstimatedStep.LIST].each_s * 1e3:g} ms a ledger" in page
    assert f"{RATES[EstimatedStep.COLLECT].each_s * 1e3:g} ms a ledger" in page
    assert f"{RATES[EstimatedStep.RECOVER].each_s * 1e6:g} µs a copy" in page
    assert f"{RATES[EstimatedStep.APPLY].each_s * 1e3:g} ms a write" in page
    assert set(RATES) == set(EstimatedStep)


def test_a_million_writes_are_an_estimate_of_a_quarter_of_an_hour(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs get it as an event; anybody who wanted no progress, or reads a pipe, nothing."""
    Output(as_json=True, progress="json").expect(EstimatedStep.APPLY, 1_000_000)
    event = json.loads(capsys.readouterr().err)
    assert event == {
        "event": "estimate",
        "stage": "apply",
        "seconds": round(estimate_s(EstimatedStep.APPLY, 1_000_000)),
    }
    assert in_words(event["seconds"]) == "about 13 minutes"
    for silent in (Output(as_json=True, progress="none"), Output(as_json=False, progress="auto")):
        silent.expect(EstimatedStep.APPLY, 1_000_000)
        assert capsys.readouterr().err == ""
