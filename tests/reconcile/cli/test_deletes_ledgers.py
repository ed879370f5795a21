"""Files of ledgers, as `delete request --from` reads them."""

import os
import threading
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from reconcile.cli.option_groups.deletes import ledger_arguments, take_copies, take_ledgers
from reconcile.cli.options import DURATION
from recovery.errors import InputError
from recovery.model.ids import LedgerId


def read(path: Path, *words: str) -> list[LedgerId]:
    """Return the ledgers that a command line names."""
    taken: list[LedgerId] = []

    @click.command()
    @ledger_arguments
    def ask(**values: Any) -> None:
        taken.extend(take_ledgers(values))

    done = CliRunner().invoke(ask, ["--from", str(path), *words], catch_exceptions=True)
    if done.exception is not None:
        raise done.exception
    return taken


def test_every_form_of_an_id_is_read(tmp_path: Path) -> None:
    """Numbers with and without a scope, digits, JSON lines; its signed halves are those that columns have."""
    path = tmp_path / "ids"
    lines = ["5", "7:3", f"{7:016x}{9:016x}", "", "# a comment", '{"ledger": 6}', '{"ledger": 4, "scope": 7}']
    lines += ['{"ledger": "8"}', '{"ledger": -1, "scope": -2}', '{"ledger": -3}', '{"ledger": 5, "scope": 0}']
    path.write_text("\n".join(lines))
    ids = [(0, 5), (7, 3), (7, 9), (0, 6), (7, 4), (0, 8), (-2, -1), (0, -3)]
    assert read(path) == [LedgerId(*pair) for pair in ids]
    assert read(
        path, "6", "11", "--ledger-qualified-name", f"{7:016x}{3:016x}", "--ledger-qualified-name", "0" * 32
    ) == [
        LedgerId(0, 6),
        LedgerId(0, 11),
        LedgerId(7, 3),
        LedgerId(0, 0),
        *(LedgerId(*pair) for pair in ids if pair not in ((0, 6), (7, 3))),
    ]


def test_copies_are_taken_from_a_pipe(tmp_path: Path) -> None:
    """As `--from <(...)` is: what a line says counts for its ledger, else the options; the pipe is read once."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    lines = ('{"ledger": 5, "to": "s3://b/5", "checksum": "c0ffee"}', '{"ledger": 6, "checksum": "ab"}', "7", "8")
    writer = threading.Thread(target=pipe.write_text, args=("\n".join(lines),))
    writer.start()
    values = {"ledgers": ("8", "9"), "qualified": (), "source": pipe, "scope": None}
    copies = take_copies(values, "s3://rest", "")
    writer.join()
    rest = dict.fromkeys((LedgerId(0, number) for number in (7, 8, 9)), ("s3://rest", ""))
    assert copies == {LedgerId(0, 5): ("s3://b/5", "c0ffee"), LedgerId(0, 6): ("s3://rest", "ab"), **rest}


@pytest.mark.parametrize("text", ["7", "", "1.5d", "7w", "-1d", "36501d", "1d "])
def test_a_duration_has_a_unit_and_an_end(text: str) -> None:
    """A soak of 7 may be meant as days, and would be over in seconds."""
    with pytest.raises(click.BadParameter, match=r"not a duration|a hundred years"):
        DURATION.convert(text, None, None)
    spans = {"0s": 0, "90s": 90, "10m": 600, "24h": 86_400, "7d": 604_800}
    assert {DURATION.convert(span, None, None).total_seconds() for span in spans} == set(spans.values())


@pytest.mark.parametrize(
    "line",
    ["x", "{", "{}", '{"ledger": 1.5}', '{"ledger": null}', f'{{"ledger": {2**64}}}', f'{{"ledger": {-(2**63) - 1}}}'],
)
def test_a_line_that_names_none_is_named(line: str, tmp_path: Path) -> None:
    """No ledger is taken for another one: the file is not read in part."""
    path = tmp_path / "ids"
    path.write_text(f"5\n{line}\n")
    with pytest.raises(InputError, match="line 2: names no ledger"):
        read(path)
