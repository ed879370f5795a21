"""Whether bookies can delete data right now: what a store lists, compared with what bookies hold."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from reconcile.check.preflight import checks as engine
from reconcile.check.preflight import gc_settings
from reconcile.check.preflight.report import Report
from reconcile.jobs.collect.tables import with_tables
from reconcile.jobs.context import Context
from reconcile.stores import open_store, require_store_uri
from reconcile.write.guards import ask_whether_running
from recovery.codecs.store import Layout
from recovery.dataset import Dataset, open_dataset

_ANSWER_S: Final = 5.0
_PATIENCE_S: Final = 10.0
_ASKED_TOGETHER: Final = 16
"""Bookies whose HTTP API is asked at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightRequest:
    """What is looked at.

    Attributes:
        uri: the store.
        inventories: folders of what bookies hold.
        confs: configuration files of bookies.
        addresses: host:port of bookies' HTTP admin API.
        aliases: other names of bookies in records and of cookies → ids.
    """

    uri: str
    inventories: tuple[str, ...] = ()
    confs: tuple[Path, ...] = ()
    addresses: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)


def examine(request: PreflightRequest, context: Context) -> Report:
    """Look at a store, and compare it with what bookies hold; nothing is written.

    Raises:
        DatasetError: an inventory is damaged.
        InputError: an alias is a bookie of its own.
        UnsupportedStoreError: the URI is malformed.
        UnavailableError: the store does not answer within some seconds.
    """
    require_store_uri(request.uri)
    with with_tables(request.inventories, context.now()) as folders:
        return _examine(request, [open_dataset(path, "inventory") for path in folders], context)


def _examine(request: PreflightRequest, inventories: Sequence[Dataset], context: Context) -> Report:
    with ThreadPoolExecutor(_ASKED_TOGETHER, thread_name_prefix="http") as pool:
        answers = pool.map(gc_settings.ask, request.addresses)
        settings = [*(gc_settings.read_file(path) for path in request.confs), *answers]
    with open_store(request.uri, context.access, session_s=_ANSWER_S, patience_s=_PATIENCE_S) as opened:
        layout = Layout(opened.layout_hint) if opened.layout_hint else None
        report = engine.examine(
            opened.store,
            opened.root,
            layout,
            inventories,
            settings,
            now=context.now(),
            aliases=request.aliases,
        )
    running = ask_whether_running(bookie.id for bookie in report.bookies)
    return replace(report, bookies=tuple(replace(bookie, answers=running.get(bookie.id)) for bookie in report.bookies))
