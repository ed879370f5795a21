"""One leader at a time, by a key that lives with a lease.

An instance that finds the key absent makes it, in one transaction, with its own lease. A lease is renewed each third of
its life. It is doubted two thirds of its life after the last renewal that was answered was *sent*: the server lets it
go after a whole one at the earliest.

Source: etcd-io/etcd v3.5, server/lease; run against 3.5.1.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import grpc

from backends.errors import BackendError, UnavailableError
from backends.etcd import rpc
from backends.etcd.channel import Channel
from backends.protocols import StoreTls

_LOG: Final = logging.getLogger(__name__)
_RENEWALS: Final = 3
"""In a lease's life."""


class EtcdElection:
    """One leader at a time, on an etcd cluster.

    Args:
        hosts: ``host:port`` joined with commas, all of one cluster.
        key: of the election, the same for all instances; it must be absent, or of another instance.
        name: of this instance, kept in the key.
        auth: user and password.
        tls: None: not encrypted.
        session_s: life of a lease that is not renewed; whole seconds, rounded up.
    """

    def __init__(
        self,
        hosts: str,
        key: str,
        name: str,
        *,
        auth: tuple[str, str] | None = None,
        tls: StoreTls | None = None,
        session_s: float = 15.0,
    ) -> None:
        self._ttl = max(_RENEWALS, math.ceil(session_s))
        self._uri = f"etcd://{hosts}"
        self._key = key
        self._name = name
        self._hosts = hosts
        self._auth = auth
        self._tls = tls
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._term: _Term | None = None

    def campaign(self, lost: Callable[[], None]) -> bool:
        with self._lock:
            if self._closed.is_set():
                return False
            self._term = term = _Term(self._open_channel(), self._ttl, lost)
        try:
            if term.win(self._key, self._name):
                return True
        except UnavailableError:
            self.resign()
            if self._closed.is_set():
                return False
            raise
        except BaseException:
            self.resign()
            raise
        self.resign()
        return False

    def _open_channel(self) -> Channel:
        return Channel(self._hosts, uri=self._uri, auth=self._auth, tls=self._tls, answer_s=self._ttl / _RENEWALS)

    def resign(self) -> None:
        with self._lock:
            term, self._term = self._term, None
        if term is not None:
            term.end()

    def close(self) -> None:
        self._closed.set()
        self.resign()


class _Term:
    """One lease of a candidate, and the lead that it holds."""

    def __init__(self, channel: Channel, ttl: int, lost: Callable[[], None]) -> None:
        self._channel = channel
        self._ttl = ttl
        self._lost = lost
        self._lease = 0
        self._doubted_at = 0.0
        self._leads = False
        self._lock = threading.Lock()
        self._is_over = threading.Event()

    def win(self, key: str, name: str) -> bool:
        """Wait until the key is of this lease; False: the term was ended.

        Raises:
            BackendError: the store does not answer, or refuses.
        """
        sent = time.monotonic()
        request = rpc.LeaseGrantRequest(TTL=self._ttl)
        self._lease = self._ask(lambda client: client.leasestub.LeaseGrant, request, key).ID
        self._doubted_at = sent + self._ttl * 2 / _RENEWALS
        while not self._is_over.is_set():
            if self._take(key, name):
                with self._lock:
                    self._leads = not self._is_over.is_set()
                for task in (self._keep, self._watch) if self._leads else ():
                    threading.Thread(target=task, name="lease", daemon=True).start()
                return self._leads
            self._is_over.wait(min(1.0, self._ttl / _RENEWALS))
            self._renew()
        return False

    def _take(self, key: str, name: str) -> bool:
        compare = rpc.Compare(key=key.encode(), target=rpc.Compare.CREATE, result=rpc.Compare.EQUAL, create_revision=0)
        put = rpc.PutRequest(key=key.encode(), value=name.encode(), lease=self._lease)
        request = rpc.TxnRequest(compare=[compare], success=[rpc.RequestOp(request_put=put)])
        if self._ask(lambda client: client.kvstub.Txn, request, key).succeeded:
            return True
        # Ours already, where the answer to an earlier request was lost.
        kvs = self._ask(lambda client: client.kvstub.Range, rpc.RangeRequest(key=key.encode()), key).kvs
        return any(kv.lease == self._lease for kv in kvs)

    def _ask(self, method: Callable[[Any], Any], request: Any, key: str) -> Any:  # noqa: ANN401 - messages
        return self._channel.answer(self._channel.send(method, request), key)

    def _renew(self) -> None:
        """Renew the lease.

        Raises:
            UnavailableError: no answer, or the lease is gone.
        """
        sent = time.monotonic()
        client = self._channel.client()
        request = rpc.LeaseKeepAliveRequest(ID=self._lease)
        try:
            answers = client.leasestub.LeaseKeepAlive(
                iter([request]), timeout=self._ttl / _RENEWALS, metadata=client.metadata
            )
            answer = next(answers)
            answers.cancel()
        except grpc.RpcError as error:
            raise self._channel.failure(error, client, "its lease") from error
        except (ValueError, StopIteration) as error:
            raise UnavailableError("its lease", "the connection was closed") from error
        if answer.TTL <= 0:
            self._doubted_at = 0.0
            raise UnavailableError("its lease", "is gone")
        self._doubted_at = sent + self._ttl * 2 / _RENEWALS

    def _keep(self) -> None:
        while not self._is_over.wait(self._ttl / _RENEWALS):
            try:
                self._renew()
            except BackendError as error:
                _LOG.warning("the lease of the leader could not be renewed: %s", error)

    def _watch(self) -> None:
        while not self._is_over.wait(max(0.0, self._doubted_at - time.monotonic())):
            if time.monotonic() >= self._doubted_at:
                with self._lock:
                    led, self._leads = self._leads, False
                    self._is_over.set()
                if led:
                    self._lost()

    def end(self) -> None:
        """Let the lease go: the key goes with it."""
        with self._lock:
            self._leads = False
            self._is_over.set()
        # Where that is not heard, the lease ends by itself.
        with suppress(BackendError):
            if self._lease:
                self._ask(lambda client: client.leasestub.LeaseRevoke, rpc.LeaseRevokeRequest(ID=self._lease), "")
        self._channel.close()
