"""Manifests of datasets: what they list, what each must have, and the hash of the whole."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from recovery.verified_file import BLOCK


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a table, as the manifest lists it; buckets are null where the table is not keyed."""

    file: str
    rows: int
    bytes: int
    sha256: str
    first_bucket: int | None
    last_bucket: int | None
    blocks: Sequence[str] = ()


def digest_of(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest without its own digest: with the hashes of the files in it, of the dataset."""
    # As it is read again: keys are texts then.
    plain = json.loads(json.dumps({name: value for name, value in manifest.items() if name != "digest"}))
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


_LISTS: Final = ("scanned", "complete", "not_complete", "members_known_from", "not_scanned", "not_named", "lost")
"""Of a plan's coverage, where it has them."""


def _is_list_of_texts(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(text, str) for text in value))


def require_shape(manifest: Mapping[str, Any], kind: str) -> None:
    """Raise TypeError or KeyError where a manifest lacks what every reader of its kind counts on."""
    fields: dict[str, type] = {"binding": dict, "coverage": dict}
    if kind == "plan":
        fields |= {"hash": str, "counts": dict, "reasons": dict}
    wrong = [name for name, shape in fields.items() if not isinstance(manifest[name], shape)]
    if kind == "plan" and "coverage" not in wrong:
        wrong += [name for name in _LISTS if not _is_list_of_texts(manifest["coverage"].get(name))]
    for part in (part for parts in manifest["tables"].values() for part in parts):
        numbers = (part["rows"], part["bytes"], part["first_bucket"] or 0, part["last_bucket"] or 0)
        blocks = part.get("blocks", ())
        texts = (part["file"], part["sha256"], *blocks)
        if not (all(isinstance(text, str) for text in texts) and all(isinstance(number, int) for number in numbers)):
            wrong.append(str(part["file"]))
        elif len(blocks) not in (0, -(-part["bytes"] // BLOCK)):
            wrong.append(f"blocks of {part['file']}")
    if wrong:
        raise TypeError(f"of another shape: {', '.join(wrong)}")
