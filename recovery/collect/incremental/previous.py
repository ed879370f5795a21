"""The results of an earlier collection: opened, checked, and read one share of the ledgers at a time."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from recovery import __version__
from recovery.collect.incremental.records import Binding, PasswordHash, Reused, SeenFile, Terms
from recovery.collect.incremental.row_sets import name_columns
from recovery.collect.rows.entry_headers import DIGESTS
from recovery.collect.rows.scoped_ids import Scopes
from recovery.collect.rows.source_copies import Ints, Mask
from recovery.collect.rows.spool import SHARES
from recovery.dataset import AGAIN, MANIFEST, Dataset, open_dataset
from recovery.errors import DatasetError, InputError
from recovery.model import tables
from recovery.model.ids import BUCKETS
from recovery.model.metadata import Digest
from recovery.place import DatasetPlace

BUCKETS_PER_SHARE: Final = BUCKETS // SHARES
_CRCS: Final = tuple(DIGESTS.index(digest) for digest in (Digest.CRC32, Digest.CRC32C))


class Previous:
    """The results of an earlier collection, if they can be used; else empty.

    Args:
        terms: of this collection.
        since: folder of the earlier inventory; None: there is none.
        scopes: names the ledgers.

    Attributes:
        reused: taken-over counts, or the reason why there are none.
        binding: of its manifest; None: nothing can be used.
        files: the files that it saw, by path.

    Raises:
        InputError: the earlier inventory is not there, not whole, or another bookie's.
    """

    def __init__(self, terms: Terms, since: DatasetPlace | None, scopes: Scopes) -> None:
        self._scopes = scopes
        self.reused = Reused()
        self._dataset = None if since is None else self._open(terms, since)
        self.binding = None if self._dataset is None else msgspec.convert(self._dataset.manifest["binding"], Binding)
        self._has_same_passwords = True
        if self.binding is not None:
            salt = self.binding.passwords.salt if self.binding.passwords else ""
            self._has_same_passwords = self.binding.passwords == hash_passwords(terms.passwords, salt)
        self.files: Mapping[str, SeenFile] = self._read_files()

    def _open(self, terms: Terms, since: DatasetPlace) -> Dataset | None:
        try:
            return self._open_fitting(terms, since)
        except DatasetError as error:
            remedy = "name another earlier inventory of this bookie, or none: then everything is read"
            raise InputError(error.path, error.problem, remedy) from error

    def _open_fitting(self, terms: Terms, since: DatasetPlace) -> Dataset | None:
        """Return the kept results; None if they cannot be used: `reused` then names the reason."""
        inventory = open_dataset(since, "inventory")
        self.reused.inventory, self.reused.collected = str(since), inventory.manifest["coverage"].get("started", "")
        bound = inventory.manifest["binding"]
        if bound.get("bookie") != terms.bookie:
            problem = f"is an inventory of bookie {bound.get('bookie')}; these folders are of {terms.bookie}"
            raise InputError(
                str(since), problem, "name the earlier inventory of this bookie, or none: then everything is read"
            )
        if bound.get("incarnation") != terms.incarnation:
            self.reused.reason = (
                "the bookie was formatted again since then, or databases that tell its identity came or went"
            )
            return None
        if not (since / AGAIN).exists():
            self.reused.reason = "the earlier inventory kept nothing for the next one (it was not incremental)"
            return None
        dataset = open_dataset(since / AGAIN, "again")
        if inventory.manifest["coverage"].get("again") != hash_manifest(since):
            raise DatasetError(
                str(since / AGAIN), "differs from the file that was written with this inventory", "make it again"
            )
        dataset.verify()
        binding = dataset.manifest["binding"]
        # The same bytes may give something else.
        if dataset.manifest.get("tool_version") != __version__:
            self.reused.reason = "another version of the program made the earlier inventory"
        elif binding.get("folders") != list(terms.folders):
            self.reused.reason = "the earlier inventory was made from other folders, or the cookie changed"
        if self.reused.reason:
            return None
        self.reused.whole = binding.get("whole") or self.reused.collected
        return dataset

    def _read_files(self) -> dict[str, SeenFile]:
        files: dict[str, SeenFile] = {}
        for row in () if self._dataset is None else self._dataset.read("files").to_pylist():
            fingerprint = tuple(row.pop(name) for name in ("inode", "size", "mtime", "ctime"))
            files[row["path"]] = SeenFile(fingerprint=fingerprint, **row)
        return files

    @property
    def has_index(self) -> bool:
        """Whether anything of an index can be taken over."""
        return self._dataset is not None and not self.reused.reason

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        return 0 if self._dataset is None else self._dataset.rows(table)

    def read_table(self, name: str, share: int | None) -> tuple[pa.Table, Ints]:
        """Return rows of a table, and the keys of their ledgers; share None: of all ledgers."""
        if self._dataset is None:
            return tables.AGAIN[name].empty_table(), np.empty(0, np.int64)
        buckets = None if share is None else range(share * BUCKETS_PER_SHARE, (share + 1) * BUCKETS_PER_SHARE)
        rows = self._dataset.read(name, buckets=buckets)
        scope, ledger = (rows[column].to_numpy().astype(np.int64) for column in ("scope", "ledger"))
        return rows, self._scopes.keys(scope if scope.any() else None, ledger)

    def read_rows(self, name: str, share: int | None) -> Ints:
        """Return rows of a table as a matrix, keys first."""
        rows, keys = self.read_table(name, share)
        return np.column_stack((keys, *(rows[column].to_numpy() for column in name_columns(name))))

    def are_uncertain(self, digest: Ints) -> Mask:
        """Return the digests with a type that other passwords may change, if other passwords were given."""
        return np.zeros(len(digest), np.bool_) if self._has_same_passwords else ~np.isin(digest, _CRCS)


def hash_manifest(inventory: DatasetPlace) -> str:
    """Return the hash of the manifest of an inventory's kept results."""
    return hashlib.sha256((inventory / AGAIN / MANIFEST).read_bytes()).hexdigest()


def hash_passwords(passwords: Sequence[bytes], salt: str) -> PasswordHash | None:
    """Return the salted hash that recognises the same passwords; None: there are none."""
    if not passwords:
        return None
    text = b"".join(hashlib.sha256(password).digest() for password in sorted(set(passwords)))
    return PasswordHash(salt, hashlib.scrypt(text, salt=bytes.fromhex(salt), n=1 << 14, r=8, p=1).hex())
