"""Two stores of one cluster held together: captured both, compared by bucket ranges, what differs looked at again.

folder    holds
store/    the first store's catalog
against/  the second one's
findings/ verdicts/  FINDINGS and VERDICTS, as of a scrutiny
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconcile import clusters
from reconcile.check.records.stores import StoresRange, compare_stores
from reconcile.findings.categories import Category
from reconcile.findings.table import FindingRun
from reconcile.jobs.capture import capture_store
from reconcile.jobs.context import Context, connect, throttle
from reconcile.rules.sides import are_equal
from recovery.capture.records import read_records
from recovery.codecs.store import Layout
from recovery.dataset import Dataset, open_dataset, prepare, sort_by_key, write_manifest, write_part
from recovery.errors import InputError
from recovery.manifest import Part
from recovery.model import tables
from recovery.model.ids import BUCKETS, bucket_ranges
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from backends.registry import OpenStore

SIDES: Final = ("store", "against")
CHANGING: Final = "changing"
MOST_LOOKS: Final = 4
"""Looks at a ledger that differs, the capture included; one that changes at each of them is undecided."""
_COUNTED: Final = ("first", "second", "only_first", "only_second", "other_bytes")
_SHOWN: Final = 20
_BATCH: Final = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstRequest:
    """Which stores.

    Attributes:
        uri: the first one.
        against: the second one.
        out: a new folder for the run.
        share: (n, of how many): the part of all ledgers that is compared, from 1.
        settings: of the run, each with where it came from, for the manifest.
    """

    uri: str
    against: str
    out: DatasetPlace
    share: tuple[int, int] = (1, 1)
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compared:
    """How two stores stand to each other.

    Attributes:
        listed: ledgers of either.
        clean: that say the same in both.
        undecided: that changed at each look.
        differing: the others.
        sums: ``first``, ``second``, ``only_first``, ``only_second``, ``other_bytes``; see `StoresRange`.
        fields: field → ledgers in which it differs.
        by_severity: severity → findings.
        worst: the first findings, as rows of FINDINGS.
    """

    listed: int
    clean: int
    undecided: int
    differing: int
    sums: Mapping[str, int]
    fields: Mapping[str, int]
    by_severity: Mapping[str, int]
    worst: tuple[Mapping[str, Any], ...]

    @property
    def adds_up(self) -> bool:
        """Whether every ledger became one thing, and each store's ledgers are those of both and its own."""
        store, two, alone, other = (self.sums[name] for name in ("first", "second", "only_first", "only_second"))
        return self.clean + self.undecided + self.differing == self.listed == store + other == two + alone


@dataclass(slots=True)
class _Sums:
    """Adds up ranges."""

    parts: dict[str, list[Part]] = field(default_factory=lambda: {"findings": [], "verdicts": []})
    verdicts: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(_COUNTED, 0)))
    fields: Counter[str] = field(default_factory=Counter)
    severities: Counter[str] = field(default_factory=Counter)
    worst: list[Mapping[str, Any]] = field(default_factory=list)


