"""The errors of `backends`; adapters turn their library's errors into these.

BackendError
UnsupportedStoreError   a URI of a kind that is not ours to read
UnavailableError        the store did not answer; trying again may help
AccessDeniedError       the store answered, and refused
NoSuchKeyError          the key is absent
VersionConflictError    a write named a version that the key does not have; nothing was written
NotEmptyError           a key with children cannot be removed
"""


class BackendError(Exception):
    """Root of the errors of this package."""


class UnsupportedStoreError(BackendError):
    """A store URI that no adapter takes.

    Attributes:
        uri: as it was given.
        problem: what is wrong with it.
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


class UnavailableError(BackendError):
    """The store did not answer.

    Attributes:
        store: its address.
        detail: what happened.
    """

    def __init__(self, store: str, detail: str) -> None:
        super().__init__(store, detail)
        self.store = store
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.store}: not available ({self.detail})"


class AccessDeniedError(_KeyError):
    """The store answered, and refused."""

    TEXT = "access denied"


class NoSuchKeyError(_KeyError):
    """The key is absent."""

    TEXT = "no such key"


class VersionConflictError(_KeyError):
    """The key does not have the version that the write named; nothing was written."""

    TEXT = "its version is not the expected one; nothing was written"


class NotEmptyError(_KeyError):
    """The key has children."""

    TEXT = "it has children"
