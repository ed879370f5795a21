"""The service's record in the store: one key of bkmeta's own root, replaced by compare-and-set.

    <ledgers root>-bkmeta/service    JSON: `encode_state`
    <ledgers root>-bkmeta/leader     the election

The record is state of the service alone, so that a run follows the leader and not the host; the cluster's records are
never written here. It has no journal: the record itself says what was run, by whom, and how it ended.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

import msgspec

from backends.errors import OutcomeUnknownError, VersionConflictError
from backends.protocols import MetadataStore, Write
from reconcile.errors import ReconcileError
from reconcile.service.runs.schedule import ServiceState
from recovery.errors import FormatError, Reason

SCHEMA: Final = "bkmeta.service-record/1"
_ATTEMPTS: Final = 20


class NotLeaderError(ReconcileError):
    """Another instance leads; nothing was written."""


class ServiceRecord:
    """The record of one cluster's service; safe to use from several threads.

    Args:
        store: of the record; writable, if it is changed.
        key: of the record.
        acl: rights of the key, where it is made.
    """

    def __init__(self, store: MetadataStore, key: str, acl: str | None = None) -> None:
        self._store = store
        self._key = key
        self._acl = acl
        self._lock = threading.Lock()

    def read(self) -> ServiceState:
        """Return the record; an empty state without one.

        Raises:
            FormatError: the value is no record of this version.
        """
        stored = self._store.get(self._key)
        return ServiceState() if stored is None else decode_state(stored.value, self._key)

    def change(self, decide: Callable[[ServiceState], ServiceState], *, epoch: int | None = None) -> ServiceState:
        """Replace the record by the result of a function; return the new record.

        Args:
            decide: called again if another client changed the record meanwhile.
            epoch: the epoch that the record must have; None: any.

        Raises:
            NotLeaderError: it is of another epoch.
            FormatError: the value is no record of this version.
            UnavailableError: the store does not answer.
        """
        with self._lock:
            for _ in range(_ATTEMPTS):
                stored = self._store.get(self._key)
                state = ServiceState() if stored is None else decode_state(stored.value, self._key)
                if epoch is not None and state.epoch != epoch:
                    raise NotLeaderError(f"{state.leader} leads since epoch {state.epoch}; this was of epoch {epoch}")
                changed = decide(state)
                if changed == state:
                    return state
                expected = None if stored is None else stored.version
                try:
                    self._store.write([Write(self._key, encode_state(changed), expected, self._acl)])
                except VersionConflictError:
                    continue
                except OutcomeUnknownError:
                    if self.read() == changed:
                        return changed
                    continue
                return changed
            raise NotLeaderError(f"others changed {self._key} {_ATTEMPTS} times meanwhile")


def encode_state(state: ServiceState) -> bytes:
    """Return the bytes of a record, in plain UTF-8: an escaped letter takes at least twice as many."""
    return json.dumps({"schema": SCHEMA, **asdict(state)}, separators=(",", ":"), ensure_ascii=False).encode(
        errors="backslashreplace"
    )


def decode_state(raw: bytes, source: str = "the service's record") -> ServiceState:
    """Return the state in the bytes of a record.

    Raises:
        FormatError: they are none of this version.
    """
    try:
        values = json.loads(raw)
        if values.pop("schema") != SCHEMA:
            raise FormatError(Reason.BAD_VERSION, source, 0, f"it is not of {SCHEMA}")
        return msgspec.convert(values, ServiceState, str_keys=True)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FormatError(Reason.BAD_VALUE, source, 0, f"no record of the service ({error})") from error
