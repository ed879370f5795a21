"""Findings over runs: since when each is known, and who answers for it until when."""

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from reconcile.check.scrutiny.lifecycle import Lifecycle, is_mass, list_repairs, read_suppressions
from reconcile.findings.categories import Category
from reconcile.findings.table import Finding, FindingRun, LedgerKey, make_rows
from recovery.errors import InputError
from recovery.model.ids import LedgerId

TODAY = date(2026, 6, 1)
RUN = FindingRun("now", datetime(2026, 6, 1, tzinfo=UTC))
WHO = 'owner = "ops"\nwhy = "test topics"\n'


def finding(category: Category, ledger: int, *bookies: str) -> Finding:
    """One of a ledger."""
    return Finding(category, "copies", [], LedgerKey(LedgerId(0, ledger).bucket, 0, ledger), bookies=bookies)


def rows() -> pa.Table:
    """Three findings: two ledgers, two bookies."""
    return make_rows(
        [
            finding(Category.BELOW_WRITE_QUORUM, 7, "bk1"),
            finding(Category.BELOW_WRITE_QUORUM, 8, "bk2"),
            finding(Category.ENTRY_LOST, 7, "bk1", "bk2"),
        ],
        RUN,
    )


def suppress(tmp_path: Path, *entries: str) -> pa.Table:
    """The findings as a file of suppressions leaves them."""
    file = tmp_path / "suppress.toml"
    file.write_text("".join(f"[[suppress]]\n{entry}\n{WHO}until = 2026-06-01\n" for entry in entries))
    holding, expired = read_suppressions(file, TODAY)
    assert expired == ()
    return Lifecycle(suppressions=holding).apply(rows())


@pytest.mark.parametrize(
    ("entry", "hidden"),
    [
        ('category = "BELOW_WRITE_QUORUM"', [True, True, False]),
        ('category = "BELOW_WRITE_QUORUM"\nledger = "8"', [False, True, False]),
        ('category = "BELOW_WRITE_QUORUM"\nbookie = "bk1"', [True, False, False]),
        ('category = "ENTRY_LOST"\nbookie = "bk2"', [False, False, True]),
        ('category = "ENTRY_LOST"\nledger = "1:7"', [False, False, False]),
    ],
)
def test_a_suppression_hides_what_it_names(tmp_path: Path, entry: str, hidden: list[bool]) -> None:
    """By category alone, of a ledger, of a bookie; each says who answers for it."""
    found = suppress(tmp_path, entry)
    assert [row == "suppressed" for row in found["status"].to_pylist()] == hidden
    assert [row is not None and "ops, test topics" in row for row in found["suppressed_by"].to_pylist()] == hidden


def test_a_suppression_ends_after_its_last_day(tmp_path: Path) -> None:
    """It holds on that day, and is told to be over on the next."""
    file = tmp_path / "suppress.toml"
    file.write_text(f'[[suppress]]\ncategory = "ONE_COPY"\n{WHO}until = 2026-06-01\n')
    assert [len(part) for part in read_suppressions(file, TODAY)] == [1, 0]
    assert [len(part) for part in read_suppressions(file, date(2026, 6, 2))] == [0, 1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[suppress]\n", "is not TOML"),
        ("suppress = 3\n", "suppress: expected a list, got a whole number"),
        ("other = 1\n", "suppress: is missing|other: is unknown"),
        ("suppress = [3]\n", r"suppress\[0\]: expected a table"),
        (
            f'[[suppress]]\ncategory = "NONE"\n{WHO}until = 2026-06-01\n',
            r"suppress\[0\].category: invalid enum value 'NONE'",
        ),
        (f'[[suppress]]\ncategory = "ONE_COPY"\n{WHO}', r"suppress\[0\].until: is missing"),
        ('[[suppress]]\ncategory = "ONE_COPY"\nuntil = 2026-06-01\n', r"suppress\[0\].owner: is missing"),
        (f'[[suppress]]\ncategory = "ONE_COPY"\n{WHO}until = "soon"\n', r"suppress\[0\].until: invalid RFC3339"),
        (
            f'[[suppress]]\ncategory = "ONE_COPY"\nledger = 3\n{WHO}until = 2026-06-01\n',
            r"ledger: expected a text, got a whole number",
        ),
        (f'[[suppress]]\ncategory = "ONE_COPY"\nledger = "x"\n{WHO}until = 2026-06-01\n', "names no ledger"),
        (
            f'[[suppress]]\ncategory = "ONE_COPY"\nbooky = "x"\n{WHO}until = 2026-06-01\n',
            r"suppress\[0\].booky: is unknown",
        ),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    """And with its place."""
    file = tmp_path / "suppress.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=says) as raised:
        read_suppressions(file, TODAY)
    assert str(file) in str(raised.value)


def test_a_finding_keeps_the_day_that_it_was_seen_first() -> None:
    """By its id, which is the same in every run; a new one has this run's."""
    before = datetime(2026, 5, 1, tzinfo=UTC)
    known = Lifecycle({rows()["id"][1].as_py(): before})
    found = known.apply(rows())
    assert found["first_seen"].to_pylist() == [RUN.at, before, RUN.at]
    assert found["last_seen"].to_pylist() == [RUN.at] * 3


def test_only_what_a_shell_can_mend_has_its_commands() -> None:
    """Copies that are missing, one command a bookie; not what is lost."""
    found = list_repairs(rows().to_pylist())
    assert [(one["ledger"], one["commands"]) for one in found] == [
        ("7", ["bookkeeper shell recover -l 7 bk1"]),
        ("8", ["bookkeeper shell recover -l 8 bk2"]),
    ]


def test_a_mass_is_more_than_a_share_and_more_than_a_few() -> None:
    """Ten of twelve may have been deleted; eleven of twelve, and 101 of 1,000, may not."""
    assert [is_mass(10, 12), is_mass(11, 12), is_mass(100, 1000), is_mass(101, 1000)] == [False, True, False, True]
