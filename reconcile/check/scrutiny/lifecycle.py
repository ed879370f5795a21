"""Findings over runs: when each was first found, suppressions and their ends, ledgers that vanished together.

A suppression is TOML; it hides a finding from the exit code, and never from the report:

    [[suppress]]
    category = "ONE_COPY"
    ledger = "123"             # or: bookie = "bk1:3181"; neither: every finding of the category
    owner = "ops"
    why = "test topics"
    until = 2027-01-31         # the last day, in UTC; from then on it says that it is over
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile.findings.categories import TRAITS, Category
from reconcile.operator_files import read_operator_text
from recovery.errors import InputError
from recovery.model.ids import LedgerId, parse

_KEYS: Final = {"category", "ledger", "bookie", "owner", "why", "until"}
_FORM: Final = (
    "write [[suppress]] with category, owner, why, until = YYYY-MM-DD, and ledger or bookie if it concerns one"
)
MASS_AT_LEAST: Final = 10
MASS_SHARE: Final = 0.1
"""If more ledgers than both limits vanished since the run before, they were probably not deleted on purpose."""


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
    text = read_operator_text(path, _FORM)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(path), f"is not TOML: {error}", _FORM) from error
    entries = content.get("suppress")
    if not isinstance(entries, list) or set(content) != {"suppress"}:
        raise InputError(str(path), "has not [[suppress]] alone", _FORM)
    parsed = [_parse(entry, f"{path}, entry {number}") for number, entry in enumerate(entries, 1)]
    return tuple(s for s in parsed if s.until >= today), tuple(s for s in parsed if s.until < today)


def _parse(entry: Any, where: str) -> Suppression:  # noqa: ANN401 - what TOML has
    if not isinstance(entry, dict):
        raise InputError(where, "is not a table", _FORM)
    if unknown := set(entry) - _KEYS:
        raise InputError(where, f"has unknown keys: {', '.join(sorted(unknown))}", _FORM)
    missing = [key for key in ("category", "owner", "why", "until") if not entry.get(key)]
    if missing:
        raise InputError(where, f"lacks {', '.join(missing)}", _FORM)
    texts = {key: entry.get(key) for key in _KEYS - {"until"}}
    if any(value is not None and not isinstance(value, str) for value in texts.values()):
        raise InputError(where, "has a value that is not text", _FORM)
    if texts["category"] not in set(Category):
        raise InputError(where, f"names no category: {texts['category']}", "name one that a run shows")
    until = entry["until"]
    if not isinstance(until, date) or isinstance(until, datetime):
        raise InputError(where, f"until is not a day: {until}", _FORM)
    if texts["ledger"] and texts["bookie"]:
        raise InputError(where, "names a ledger and a bookie", "write two entries")
    try:
        ledger = parse(texts["ledger"]) if texts["ledger"] else None
    except ValueError as error:
        raise InputError(where, f"names no ledger: {error}", _FORM) from error
    return Suppression(str(texts["category"]), ledger, texts["bookie"], str(texts["owner"]), str(texts["why"]), until)


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
