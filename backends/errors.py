"""The errors of `backends`; adapters turn their library's errors into these.

BackendError
UnsupportedStoreError   a URI of a kind that is not ours to read
UnavailableError        the store did not answer; trying again may help
  OutcomeUnknownError   a write was sent and its answer lost: read back to learn whether it was made
    StoreFullError      the store said that its space is used up; it may have made the write before that
  CompactedError        the store has forgotten the point in time that was being read
AccessDeniedError       the store answered, and refused
ReadOnlyStoreError      a write through a store that was opened for reading
NoSuchKeyError          the key is absent
VersionConflictError    a write named a version that the key does not have; nothing was written
NotEmptyError           a key with children cannot be removed
TooLargeError           more than the store takes in one transaction; nothing was written
NoSuchStoreError        there is no store in the folder
CorruptStoreError       the store's own files cannot be read (further)
ProtocolError           bytes of a connection that break its protocol
UnsupportedAuthError    a way to authenticate that bkmeta does not support
"""


class BackendError(Exception):
    """Root of the errors of this package."""


class UnsupportedStoreError(BackendError):
    """A store URI that no adapter supports.

    Attributes:
        uri: as it was given.
        problem: its error.
    """

    def __init__(self, uri: str, problem: str) -> None:
        super().__init__(uri, problem)
        self.uri = uri
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.uri}: {self.problem}"


class _KeyError(BackendError):
    def __init__(self, key: str, detail: str = "") -> None:
        super().__init__(key, detail)
        self.key = key
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.key}: {self.TEXT}" + (f" ({self.detail})" if self.detail else "")

    TEXT = "failed"


class _StoreError(BackendError):
    def __init__(self, store: str, detail: str = "") -> None:
        super().__init__(store, detail)
        self.store = store
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.store}: {self.TEXT}" + (f" ({self.detail})" if self.detail else "")

    TEXT = "failed"


class UnavailableError(_StoreError):
    """The store did not answer.

    Attributes:
        store: its address.
        detail: what happened.
    """

    TEXT = "not available"


class OutcomeUnknownError(UnavailableError):
    """A write was sent without an answer: either the whole write was made, or nothing."""

    TEXT = "the answer to a write was lost"


class StoreFullError(OutcomeUnknownError):
    """The store has used up its space.

    etcd says so also of a write that it made, where that came beside others: it counts after it has written.
    """

    TEXT = "its space is used up"


class CompactedError(UnavailableError):
    """The store no longer has the point in time that was being read; another read, from a later point, may help."""

    TEXT = "its past was compacted while it was read"


class ReadOnlyStoreError(_StoreError):
    """A write through a store that was opened for reading only."""

    TEXT = "opened for reading only"


class NoSuchStoreError(_StoreError):
    """There is no store in the folder."""

    TEXT = "no store there"


class CorruptStoreError(_StoreError):
    """The store's own files cannot be read; earlier records are right, later ones are not known."""

    TEXT = "cannot be read"


class AccessDeniedError(_KeyError):
    """The store answered, and refused."""

    TEXT = "access denied"


class NoSuchKeyError(_KeyError):
    """The key is absent."""

    TEXT = "no such key"


class VersionConflictError(_KeyError):
    """The key does not have the version that the write named; nothing was written."""

    TEXT = "its version is not the expected one; nothing was written"


class AbsentKeyError(VersionConflictError):
    """The key whose version the write named is absent."""

    TEXT = "it is absent; nothing was written"


class NotEmptyError(_KeyError):
    """The key has children."""

    TEXT = "it has children"


class TooLargeError(_KeyError):
    """More than one transaction can hold, from this key on; nothing was written."""

    TEXT = "too large for one transaction"


class ProtocolError(BackendError):
    """Bytes of a connection break its protocol; the argument says how."""


class UnsupportedAuthError(BackendError):
    """A way to authenticate that cannot be used; its argument says which, and what can."""
