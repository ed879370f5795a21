"""What speaks against a ledger that bookies show: a deletion of its own record, or of another one under the id."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from reconcile.compare.evidence import BookieEvidence as Known
from reconcile.compare.evidence import KnownTables
from reconcile.compare.three_way import ComparedRange, join_sides, settle_range
from recovery.dataset import sort_by_key
from recovery.infer.references import SCHEMA
from recovery.infer.refusal import Refusal
from recovery.model import tables
from recovery.model.metadata import LedgerMetadata
from tests.reconcile.compare.test_deleted_since import CLOSED, A, B, catalog, known, rows_of
from tests.simulation.evidence import Evidence
from tests.simulation.simulator import copy_row

KEY: Final = catalog(CLOSED)["password_hash"][0].as_py()
OTHER_KEY: Final = b"o" * 32
PLAIN: Final = Known(live=None, snapshots=(), everywhere=True, looked_at=True)
DELETED: Final = ("deleted", str(Refusal.DELETED_OUTSIDE))
TWO: Final = ("held", str(Refusal.TWO_HISTORIES))


def row(ledger: int, **changes: Any) -> dict[str, Any]:
    """Return a row of RECONSTRUCTION: restored."""
    return {
        **dict.fromkeys(("missing", "extra", "scope"), 0), "bucket": copy_row(ledger, A, [])["bucket"],
        "ledger": ledger, "class": "clean", "outcome": "restored", "reading": "proved", "format": 3,
        "grades": dict.fromkeys(tables.GRADED, "observed"), "holders": [A, B], "alternatives": [], "key": KEY,
        "lac_low": 5, **changes,
    }  # fmt: skip


def header(entry: int, length: int, digest: str | None = "CRC32C") -> list[dict[str, Any]]:
    """Return a header that a bookie has."""
    return [{"entry": entry, "lac": entry - 1, "length": length, "size": 50, "digest": digest}]


def runs(count: int, size: int, period: int) -> list[dict[str, int]]:
    """Return a group of so many runs."""
    return [{"first": 0, "last": (count - 1) * period, "size": size, "period": period}]


def settle(
    rows: Sequence[Mapping[str, Any]],
    copies: Sequence[Mapping[str, Any]] = (),
    deletions: Mapping[int, LedgerMetadata | None] | None = None,
    references: Sequence[Mapping[str, Any]] | None = None,
    evidence: Known = PLAIN,
    issued: int = 0,
    collided: Sequence[int] = (),
) -> dict[int, tuple[str, str | None]]:
    """Return outcome and reason of each ledger."""
    empty = tables.CATALOG_LEDGERS.empty_table()
    beside = KnownTables(
        empty, (), Evidence(deletions=deletions or {}).history(), empty.select(list(tables.KEY_COLUMNS)),
        None if references is None else sort_by_key(pa.Table.from_pylist(list(references), schema=SCHEMA)),
    )  # fmt: skip
    made = sort_by_key(pa.Table.from_pylist(list(rows), schema=tables.RECONSTRUCTION))
    part: ComparedRange = join_sides(made, beside)
    part = replace(part, collided=np.isin(part.compared.sides["ledger"].to_numpy(), collided))
    held = sort_by_key(pa.Table.from_pylist(list(copies), schema=tables.COPIES))
    found = settle_range(evidence, part, beside, held, issued)
    return {ledger: (one["outcome"], one["reason"]) for ledger, one in rows_of(found.rows).items()}


@pytest.mark.parametrize(
    ("shown", "copies", "found"),
    [
        ({}, [{}], DELETED),
        ({"lac_low": 9}, [{}], DELETED),
        ({"lac_low": 10}, [{}], TWO),
        ({"lac_low": None, "key": None}, [{}], DELETED),
        ({"key": OTHER_KEY}, [{}], TWO),
        ({}, [{"headers": header(8, 100)}], DELETED),
        ({}, [{"headers": header(8, 101)}], TWO),
        ({}, [{"headers": header(9, 100)}], DELETED),
        ({}, [{"headers": header(9, 99)}], TWO),
        ({}, [{"headers": header(9, 101)}], TWO),
        ({}, [{"headers": header(10, 100)}], DELETED),
        ({}, [{"headers": header(10, 99)}], TWO),
        ({}, [{"headers": header(9, 100, "CRC32")}], TWO),
        ({}, [{"headers": header(9, 100, None)}], DELETED),
        ({}, [{"headers": header(9, 99), "source": "log"}], DELETED),
        ({"key": None}, [{"key": OTHER_KEY}, {"key": b"p" * 32}], TWO),
        ({"key": None}, [{"key": OTHER_KEY}, {"key": KEY}], DELETED),
        ({"key": None}, [{"key": OTHER_KEY, "key_kind": "empty"}], DELETED),
        ({}, [{"groups": runs(3, 1, 4)}] * 2, TWO),
        ({}, [{"groups": runs(3, 2, 3)}] * 2, TWO),
        ({}, [{"groups": runs(3, 1, 3)}] * 2, TWO),
        ({}, [{"groups": runs(3, 1, 4)}], DELETED),
        ({}, [{"groups": runs(2, 1, 4)}] * 2, DELETED),
        ({}, [{"groups": runs(3, 3, 3)}] * 2, DELETED),
        ({}, [{"groups": runs(3, 1, 4)}, {"groups": runs(3, 1, 5)}], DELETED),
        ({}, [{"groups": runs(3, 1, 4), "source": "log"}] * 2, DELETED),
    ],
)
def test_a_deletion_is_of_the_ledger_or_of_another_one(
    shown: dict[str, Any], copies: Sequence[dict[str, Any]], found: tuple[str, str]
) -> None:
    """By its LAC, key, digest, lengths and stripes; a second ledger beside it shows the same alone."""
    for ledgers in ((1,), (2, 1, 3)):
        rows = [row(ledger, **(shown if ledger == 1 else {})) for ledger in ledgers]
        held = [copy_row(1, f"b{n}:1", [0]) | {"key": KEY} | change for n, change in enumerate(copies)]
        held += [copy_row(ledger, A, [0]) | {"key": KEY} for ledger in ledgers if ledger != 1]
        settled = settle(rows, held, dict.fromkeys(ledgers, CLOSED))
        assert settled == {ledger: found if ledger == 1 else DELETED for ledger in ledgers}


@pytest.mark.parametrize(
    ("shape", "groups", "found"),
    [
        ((3, 2), runs(3, 2, 3), DELETED),
        ((3, 2), runs(4, 1, 3), TWO),
        ((4, 2), runs(3, 2, 3), TWO),
        ((1, 1), runs(3, 1, 4), DELETED),
        ((1, 1), runs(3, 2, 4), TWO),
        ((2, 1), runs(3, 1, 4), TWO),
        (None, runs(3, 1, 4), DELETED),
    ],
)
def test_stripes_are_held_against_the_deleted_records_shape(
    shape: tuple[int, int] | None, groups: list[dict[str, int]], found: tuple[str, str]
) -> None:
    """A single bookie that wrote all shows a period of its own; a record that is not known any more has no shape."""
    ensemble, write = shape or (0, 0)
    members = tuple(f"b{n}:1" for n in range(ensemble))
    segments = (replace(CLOSED.segments[0], members=members),)
    record = replace(CLOSED, ensemble_size=ensemble, write_quorum=write, ack_quorum=1, segments=segments)
    held = [copy_row(1, name, [0], groups=groups) | {"key": KEY} for name in (A, B)]
    assert settle([row(1)], held, {1: record if shape else None}) == {1: found}


def test_what_was_deleted_is_held_where_too_much_was() -> None:
    """What a person or a tombstone says is deleted, another says; so is what is collided, or was given out before."""
    rows = [row(1), row(2), row(3, scope=5), row(4), row(7), row(6, outcome="waiting", reason="id_out_of_range")]
    held = [copy_row(ledger, A, [0]) | {"key": KEY} for ledger in (1, 2, 3, 4, 7)]
    key = {name: rows[1][name] for name in tables.KEY_COLUMNS}
    stated = [{**key, "deleted": True}]
    plain = settle(rows, held, {1: CLOSED, 2: CLOSED, 6: CLOSED}, stated)
    assert plain == {
        1: DELETED, 2: ("restored", None), 3: ("restored", None), 4: ("restored", None), 7: ("restored", None),
        6: ("waiting", "id_out_of_range"),
    }  # fmt: skip
    mass = settle(rows, held, {1: CLOSED, 2: CLOSED}, stated, evidence=replace(PLAIN, mass_deletion=True))
    assert mass == plain | {1: ("held", str(Refusal.MASS_DELETION))}
    before = ("held", str(Refusal.DELETED_BEFORE))
    assert settle(rows, held, {}, stated, issued=4) == plain | {1: before}
    assert settle(rows, held, {}, None, issued=5) == plain | {1: before, 2: before, 4: before}
    collided = settle(rows, held, {1: CLOSED}, collided=[1, 4])
    assert {ledger for ledger, one in collided.items() if one == ("held", str(Refusal.SCOPE_COLLISION))} == {1, 4}


def test_the_first_id_that_a_store_gives_out_is_one_of_those_given_out_before() -> None:
    """It is 0. The next one was not given out yet."""
    rows = [row(0), row(1)]
    held = [copy_row(ledger, A, [0]) | {"key": KEY} for ledger in (0, 1)]
    found = settle(rows, held, {}, None, issued=1)
    assert found == {0: ("held", str(Refusal.DELETED_BEFORE)), 1: ("restored", None)}


def test_what_an_upper_layer_let_go_of_is_held_where_too_much_was() -> None:
    """Only where its history shows how; references alone, or few, change nothing here."""
    rows = [row(1), row(2), row(3)]
    references = [
        {**{name: one[name] for name in tables.KEY_COLUMNS}, "deletion": "trimmed" if one["ledger"] == 1 else None}
        for one in (*rows[:2], row(9))
    ]
    kept = dict.fromkeys((1, 2, 3), ("restored", None))
    assert settle(rows, references=references) == kept
    many = replace(PLAIN, mass_let_go=True)
    assert settle(rows, references=references, evidence=many) == kept | {1: ("held", str(Refusal.MASS_DELETION))}
    assert settle(rows, evidence=many) == kept


def test_a_range_has_what_becomes_of_ledgers_that_a_snapshot_alone_has() -> None:
    """Proposed ones are outcomes, in key order; of the others nothing becomes."""
    beside = known(CLOSED, CLOSED, CLOSED)
    collided = pa.Table.from_pylist([row(1), row(9)]).select(list(tables.KEY_COLUMNS))
    part = join_sides(pa.Table.from_pylist([row(1)], schema=tables.RECONSTRUCTION), replace(beside, collided=collided))
    ledgers = part.compared.sides["ledger"].to_numpy()
    assert ledgers[part.collided].tolist() == [1]
    assert not join_sides(part.rows, beside).collided.any()
    proposed = pa.Table.from_pylist([row(2)], schema=tables.RECONSTRUCTION)
    for alone, outcomes, left in ((None, {1}, {2, 3}), (proposed.slice(0, 0), {1}, {2, 3}), (proposed, {1, 2}, {3})):
        found = replace(part, alone=alone)
        assert found.outcomes() == sort_by_key(found.outcomes())
        assert set(found.outcomes()["ledger"].to_pylist()) == outcomes
        assert set(ledgers[found.find_left_out()].tolist()) == left