def scrutinize_against(request: AgainstRequest, context: Context) -> Compared:
    """Compare two stores; nothing but the folder is written.

    Raises:
        DatasetError: the folder cannot be written.
        InputError: a store has no ledgers root or could not be read whole, or they are of two clusters.
        UnsupportedStoreError: a URI is malformed, or of a store that is not read.
        UnavailableError: a store does not answer.
    """
    prepare(request.out, "scrutiny", secret=True)
    run = FindingRun((began := context.now()).isoformat(timespec="seconds"), began)
    sums = _Sums()
    number, shares = request.share
    share = range(BUCKETS * (number - 1) // shares, BUCKETS * number // shares)
    with ExitStack() as stack:
        opened = [stack.enter_context(connect(uri, context)) for uri in (request.uri, request.against)]
        captured = [_capture(store, request.out / name, context) for store, name in zip(opened, SIDES, strict=True)]
        catalogs = [catalog for catalog, _ in captured]
        clusters.require_one(
            clusters.of_catalog(uri, catalog.read("sources"), catalog.read("nodes", columns=["path", "kind", "raw"]))
            for uri, catalog in zip((request.uri, request.against), catalogs, strict=True)
        )
        spans = [
            range(max(span.start, share.start), min(span.stop, share.stop))
            for span in bucket_ranges(sum(catalog.rows("ledgers") for catalog in catalogs))
        ]
        looks = [(store, layout) for store, (_, layout) in zip(opened, captured, strict=True)]
        with context.reporter.progress("comparing records", "parts") as progress:
            show = throttle(progress)
            for done, span in enumerate(filter(len, spans), 1):
                first, second = (catalog.read("ledgers", buckets=span) for catalog in catalogs)
                changing = _look_again(first, second, looks, run)
                compared = compare_stores(changing.first, changing.second, run)
                _take(request, sums, _set_aside(compared, changing.undecided), span)
                show(done, len(spans))
    return _finish(request, sums)


def _capture(opened: "OpenStore", out: DatasetPlace, context: Context) -> tuple[Dataset, Layout]:
    summary = capture_store(opened, out, context)
    if summary.root != "present" or summary.layout is None:
        raise InputError(opened.uri, "has no ledgers root", "name the root of the cluster's ledgers")
    if summary.gaps:
        problem = f"could not be read whole ({summary.gaps[0]})"
        raise InputError(
            opened.uri, problem, "records that were not read would be called missing: fix the access first"
        )
    return open_dataset(out, "catalog"), Layout(summary.layout)


@dataclass(frozen=True, slots=True, eq=False)
class _Looked:
    """Records of both stores after the last look, and the keys of ledgers that changed at every look."""

    first: pa.Table
    second: pa.Table
    undecided: pa.Table


def _look_again(
    first: pa.Table, second: pa.Table, looks: Sequence[tuple["OpenStore", Layout]], run: FindingRun
) -> _Looked:
    """Read again what differs, until two looks in a row are the same: stores go on while they are captured."""
    suspects = _list_suspects(compare_stores(first, second, run))
    for _ in range(1, MOST_LOOKS):
        if not suspects.num_rows:
            break
        sides, changed = [], np.zeros(suspects.num_rows, np.bool_)
        for old, (opened, layout) in zip((first, second), looks, strict=True):
            new = _read_anew(opened, layout, suspects)
            changed |= _find_changed(suspects, old, new)
            sides.append(_replace_rows(old, suspects, new))
        first, second = sides
        changed_keys = suspects.filter(pa.array(changed))
        suspects = _list_suspects(compare_stores(_keep(first, changed_keys), _keep(second, changed_keys), run))
    return _Looked(first, second, suspects)


def _list_suspects(compared: StoresRange) -> pa.Table:
    rows = compared.verdicts.filter(pc.equal(compared.verdicts["verdict"], str(Category.STORES_DIFFER)))
    return rows.select(list(tables.KEY_COLUMNS))


def _read_anew(opened: "OpenStore", layout: Layout, keys: pa.Table) -> pa.Table:
    parts = [tables.CATALOG_LEDGERS.empty_table()]
    for begin in range(0, keys.num_rows, _BATCH):
        batch = keys.slice(begin, _BATCH)
        scope, ledger = (batch[name].to_numpy() for name in ("scope", "ledger"))
        parts.append(read_records(opened.store, opened.root, layout, scope, ledger))
    return sort_by_key(pa.concat_tables(parts))


def _find_changed(keys: pa.Table, old: pa.Table, new: pa.Table) -> Any:  # noqa: ANN401 - a mask
    """Say of which ledgers the record is another one than at the look before."""
    return ~are_equal(_raws(keys, old), _raws(keys, new))


def _raws(keys: pa.Table, records: pa.Table) -> pa.ChunkedArray:
    names = ["scope", "ledger"]
    numbered = keys.select(names).append_column("at", pa.array(np.arange(keys.num_rows)))
    joined = numbered.join(records.select([*names, "raw"]), names, join_type="left outer").sort_by("at")
    return joined["raw"]


def _keep(records: pa.Table, keys: pa.Table) -> pa.Table:
    return sort_by_key(records.filter(_is_among(records, keys)))


def _replace_rows(records: pa.Table, keys: pa.Table, new: pa.Table) -> pa.Table:
    rest = records.filter(pc.invert(_is_among(records, keys)))
    return sort_by_key(pa.concat_tables([rest, new.cast(rest.schema)]))


def _is_among(records: pa.Table, keys: pa.Table) -> pa.Array:
    names = ["scope", "ledger"]
    numbered = records.select(names).append_column("at", pa.array(np.arange(records.num_rows)))
    mask = np.zeros(records.num_rows, np.bool_)
    mask[numbered.join(keys.select(names), names, join_type="inner")["at"].to_numpy()] = True
    return pa.array(mask)


def _set_aside(compared: StoresRange, undecided: pa.Table) -> StoresRange:
    """Return what is said with ledgers that change all the time as undecided."""
    if not undecided.num_rows:
        return compared
    among = _is_among(compared.verdicts, undecided)
    words = pc.if_else(among, "undecided", compared.verdicts["verdict"])
    reasons = pc.if_else(among, CHANGING, pa.scalar(None, pa.string()))
    columns = {**{name: compared.verdicts[name] for name in tables.KEY_COLUMNS}, "verdict": words, "reason": reasons}
    findings = compared.findings.filter(pc.invert(_is_among(compared.findings, undecided)))
    return StoresRange(findings, pa.table(columns).cast(tables.VERDICTS), compared.counts, compared.fields)


def _take(request: AgainstRequest, sums: _Sums, compared: StoresRange, span: range) -> None:
    name = f"buckets-{span.start:04d}-{span.stop - 1:04d}"
    for table, rows in (("findings", compared.findings), ("verdicts", compared.verdicts)):
        sums.parts[table].append(write_part(request.out, table, name, [rows], secret=True))
    sums.verdicts.update(compared.verdicts["verdict"].to_pylist())
    sums.sums.update(compared.counts)
    sums.fields.update(compared.fields)
    sums.severities.update(compared.findings["severity"].to_pylist())
    sums.worst += compared.findings.slice(0, _SHOWN - len(sums.worst)).to_pylist()


def _finish(request: AgainstRequest, sums: _Sums) -> Compared:
    result = Compared(
        listed=sums.verdicts.total(),
        clean=sums.verdicts["clean"],
        undecided=sums.verdicts["undecided"],
        differing=sums.verdicts[str(Category.STORES_DIFFER)],
        sums=dict(sums.sums),
        fields={name: count for name, count in sums.fields.items() if count},
        by_severity=dict(sums.severities),
        worst=tuple(sums.worst),
    )
    write_manifest(
        request.out,
        "scrutiny",
        sums.parts,
        binding={"uri": request.uri, "against": request.against},
        coverage={"share": list(request.share)},
        secret=True,
        extra={
            "settings": dict(request.settings),
            "result": {name: value for name, value in asdict(result).items() if name != "worst"},
            "adds_up": result.adds_up,
        },
    )
    return result
