"""What upper layers know of their ledgers, of files and of stores."""

from collections.abc import Sequence
from pathlib import Path

from reconcile.jobs.context import Context, connect
from reconcile.references import References, of_store, read
from reconcile.stores import catalog_path


def read_references(names: Sequence[str], context: Context) -> References | None:
    """Read what upper layers know, of files and of stores that hold Pulsar's records; None where nothing is named.

    Args:
        names: paths of files, URIs of stores, folders of captures.
        context: of the job.

    Raises:
        InputError: one cannot be read, or is none.
        UnsupportedStoreError: a URI that is malformed, or of a store that is not read.
        UnavailableError: a store does not answer.
    """
    parts = []
    for name in names:
        if "://" not in name and not name.startswith("metadata-store:") and catalog_path(name) is None:
            parts.append(References(read(Path(name))))
            continue
        with connect(name, context) as opened:
            parts.append(of_store(opened))
    return References.unite(parts)
