"""Files that are hashed while they are read: no byte is given out that is not the one that was written.

A file has a SHA-256 of each MiB, so a reader of a stretch hashes that stretch, not the file. Parquet's own page
checksums do not cover its footer: a bit that flips in the name of a column there would make the column null.
"""

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK: Final = 1 << 20
_KEPT: Final = 4
"""Blocks that are kept: a read rarely ends where the next one begins."""


def hash_whole(source: "BinaryIO | pa.NativeFile") -> str:
    """Return the SHA-256 of a file, without that of each block."""
    whole = hashlib.sha256()
    while block := source.read(BLOCK):
        whole.update(block)
    return whole.hexdigest()


def hash_blocks(source: "BinaryIO | pa.NativeFile") -> tuple[str, list[str]]:
    """Return the SHA-256 of a file, and that of each block; no blocks where the file is a single one."""
    whole = hashlib.sha256()
    blocks = []
    while block := source.read(BLOCK):
        whole.update(block)
        blocks.append(hashlib.sha256(block).hexdigest())
    return whole.hexdigest(), blocks if len(blocks) > 1 else []


class VerifiedFile(io.RawIOBase):
    """A file for reading anywhere; one that is not what was written cannot be read.

    Args:
        opened: opens the file; called for every stretch that is read, so that many files cost no descriptors.
        size: of the file.
        sha256: of the file.
        blocks: SHA-256 of each block; empty: one block, or written before blocks were hashed (then it is read whole).
        altered: is raised where bytes are other ones.
    """

    def __init__(
        self,
        opened: "Callable[[], pa.NativeFile]",
        size: int,
        sha256: str,
        blocks: Sequence[str],
        altered: Callable[[], Exception],
    ) -> None:
        super().__init__()
        self._opened = opened
        self._size = size
        self._sha256 = sha256
        self._blocks = list(blocks) if size > BLOCK else [sha256]
        self._altered = altered
        self._kept: dict[int, bytes] = {}
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place, and return it."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return bytes from here on; fewer only at the file's end."""
        end = self._size if size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        low, high = self._at // BLOCK, -(-end // BLOCK)
        self._require_hashes()
        stretch = b"".join(self._verify(low, high))
        part = stretch[self._at - low * BLOCK : end - low * BLOCK]
        self._at = end
        return part

    def _require_hashes(self) -> None:
        if self._blocks:
            return
        with self._opened() as source:
            whole, blocks = hash_blocks(source)
        if whole != self._sha256:
            raise self._altered()
        self._blocks = blocks

    def _verify(self, low: int, high: int) -> Iterator[bytes]:
        """Yield blocks, hashed: those that are kept, and the others from the file."""
        last = dict(self._kept)
        missing = [number for number in range(low, high) if number not in last]
        if missing:
            with self._opened() as source:
                for number in missing:
                    source.seek(number * BLOCK)
                    block = source.read(BLOCK)
                    if hashlib.sha256(block).hexdigest() != self._blocks[number]:
                        raise self._altered()
                    last[number] = block
        self._kept = {number: last[number] for number in [*range(low, high)][-_KEPT:]}
        yield from (last[number] for number in range(low, high))
