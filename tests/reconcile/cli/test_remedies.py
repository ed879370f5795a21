"""Every advice of a job is said with options of the command line that exist."""

import re
from pathlib import Path

import click
import pytest

from reconcile.cli.wording.remedies import describe_error
from reconcile.errors import Advice, GuardRefusedError, Remedy
from tests.support.command import commands, run


@pytest.mark.parametrize("advice", Advice)
def test_every_advice_is_worded(advice: Advice) -> None:
    """With its subject, its problem and its value; each option belongs to a command."""
    options = {name for command in commands().values() for p in command.params for name in p.opts
               if isinstance(p, click.Option)}  # fmt: skip
    text = describe_error(GuardRefusedError("there", "is wrong", Remedy(advice, 17)))
    assert text.startswith("there: is wrong; ")
    assert set(re.findall(r"--[a-z-]+", text)) <= options
    assert ("17" in text) is ("{value}" in advice.value)


def test_a_remedy_in_words_stays_as_it_is() -> None:
    """What needs no option is said as the job says it."""
    error = GuardRefusedError("there", "is wrong", "wait")
    assert describe_error(error) == str(error)


def test_programs_get_what_comes_next_after_a_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the result of a command has it: the same words that the sentence for people ends with."""
    refused = run(capsys, "plan", "show", tmp_path / "nowhere", "--json").result
    assert refused["next"]
    assert refused["verdict"].endswith(f"; {refused['next']}")
    assert run(capsys, "plan", "show", "--json").result["next"] == ""
