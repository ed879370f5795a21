"""Columns of store keys: keys from ledgers, ledgers from keys, and the kinds of other keys.

`recovery.codecs.store` has the forms of the keys and reads one key at a time; a property test compares the two.
"""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs.packing import PackedField, constant, pack
from recovery.codecs.store import (
    ETCD_LEDGERS,
    FIRST_LONG_ID,
    FLAT_PATTERN,
    FORMS,
    KIND_PATTERNS,
    LONG_FORM,
    MARK_FORM,
    SCOPED,
    SCOPED_MARK_FORM,
    SHORT_FORM,
    Layout,
    find_placeless,
    folder_patterns,
)

_MAX: Final = np.uint64((1 << 63) - 1)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class LedgerKeys:
    """Keys that are ledgers'.

    Attributes:
        rows: which of the keys, ascending.
        scope, ledger: of each of these.
    """

    rows: Ints
    scope: Ints
    ledger: Ints


def ledgers_of(layout: Layout, keys: pa.Array) -> LedgerKeys:
    """Return the ledgers among keys below a root, by the rule of `store.ledger_of`.

    Args:
        layout: of the store.
        keys: strings without nulls.
    """
    sizes = pc.binary_length(keys).to_numpy(zero_copy_only=False)
    forms = FORMS[layout]
    pieces = []
    for form in forms.unscoped:
        rows, digits = _of_form(keys, sizes, form)
        number = _decimal(digits)
        good = number <= _MAX
        if len(forms.unscoped) > 1:
            good &= (number < np.uint64(FIRST_LONG_ID)) == (form is SHORT_FORM)
        pieces.append((rows[good], np.zeros(int(good.sum()), np.int64), number[good].view(np.int64)))
    if layout is Layout.FLAT:
        pieces.append(_flat(keys))
    rows, digits = _of_form(keys, sizes, forms.qualified)
    halves = _hexadecimal(digits)
    good = (halves[:, 0] != 0) | (forms.holds_all & (halves[:, 1] >= 0))
    pieces.append((rows[good], halves[good, 0], halves[good, 1]))
    where, scope, ledger = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    order = np.argsort(where, kind="stable")
    return LedgerKeys(where[order], scope[order], ledger[order])


def ledger_keys(layout: Layout, scope: Ints, ledger: Ints) -> pa.Array:
    """Return the keys of many ledgers, as strings, in the given order.

    Raises:
        ValueError: the layout has no place for one of the ids.
    """
    scoped = scope != 0
    bad = find_placeless(layout, scope, ledger)
    if bad.any():
        raise ValueError(f"layout {layout} has no place for ledger {ledger[bad][0]}")
    if FORMS[layout].holds_all:
        return _fill(FORMS[layout].qualified, _hex_digits(scope, ledger))
    forms = FORMS[layout].unscoped
    short = np.zeros_like(scoped)
    if SHORT_FORM in forms:
        short = ~scoped & ((LONG_FORM not in forms) | (ledger < FIRST_LONG_ID))
    parts, rows = [], []
    for where in map(np.flatnonzero, (short, ~scoped & ~short, scoped)):
        if len(where):
            rows.append(where)
            if scoped[where[0]]:
                parts.append(_fill(FORMS[layout].qualified, _hex_digits(scope[where], ledger[where])))
            elif layout is Layout.FLAT:
                digits = pc.utf8_lpad(pa.array(ledger[where]).cast(pa.string()), 10, "0")
                parts.append(pc.binary_join_element_wise("/L", digits, ""))
            else:
                form = SHORT_FORM if short[where[0]] else LONG_FORM
                parts.append(_fill(form, _decimal_digits(ledger[where], form.count("0"))))
    if len(parts) <= 1:
        return parts[0] if parts else pa.array([], pa.string())
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(rows))))


def _decimal_digits(ledger: Ints, width: int) -> npt.NDArray[np.uint8]:
    digits = np.empty((len(ledger), width), np.uint8)
    rest = ledger.copy()
    for column in range(width - 1, -1, -1):
        rest, digit = np.divmod(rest, 10)
        digits[:, column] = digit + ord("0")
    return digits


def _hex_digits(scope: Ints, ledger: Ints) -> npt.NDArray[np.uint8]:
    halves = np.stack([scope, ledger], axis=1).astype(">i8").view(np.uint8).reshape(len(scope), 16)
    nibbles = np.stack([halves >> 4, halves & 15], axis=2).reshape(len(scope), 32)
    return np.frombuffer(b"0123456789abcdef", np.uint8)[nibbles]


def _fill(form: str, digits: npt.NDArray[np.uint8]) -> pa.Array:
    """Put rows of digits in the places of a form."""
    fields, column = [], 0
    for part in re.findall("0+|#+|[^0#]+", form):
        if part[0] in "0#":
            fields.append(PackedField(digits[:, column : column + len(part)]))
            column += len(part)
        else:
            fields.append(constant(part.encode()))
    return pack(len(digits), *fields, kind=pa.string())


