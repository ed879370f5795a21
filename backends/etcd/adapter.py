"""The adapters of etcd: ``etcd://host:2379,host:2379/root``, and of its file ``etcdfile:///snapshot.db?root=/bk/c1``."""

from collections.abc import Sequence
from typing import Final

from backends.adapter import (
    Connection,
    OpenStore,
    ReadOnlyScannableStore,
    StoreAdapter,
    StoreAddress,
    split_file_uri,
    split_servers,
)
from backends.errors import UnsupportedStoreError
from backends.protocols import ChangeFeed, Election

_LAYOUT: Final = "etcd"
_PORT: Final = 2379


class EtcdAdapter(StoreAdapter):
    """A running etcd."""

    kind = "etcd"
    schemes = ("etcd",)

    def parse(self, uri: str, scheme: str, rest: str) -> StoreAddress:
        if not rest.startswith("//"):
            raise UnsupportedStoreError(uri, f"'//' and the servers must follow {scheme}:")
        hosts, path = split_servers(uri, rest[2:], _PORT)
        if not path:
            raise UnsupportedStoreError(uri, "it names no root, the path of BookKeeper's metadataServiceUri")
        return StoreAddress(self.kind, uri, hosts, path, _LAYOUT)

    def open(self, address: StoreAddress, connection: Connection, *, writable: bool, moment: str | None) -> OpenStore:
        try:
            from backends.etcd.store import EtcdStore  # noqa: PLC0415 - grpc, only where it is wanted
        except ModuleNotFoundError as error:
            problem = "this program was packed without etcd's client; name the store where all of bkmeta is installed"
            raise UnsupportedStoreError(address.uri, problem) from error
        tls = connection.tls
        if tls is not None and (tls.ca is None or tls.key_password is not None):
            raise UnsupportedStoreError(address.uri, "TLS to etcd needs the servers' CA, and a key without a password")
        revision = _parse_revision(address.uri, moment)
        if moment is not None and writable:
            raise UnsupportedStoreError(address.uri, "the past is never written to")
        store = EtcdStore(
            address.hosts,
            top=address.root,
            auth=connection.auth,
            tls=tls,
            revision=revision,
            ops_s=connection.ops_s,
            session_s=connection.session_s,
            patience_s=connection.patience_s,
        )
        shown = store if writable else ReadOnlyScannableStore(store)
        return OpenStore(shown, address.root, address.layout_hint, address.uri)

    def try_client(self) -> None:
        from backends.etcd.channel import make_client  # noqa: PLC0415 - grpc, only where it is wanted

        make_client("127.0.0.1:1").close()

    def elect(
        self,
        address: StoreAddress,
        connection: Connection,
        key: str,
        name: str,
        acl: str | None,  # noqa: ARG002 - etcd has no rights of single keys
    ) -> Election:
        from backends.etcd.election import EtcdElection  # noqa: PLC0415 - grpc, only where it is wanted

        return EtcdElection(
            address.hosts, key, name, auth=connection.auth, tls=connection.tls, session_s=connection.session_s
        )

    def follow(
        self, address: StoreAddress, connection: Connection, tops: Sequence[str], logs: Sequence[str]
    ) -> ChangeFeed:
        if logs:
            raise UnsupportedStoreError(address.uri, "etcd is watched; it has no logs to be read: name none")
        from backends.etcd.feed import EtcdFeed  # noqa: PLC0415 - grpc, only where it is wanted

        return EtcdFeed(
            address.hosts,
            tops,
            auth=connection.auth,
            tls=connection.tls,
            session_s=connection.session_s,
            patience_s=connection.patience_s,
        )


class EtcdFileAdapter(StoreAdapter):
    """A snapshot of etcd's database, or a copied file."""

    kind = "etcdfile"
    schemes = ("etcdfile",)

    def parse(self, uri: str, scheme: str, rest: str) -> StoreAddress:
        path, options = split_file_uri(uri, scheme, rest, ("root",))
        return StoreAddress(self.kind, uri, path, options.get("root", ""), _LAYOUT, EtcdAdapter.kind)

    def open(
        self,
        address: StoreAddress,
        connection: Connection,  # noqa: ARG002 - no server is asked
        *,
        writable: bool,
        moment: str | None,
    ) -> OpenStore:
        from backends.etcd.etcdfile import EtcdFile  # noqa: PLC0415 - only where a file is named

        if writable:
            raise UnsupportedStoreError(address.uri, "a snapshot is only read; name a live store to be written to")
        store = EtcdFile(address.hosts, revision=_parse_revision(address.uri, moment))
        root = address.root
        if not root:
            roots = store.roots()
            if len(roots) != 1:
                store.close()
                problem = (
                    f"it holds {len(roots)} clusters ({', '.join(roots)})" if roots else "no cluster is seen in it"
                )
                raise UnsupportedStoreError(address.uri, f"{problem}: name the root, e.g. {address.uri}?root=/bk/c1")
            [root] = roots
        return OpenStore(store, root, address.layout_hint, address.uri)


def _parse_revision(uri: str, text: str | None) -> int | None:
    if text is not None and not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 63):
        raise UnsupportedStoreError(uri, f"etcd keeps no times: name a revision, a number from 1 on, not {text!r}")
    return None if text is None else int(text)
