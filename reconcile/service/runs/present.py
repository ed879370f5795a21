"""The service's copy of the store: its records, captured in the background, and the registrations.

Records are captured when the newest capture is half as old as it may be, so that a question rarely waits for one.
Scrutinies, impact checks and maintenances go by the same captures. Registrations are watched: each change is reported
at once, and nothing is read until there is one.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from backends.errors import BackendError, UnavailableError
from backends.protocols import MetadataStore, WatchableStore
from reconcile.jobs.context import Context, connect
from reconcile.jobs.impact.cache import find_newest, keep_capture, name_capture
from reconcile.service.config import Config
from reconcile.service.runs import commands, folders
from reconcile.service.runs.children import Children, StoppedError
from recovery.codecs.store import places
from recovery.errors import RecoveryError

_LOG: Final = logging.getLogger(__name__)
_AGAIN_S: Final = 30.0
"""Until a capture that failed is tried again."""
_WAIT_S: Final = 0.2


class KeptRecords:
    """The captures that questions are answered from.

    Args:
        config: of the service.
        context: whom stores take it for, and the clock.
        children: run the captures; stopped by `stop`.
    """

    def __init__(self, config: Config, context: Context, children: Children) -> None:
        self._config = config
        self._context = context
        self._children = children
        self._stopping = threading.Event()
        self._idle = threading.Event()
        self._idle.set()

    @property
    def folder(self) -> Path:
        """Where captures are."""
        return self._config.data / "impact"

    def find_newest(self) -> Path | None:
        """Return the newest whole capture; None: there is none yet."""
        newest = find_newest(self._config.metadata, self.folder)
        return None if newest is None else name_capture(self._config.metadata, self.folder, newest)

    def stop(self) -> None:
        """End the capture under way."""
        self._stopping.set()
        self._children.stop()

    def keep(self) -> None:
        """Capture the store again and again, until `stop`; where the configuration wants it."""
        longest = timedelta(seconds=self._config.cache.max_age)
        while self._config.cache.background and not self._stopping.is_set():
            try:
                newest = find_newest(self._config.metadata, self.folder)
                age = None if newest is None else self._context.now() - newest
                if age is not None and timedelta(0) <= age < longest / 2:
                    self._stopping.wait(max(1.0, (longest / 2 - age).total_seconds()))
                    continue
                problem = self._capture()
            except StoppedError:
                return
            except (OSError, RecoveryError) as error:
                problem = str(error)
            if problem:
                _LOG.warning("the records were not captured: %s", problem)
                self._stopping.wait(min(_AGAIN_S, longest.total_seconds() / 2))

    def _capture(self) -> str:
        """Capture the store now; return the reason of a failure, or an empty text."""
        self._idle.clear()
        try:
            folders.make_private(self.folder)
            target = name_capture(self._config.metadata, self.folder, self._context.now())
            words = commands.build_argv_job("capture", self._config.metadata, target, ())
            # What the command says is beside its captures until the next one.
            finished = self._children.run(words, target.parent, timeout_s=self._config.cache.timeout)
            if finished.exit_code in (0, 4):
                keep_capture(target, self._context.now())
                return ""
            return finished.verdict
        finally:
            self._idle.set()

    def await_capture(self, wait_s: float, given_up: threading.Event) -> None:
        """Wait for the capture under way, if no other one is young enough, so that only one runs at a time."""
        with suppress(OSError, RecoveryError):
            newest = find_newest(self._config.metadata, self.folder)
            age = None if newest is None else self._context.now() - newest
            if age is not None and age < timedelta(seconds=self._config.cache.max_age):
                return
        waited = 0.0
        while waited < wait_s and not given_up.is_set() and not self._idle.wait(_WAIT_S):
            waited += _WAIT_S


class BookieWatch:
    """Watches the registrations.

    Args:
        uri: of the live store.
        context: whom stores take it for.
        changed: called each time that others are registered than before.
    """

    def __init__(self, uri: str, context: Context, changed: Callable[[], None]) -> None:
        self._uri = uri
        self._context = context
        self._changed = changed
        self._stopping = threading.Event()
        self._store: MetadataStore | None = None
        self._names: frozenset[str] | None = None

    def stop(self) -> None:
        """End the watch."""
        self._stopping.set()
        store = self._store
        if store is not None:
            store.close()

    def watch(self) -> None:
        """Watch until `stop`; while the store does not answer, try again."""
        while not self._stopping.is_set():
            try:
                # Only open stores that may write give what can be watched; nothing is written.
                with connect(self._uri, self._context, writable=True) as opened:
                    self._store = opened.store
                    if self._stopping.is_set() or not isinstance(opened.store, WatchableStore):
                        return
                    writable, read_only = places(opened.layout_hint).registrations
                    folder = f"{opened.root}{read_only}"
                    for names in opened.store.watch_names([f"{opened.root}{writable}", folder]):
                        self._see(names - {folder})
            except UnavailableError as error:
                _LOG.info("registrations are not watched: %s", error)
            except BackendError as error:
                _LOG.warning("registrations are not watched: %s", error)
            self._stopping.wait(_AGAIN_S / 10)

    def _see(self, names: frozenset[str]) -> None:
        is_changed = self._names is not None and names != self._names
        self._names = names
        if is_changed:
            self._changed()
