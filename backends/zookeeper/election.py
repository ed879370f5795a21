"""One leader at a time, by kazoo's election: the lowest of sequential nodes that live with their sessions.

A campaign has a session of its own, and a lead ends with it: as soon as the connection is doubted. When the session is
known to have ended, another instance may lead already. kazoo doubts a server that was silent for two thirds of the
session's life.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

from kazoo import exceptions as zk
from kazoo.client import KazooState
from kazoo.handlers.threading import KazooTimeoutError

from backends.errors import AccessDeniedError, UnavailableError
from backends.protocols import Sasl, StoreTls
from backends.zookeeper.acl import make_acl
from backends.zookeeper.kazoo_client import Client
from backends.zookeeper.reader import REFUSED, make_options
from backends.zookeeper.sasl import describe_refusal

_LOG: Final = logging.getLogger(__name__)


class ZooKeeperElection:
    """One leader at a time, on a ZooKeeper ensemble.

    Args:
        hosts: ``host:port`` joined with commas.
        key: of the election, the same for all instances; made if it is absent.
        name: of this instance, kept in its node.
        acl: rights of the nodes, as `backends.protocols.Versioned` has them; None: every client may do anything.
        auth: user and password of the digest scheme.
        sasl: user and password for SASL with DIGEST-MD5, or Kerberos.
        tls: None: not encrypted.
        session_s: the session's life without the server hearing from us.
    """

    def __init__(
        self,
        hosts: str,
        key: str,
        name: str,
        *,
        acl: str | None = None,
        auth: tuple[str, str] | None = None,
        sasl: Sasl | None = None,
        tls: StoreTls | None = None,
        session_s: float = 15.0,
    ) -> None:
        self._uri = f"zk://{hosts}"
        self._key = key
        self._name = name
        self._session_s = session_s
        self._options = make_options(hosts, auth=auth, sasl=sasl, tls=tls, session_s=session_s)
        if acl is not None:
            self._options["default_acl"] = make_acl(acl)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._term: _Term | None = None

    def campaign(self, lost: Callable[[], None]) -> bool:
        with self._lock:
            if self._closed.is_set():
                return False
            self._term = term = _Term(Client(**self._options), lost)
            term.client.start_async()
        if not term.await_session(self._session_s):
            refused = term.client.was_refused
            self.resign()
            if self._closed.is_set():
                return False
            if refused:
                raise AccessDeniedError(self._uri, describe_refusal(self._options["sasl_options"]))
            raise UnavailableError(self._uri, f"no session within {self._session_s:g} s")
        failure = term.run(self._key, self._name)
        if term.leads:
            return True
        self.resign()
        if self._closed.is_set():
            return False
        if isinstance(failure, REFUSED):
            raise AccessDeniedError(self._key, str(failure) or type(failure).__name__) from failure
        raise UnavailableError(self._uri, "the session was lost") from failure

    def resign(self) -> None:
        with self._lock:
            term, self._term = self._term, None
        if term is not None:
            term.end()

    def close(self) -> None:
        self._closed.set()
        self.resign()


class _Term:
    """One session, and its lead."""

    def __init__(self, client: Any, lost: Callable[[], None]) -> None:  # noqa: ANN401 - kazoo has no types
        self.client = client
        self.leads = False
        self._lost = lost
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._events: SimpleQueue[Exception | None] = SimpleQueue()
        client.add_listener(self._see)

    def await_session(self, patience_s: float) -> bool:
        """Wait until the session is open; False: it is not, or the term was ended."""
        with suppress(Empty):
            self._events.get(timeout=patience_s)
        return bool(self.client.connected) and not self._is_over.is_set()

    def run(self, key: str, name: str) -> Exception | None:
        """Take part in the election until this session leads, or is over; return the error that ended it, if any."""
        election = self.client.Election(key, name)

        def take_part() -> None:
            try:
                election.run(self._lead)
            except (zk.KazooException, KazooTimeoutError) as error:
                self._events.put(error)
            else:
                self._events.put(None)

        threading.Thread(target=take_part, name="election", daemon=True).start()
        return self._events.get()

    def _lead(self) -> None:
        with self._lock:
            self.leads = not self._is_over.is_set()
        self._events.put(None)
        self._is_over.wait()

    def _see(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._events.put(None)
            return
        with self._lock:
            first = not self._is_over.is_set()
            led, self.leads = self.leads, False
            self._is_over.set()
        if first and led:
            self._lost()
        self._events.put(None)

    def end(self) -> None:
        """End the session: its node goes with it."""
        with self._lock:
            self.leads = False
            self._is_over.set()
        self._events.put(None)
        try:
            self.client.stop()
            self.client.close()
        except (zk.KazooException, KazooTimeoutError, OSError) as error:
            # The server ends the session by itself, when it has heard nothing of it for long enough.
            _LOG.warning("a session was not ended cleanly: %s", error)
