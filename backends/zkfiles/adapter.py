"""The adapter of ZooKeeper's files: ``zkfiles:///dir?root=/pulsar/ledgers&layout=flat``."""

from pathlib import Path
from typing import Final

from backends.adapter import ROOT_IN_CHROOT, Connection, OpenStore, StoreAdapter, StoreAddress, split_file_uri
from backends.errors import NoSuchStoreError, UnsupportedStoreError

LAYOUTS: Final = ("flat", "hierarchical", "legacy", "longhierarchical", "longlonghierarchical")


class ZooKeeperFilesAdapter(StoreAdapter):
    """Copies of the files of ZooKeeper servers, or those of stopped ones."""

    kind = "zkfiles"
    schemes = ("zkfiles",)

    def parse(self, uri: str, scheme: str, rest: str) -> StoreAddress:
        path, options = split_file_uri(uri, scheme, rest, ("root", "layout"))
        layout = options.get("layout")
        if layout is not None and layout not in LAYOUTS:
            raise UnsupportedStoreError(uri, f"unknown layout {layout!r}; known: {', '.join(LAYOUTS)}")
        return StoreAddress(self.kind, uri, path, options.get("root", ROOT_IN_CHROOT), layout, "zookeeper")

    def open(
        self,
        address: StoreAddress,
        connection: Connection,  # noqa: ARG002 - no server is asked
        *,
        writable: bool,
        moment: str | None,
    ) -> OpenStore:
        from backends.zkfiles.store import ZooKeeperFiles, parse_at  # noqa: PLC0415 - only where files are named

        if writable:
            raise UnsupportedStoreError(
                address.uri, "ZooKeeper's files are only read; name a live store to be written to"
            )
        try:
            point = None if moment is None else parse_at(moment)
        except ValueError as error:
            raise UnsupportedStoreError(address.uri, str(error)) from error
        try:
            store = ZooKeeperFiles(Path(address.hosts), point=point)
        except NoSuchStoreError as error:
            raise UnsupportedStoreError(address.uri, error.detail) from error
        return OpenStore(store, address.root, address.layout_hint, address.uri)
