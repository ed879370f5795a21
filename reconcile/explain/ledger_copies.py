"""Which bookie holds what of one ledger, and the damage of their disks that names it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconcile.compare.single_ledger import is_of
from reconcile.explain.field_evidence import HASH_DIGITS
from recovery.dataset import Dataset
from recovery.model.ids import LedgerId

LISTED: Final = 12
"""Ranges of a copy, headers, and pieces of damage that are given one by one."""


@dataclass(frozen=True, slots=True)
class SourceCopy:
    """What one bookie shows of the ledger in one of its sources."""

    bookie: str
    source: str
    entries: int
    ranges: tuple[str, ...]
    complete: bool
    fenced: bool
    limbo: bool
    key: str
    explicit_lac: int | None
    headers: tuple[str, ...]


def describe_copies(copies: pa.Table) -> Iterator[SourceCopy]:
    """Yield what each bookie holds, source by source; COPIES of the ledger in."""
    by_source: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in copies.sort_by([(name, "ascending") for name in ("bookie", "source", "part")]).to_pylist():
        by_source.setdefault((row["bookie"], row["source"]), []).append(row)
    for (bookie, source), parts in by_source.items():
        front = parts[0]
        groups = [group for part in parts for group in part["groups"]]
        rest = [f"and {len(groups) - LISTED} more ranges"] if len(groups) > LISTED else []
        yield SourceCopy(
            bookie=bookie,
            source=source,
            entries=sum(part["entries"] for part in parts),
            ranges=(*map(_range, groups[:LISTED]), *rest),
            complete=front["complete"],
            fenced=front["fenced"],
            limbo=front["limbo"],
            key=_key(front),
            explicit_lac=front["explicit_lac"],
            headers=tuple(_header(header) for header in front["headers"][-LISTED:]),
        )


def describe_seen(missing: pa.Table, sound: Iterable[str]) -> Iterator[str]:
    """Yield what is known of the copies that a record asks for, in words.

    Args:
        missing: ``bookie``, ``groups``: entries that bookies lack.
        sound: bookies that have all that is asked of them.
    """
    for row in missing.sort_by("bookie").to_pylist():
        ranges = [_range(group) for group in row["groups"][:LISTED]]
        more = [f"and {len(row['groups']) - LISTED} more ranges"] if len(row["groups"]) > LISTED else []
        yield f"{row['bookie']} lacks entries {', '.join([*ranges, *more])}"
    for bookie in sorted(sound):
        yield f"{bookie} has all entries that the record asks of it"


def _range(group: Mapping[str, int]) -> str:
    first, end = group["first"], group["last"] + group["size"] - 1
    text = str(first) if first == end else f"{first} to {end}"
    return f"{text} ({group['size']} of every {group['period']})" if group["period"] else text


def _key(row: Mapping[str, Any]) -> str:
    return f"set, SHA-256 {row['key'].hex()[:HASH_DIGITS]}…" if row["key"] is not None else str(row["key_kind"])


def _header(header: Mapping[str, Any]) -> str:
    digest = f"{header['digest']} agrees" if header["digest"] else "no digest agrees"
    return f"entry {header['entry']}: LAC {header['lac']}, length {header['length']}, {header['size']} bytes, {digest}"


def describe_damage(inventories: Iterable[Dataset], ledger: LedgerId) -> Iterator[str]:
    """Yield the damage of bookies' disks that names the ledger, in words."""
    for inventory in inventories:
        rows = inventory.read("damage")
        named = pc.fill_null(is_of(rows, ledger), fill_value=False)
        for row in rows.filter(named).slice(0, LISTED).to_pylist():
            hides = ", may hide entries" if row["hides_entries"] else ""
            where = row["file"] + ("" if row["offset"] is None else f" at byte {row['offset']}")
            yield f"{row['bookie']}: {where}: {row['reason']}{hides}" + (f" ({row['detail']})" if row["detail"] else "")