def are_folders(layout: Layout, keys: pa.Array) -> pa.Array:
    """Mark keys that are inner nodes on the way to a layout's ledgers, without `/scoped` and `/ledgers`."""
    if FORMS[layout].holds_all:
        return pc.equal(keys, "")
    folders = [
        "/".join(names[: level + 1])
        for names in folder_patterns(layout)
        for level in range(len(names))
        if f"/{names[level]}" not in (SCOPED, ETCD_LEDGERS)
    ]
    return pc.match_substring_regex(keys, f"^/({'|'.join(folders)})$")


def kinds_of(keys: pa.Array) -> pa.Array:
    """Return the kinds of keys without a ledger, by the rule of `store.kind_of`."""
    kinds = pa.nulls(len(keys), pa.string())
    for kind, pattern in KIND_PATTERNS:
        fits = pc.match_substring_regex(keys, f"(?s)^({pattern})$")
        kinds = pc.coalesce(kinds, pc.if_else(fits, kind, pa.scalar(None, pa.string())))
    return pc.fill_null(kinds, "other")


def read_marks(keys: pa.Array) -> LedgerKeys:
    """Return the ledgers whose under-replication marks are at keys; other keys are skipped."""
    sizes = pc.binary_length(keys).to_numpy(zero_copy_only=False)
    shortest = len(MARK_FORM) + 10
    pieces = []
    for digits in range(10, 20):
        rows, values = _of_form(keys, sizes, MARK_FORM + "0" * digits)
        folders = _hexadecimal(np.pad(values[:, :16], ((0, 0), (16, 0)), constant_values=ord("0")))[:, 1]
        number = _decimal(values[:, 16:])
        padded = (values[:, 16] == ord("0")) & (sizes[rows] > shortest)
        good = (number <= _MAX) & ~padded & (number.view(np.int64) == folders)
        pieces.append((rows[good], np.zeros(int(good.sum()), np.int64), folders[good]))
    rows, values = _of_form(keys, sizes, SCOPED_MARK_FORM)
    halves = _hexadecimal(values[:, 32:])
    good = (halves[:, 0] != 0) & (values[:, :32] == values[:, 32:]).all(axis=1)
    pieces.append((rows[good], halves[good, 0], halves[good, 1]))
    where, scope, ledger = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    order = np.argsort(where, kind="stable")
    return LedgerKeys(where[order], scope[order], ledger[order])


def mark_keys(scope: Ints, ledger: Ints) -> list[str]:
    """Return the keys of the under-replication marks of ledgers, below the root, in the given order."""
    digits = _hex_digits(scope, ledger)
    unscoped = scope == 0
    folders = _fill(MARK_FORM, digits[:, 16:])
    leaves = pc.utf8_lpad(pa.array(ledger).cast(pa.string()), 10, "0")
    plain = pc.binary_join_element_wise(folders, leaves, "")
    scoped = _fill(SCOPED_MARK_FORM, np.concatenate([digits, digits], axis=1))
    keys: list[str] = pc.if_else(pa.array(unscoped), plain, scoped).to_pylist()
    return keys


def _of_form(keys: pa.Array, sizes: Ints, form: str) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return which keys have a form, and their digits."""
    wanted = np.frombuffer(form.encode(), np.uint8)
    rows = np.flatnonzero(sizes == len(wanted))
    taken = keys.take(pa.array(rows))
    if not len(rows):
        return rows, np.zeros((0, int(np.isin(wanted, [ord("0"), ord("#")]).sum())), np.uint8)
    matrix = np.frombuffer(taken.buffers()[2], np.uint8, len(rows) * len(wanted)).reshape(len(rows), len(wanted))
    decimal, hexadecimal = wanted == ord("0"), wanted == ord("#")
    fixed = ~(decimal | hexadecimal)
    good = (matrix[:, fixed] == wanted[fixed]).all(axis=1)
    rows, matrix = rows[good], matrix[good]
    digits = matrix[:, ~fixed]
    is_digit = (digits >= ord("0")) & (digits <= ord("9"))
    is_digit |= hexadecimal[~fixed] & (digits >= ord("a")) & (digits <= ord("f"))
    whole = is_digit.all(axis=1)
    return rows[whole], digits[whole]


def _decimal(digits: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Return the numbers of up to 19 digits each."""
    number = np.zeros(len(digits), np.uint64)
    for column in range(digits.shape[1]):
        number = number * np.uint64(10) + (digits[:, column] - np.uint8(ord("0")))
    return number


def _hexadecimal(digits: npt.NDArray[np.uint8]) -> Ints:
    """Return the two halves of 32 digits each."""
    nibbles = np.where(digits <= ord("9"), digits - np.uint8(ord("0")), digits - np.uint8(ord("a") - 10))
    octets = np.ascontiguousarray((nibbles[:, ::2] << 4) | nibbles[:, 1::2])
    return octets.view(">i8").astype(np.int64).reshape(len(digits), 2)


def _flat(keys: pa.Array) -> tuple[Ints, Ints, Ints]:
    fits = pc.match_substring_regex(keys, f"^{FLAT_PATTERN}$").to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(fits)
    number = pc.utf8_slice_codeunits(keys.take(pa.array(rows)), 2).cast(pa.uint64()).to_numpy(zero_copy_only=False)
    good = number <= _MAX
    return rows[good], np.zeros(int(good.sum()), np.int64), number[good].view(np.int64)
