"""Columns of store keys: which are ledgers' and which not, and of what kind; `recovery.codecs.store` one key at a time.

The codec of single keys is what is right; the columns are what is quick. A property test says that they agree.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recovery.codecs.store import FIRST_LONG_ID, Layout

_SHORT: Final = "/00/0000/L0000"
_LONG: Final = "/000/0000/0000/0000/L0000"
_SCOPED: Final = "/scoped" + "/####" * 7 + "/L####"
_ETCD: Final = "/ledgers/########-####-####-####-############"
_MARK: Final = "/underreplication/ledgers" + "/####" * 4 + "/urL"
_SCOPED_MARK: Final = "/underreplication/scoped-ledgers" + "/####" * 8 + "/urS" + "#" * 32
_FLAT: Final = r"^/L([0-9]{10}|[1-9][0-9]{10,18})$"
_PLAIN: Final = {
    Layout.FLAT: (),
    Layout.LEGACY: (_SHORT,),
    Layout.HIERARCHICAL: (_SHORT, _LONG),
    Layout.LONGHIERARCHICAL: (_LONG,),
    Layout.LONGLONGHIERARCHICAL: (_LONG,),
    Layout.ETCD: (),
}
"""Forms of the keys of scope 0: 0 stands for a decimal digit, # for a hex digit."""
_FOLDERS: Final = {
    _SHORT: "[0-9]{2}(/[0-9]{4})?",
    _LONG: "[0-9]{3}(/[0-9]{4}){0,3}",
    _SCOPED: "scoped(/[0-9a-f]{4}){1,7}",
}
_KINDS: Final = (
    ("layout", "^/(LAYOUT|layout)$"),
    ("instance_id", "^/(INSTANCEID|instanceid)$"),
    ("cookie", "^/cookies/[^/]*$"),
    ("other", "^/available/readonly$"),
    ("registration", "^/available/(readonly/)?[^/]*$"),
    ("registration", "^/bookies/(writable|readonly)/[^/]*$"),
    ("generator", "^/buckets/[^/]*$"),
    ("generator", "(?s)^/(idgen|idgen-long)(/.*)?$"),
    ("generator", "^/ID-[^/]*$"),
    ("mark", "(?s)^/underreplication/ledgers/(.*/)?urL[^/]*$"),
    ("mark", "(?s)^/underreplication/scoped-ledgers/(.*/)?urS[^/]*$"),
    ("lock", "^/underreplication/locks/[^/]*$"),
)
"""The first that fits is the kind; else it is other."""
_MAX: Final = np.uint64((1 << 63) - 1)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Ledgers:
    """Keys that are ledgers'.

    Attributes:
        rows: which of the keys, ascending.
        scope, ledger: of each of these.
    """

    rows: Ints
    scope: Ints
    ledger: Ints


def ledgers_of(layout: Layout, keys: pa.Array) -> Ledgers:
    """Return the ledgers among keys below a root, as `store.ledger_of` tells them.

    Args:
        layout: of the store.
        keys: strings without nulls.
    """
    sizes = pc.binary_length(keys).to_numpy(zero_copy_only=False)
    found = []
    for form in _PLAIN[layout]:
        rows, digits = _of_form(keys, sizes, form)
        number = _decimal(digits)
        good = number <= _MAX
        if layout is Layout.HIERARCHICAL:
            good &= (number < np.uint64(FIRST_LONG_ID)) == (form is _SHORT)
        found.append((rows[good], np.zeros(int(good.sum()), np.int64), number[good].view(np.int64)))
    if layout is Layout.FLAT:
        found.append(_flat(keys))
    rows, digits = _of_form(keys, sizes, _ETCD if layout is Layout.ETCD else _SCOPED)
    halves = _hexadecimal(digits)
    good = (halves[:, 0] != 0) | ((layout is Layout.ETCD) & (halves[:, 1] >= 0))
    found.append((rows[good], halves[good, 0], halves[good, 1]))
    where, scope, ledger = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(where, kind="stable")
    return Ledgers(where[order], scope[order], ledger[order])


def are_folders(layout: Layout, keys: pa.Array) -> pa.Array:
    """Say which keys are inner nodes on the way to a layout's ledgers, `/scoped` and `/ledgers` not among them."""
    if layout is Layout.ETCD:
        return pc.equal(keys, "")
    forms = [_FOLDERS[form] for form in (*_PLAIN[layout], _SCOPED)]
    return pc.match_substring_regex(keys, f"^/({'|'.join(forms)})$")


def kinds_of(keys: pa.Array) -> pa.Array:
    """Return what keys that are no ledgers' hold, as `store.kind_of` tells it."""
    said = pa.nulls(len(keys), pa.string())
    for kind, form in _KINDS:
        said = pc.coalesce(said, pc.if_else(pc.match_substring_regex(keys, form), kind, pa.scalar(None, pa.string())))
    return pc.fill_null(said, "other")


def marked(keys: pa.Array) -> Ledgers:
    """Return the ledgers whose under-replication marks stand at keys; other keys are passed over."""
    sizes = pc.binary_length(keys).to_numpy(zero_copy_only=False)
    shortest = len(_MARK) + 10
    found = []
    for digits in range(10, 20):
        rows, values = _of_form(keys, sizes, _MARK + "0" * digits)
        folders = _hexadecimal(np.pad(values[:, :16], ((0, 0), (16, 0)), constant_values=ord("0")))[:, 1]
        number = _decimal(values[:, 16:])
        padded = (values[:, 16] == ord("0")) & (sizes[rows] > shortest)
        good = (number <= _MAX) & ~padded & (number.view(np.int64) == folders)
        found.append((rows[good], np.zeros(int(good.sum()), np.int64), folders[good]))
    rows, values = _of_form(keys, sizes, _SCOPED_MARK)
    halves = _hexadecimal(values[:, 32:])
    good = (halves[:, 0] != 0) & (values[:, :32] == values[:, 32:]).all(axis=1)
    found.append((rows[good], halves[good, 0], halves[good, 1]))
    where, scope, ledger = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(where, kind="stable")
    return Ledgers(where[order], scope[order], ledger[order])


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
    fits = pc.match_substring_regex(keys, _FLAT).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(fits)
    number = pc.utf8_slice_codeunits(keys.take(pa.array(rows)), 2).cast(pa.uint64()).to_numpy(zero_copy_only=False)
    good = number <= _MAX
    return rows[good], np.zeros(int(good.sum()), np.int64), number[good].view(np.int64)
