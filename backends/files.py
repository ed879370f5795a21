"""Opens regular files only: no reader waits for a pipe or a device in their place."""

import errno
import os
import stat
from pathlib import Path


def open_regular(path: str | Path, flags: int = 0) -> int:
    """Return a descriptor that reads a regular file.

    Args:
        path: of the file.
        flags: of `os.open`, beside those for reading.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    # Not waited for: else a pipe without a writer is opened when one comes.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode):
        os.close(file)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def read_bounded(path: str | Path, limit: int) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: it cannot be read, is not a regular file, or holds more than `limit` bytes.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"has more than {limit} bytes, which no such file has", str(path))
    return content
