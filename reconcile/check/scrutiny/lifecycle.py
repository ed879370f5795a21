"""Findings over runs: when each was first found, suppressions and their ends, ledgers that vanished together.

A suppression is TOML; it hides a finding from the exit code, and never from the report:

    [[suppress]]
    category = "ONE_COPY"
    ledger = "123"             # or: bookie = "bk1:3181"; neither: every finding of the category
    owner = "ops"
    why = "test topics"
    until = 2027-01-31         # the last day, in UTC; from then on it says that it is over
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import TRAITS, Category
from reconcile.operator_files import OperatorTable, convert_values, read_toml
from recovery.errors import InputError
from recovery.model.ids import LedgerId, parse

_FORM: Final = (
    "write [[suppress]] with category, owner, why, until = YYYY-MM-DD, and ledger or bookie if it concerns one"
)
MASS_AT_LEAST: Final = 10
MASS_SHARE: Final = 0.1
"""If more ledgers than both limits vanished since the run before, they were probably not deleted on purpose."""


_Text = Annotated[str, msgspec.Meta(min_length=1)]


class _Entry(OperatorTable, frozen=True):
    category: Category
    owner: _Text
    why: _Text
    until: date
    ledger: _Text | None = None
    bookie: _Text | None = None


class _File(OperatorTable, frozen=True):
    suppress: tuple[_Entry, ...]


@dataclass(frozen=True, slots=True)
class Suppression:
    """Which findings a person has accepted, and until when.

    Attributes:
        category: of the findings.
        ledger: None: of any.
        bookie: named by the findings; None: any.
        owner: the responsible person.
        why: the reason.
        until: the last day.
    """

    category: str
    ledger: LedgerId | None
    bookie: str | None
    owner: str
    why: str
    until: date

    def __str__(self) -> str:
        about = "" if self.ledger is None else f" of ledger {self.ledger}"
        about += "" if self.bookie is None else f" of {self.bookie}"
        return f"{self.category}{about}: {self.owner}, {self.why}, until {self.until}"


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The history of findings before this run; small, and picklable.

    Attributes:
        first_seen: id → when the finding was seen first, of the earlier run; None: there is none.
        suppressions: valid today.
    """

    first_seen: Mapping[bytes, datetime] | None = None
    suppressions: tuple[Suppression, ...] = field(default=())

    def apply(self, findings: pa.Table) -> pa.Table:
        """Return findings with their first time, and with suppressed ones marked; FINDINGS in."""
        if self.first_seen and findings.num_rows:
            known = [self.first_seen.get(key) for key in findings["id"].to_pylist()]
            earlier = pa.array(known, findings.schema.field("first_seen").type)
            findings = _replace(findings, "first_seen", pc.coalesce(earlier, findings["first_seen"]))
        for suppression in self.suppressions:
            mask = _match(findings, suppression)
            if pc.any(mask).as_py():
                findings = _replace(findings, "status", pc.if_else(mask, "suppressed", findings["status"]))
                findings = _replace(
                    findings, "suppressed_by", pc.if_else(mask, str(suppression), findings["suppressed_by"])
                )
        return findings


def read_suppressions(path: Path, today: date) -> tuple[tuple[Suppression, ...], tuple[Suppression, ...]]:
    """Return the suppressions of a file that still hold, and the expired ones.

    Raises:
        InputError: the file cannot be read, is no TOML, or an entry is not as it should be.
    """
    content = convert_values(read_toml(path, _FORM), _File, path, _FORM)
    parsed = [_parse(entry, f"{path}, suppress[{number}]") for number, entry in enumerate(content.suppress)]
    return tuple(s for s in parsed if s.until >= today), tuple(s for s in parsed if s.until < today)


def _parse(entry: _Entry, where: str) -> Suppression:
    if entry.ledger and entry.bookie:
        raise InputError(where, "names a ledger and a bookie", "write two entries")
    try:
        ledger = None if entry.ledger is None else parse(entry.ledger)
    except ValueError as error:
        raise InputError(where, f"names no ledger: {error}", _FORM) from error
    return Suppression(entry.category, ledger, entry.bookie, entry.owner, entry.why, entry.until)


def _match(findings: pa.Table, suppression: Suppression) -> pa.ChunkedArray:
    mask = pc.equal(findings["category"], suppression.category)
    if suppression.ledger is not None:
        same = pc.and_(
            pc.equal(findings["ledger"], suppression.ledger.ledger),
            pc.equal(findings["scope"], suppression.ledger.scope),
        )
        mask = pc.and_(mask, pc.fill_null(same, fill_value=False))
    if suppression.bookie is not None:
        names = pc.list_flatten(findings["bookies"])
        rows = pc.list_parent_indices(findings["bookies"]).filter(pc.equal(names, suppression.bookie))
        named = np.zeros(findings.num_rows, np.bool_)
        named[rows.to_numpy()] = True
        mask = pc.and_(mask, pa.array(named))
    return mask


def _replace(findings: pa.Table, name: str, values: Any) -> pa.Table:  # noqa: ANN401 - an Arrow column
    where = findings.schema.get_field_index(name)
    return findings.set_column(where, findings.schema.field(name), values.cast(findings.schema.field(name).type))


def is_mass(vanished: int, listed: int) -> bool:
    """Whether too many ledgers of the run before vanished for deletions on purpose."""
    return vanished > max(MASS_AT_LEAST, MASS_SHARE * listed)


def list_repairs(findings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each finding that BookKeeper's own shell would repair, the commands that do it.

    Only closed ledgers have such findings. A bookie that lacks entries is named as the one to be replaced.
    """
    commands: list[dict[str, Any]] = []
    for row in findings:
        if not TRAITS[row["category"]].shell_repairs or row["ledger"] is None or row["status"] != "open":
            continue
        ledger = LedgerId(row["scope"], row["ledger"])
        if ledger.scope:
            continue
        run = [f"bookkeeper shell recover -l {ledger} {bookie}" for bookie in row["bookies"]]
        commands.append({"ledger": str(ledger), "category": row["category"], "id": row["id"].hex(), "commands": run})
    return commands
