"""Folders of runs, and the rule for keeping them.

<data>/cluster.json                      the cluster of these runs: ledgers_root, instance_id
<data>/<job>/<time>-<epoch>-<number>/    result.json, log.txt
                                    out/ the dataset that the command wrote
<data>/backup/                           what the follower of the backup says: result.json, log.txt
<data>/deletes/                          the journal of deletes
<data>/impact/                           captures that check-impact keeps
<data>/requests/                         of requests that are under way
"""

import json
import os
import re
import shutil
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from reconcile.service.config import KeptRuns
from recovery.errors import InputError

OUT: Final = "out"
_CLUSTER: Final = "cluster.json"
_FORM: Final = "%Y%m%dT%H%M%SZ"
_AHEAD: Final = timedelta(hours=1)
"""Tolerated difference between the clocks of two instances."""
_NAME: Final = re.compile(r"([0-9]{8}T[0-9]{6}Z)-([0-9]+)-([0-9]+)")


def make_folder(data: Path, job: str, at: datetime, epoch: int, number: int) -> Path:
    """Make the folder of a run.

    Raises:
        InputError: it cannot be made.
    """
    for above in (data, data / job):
        make_private(above)
    path = data / job / f"{at.astimezone(UTC).strftime(_FORM)}-{epoch}-{number}"
    return make_private(path)


def make_private(path: Path) -> Path:
    """Make a folder that no other user can read: datasets hold passwords.

    Raises:
        InputError: it cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        remedy = "free space, or name another folder as `data`"
        raise InputError(str(path), f"cannot be made ({error.strerror})", remedy) from error
    return path


def remove_abandoned(folder: Path, now: datetime, age_s: float) -> None:
    """Remove folders that were unchanged for so long: a killed process removes nothing of its own.

    Args:
        folder: of folders that are each used for a moment.
        now: the time.
        age_s: longer than any of them is used.
    """
    for path in folder.iterdir():
        try:
            written_s = path.stat().st_mtime
        except FileNotFoundError:
            # Its own request has ended.
            continue
        if now.timestamp() - written_s > age_s:
            shutil.rmtree(path, ignore_errors=True)


def claim(data: Path, ledgers_root: str, instance_id: str) -> None:
    """Assign a folder to a cluster, or require that it is: the runs of one must not follow the rules of another.

    Args:
        data: the service's folder.
        ledgers_root: key.
        instance_id: of the cluster; empty: it has none.

    Raises:
        InputError: it is another cluster's, or cannot be written.
    """
    path = make_private(data) / _CLUSTER
    identity_here = {"ledgers_root": ledgers_root, "instance_id": instance_id}
    try:
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {**identity_here, "instance_id": ""}
        named = str(known["instance_id"])
        if known["ledgers_root"] != ledgers_root or (named and instance_id and named != instance_id):
            whose, own = (
                f"{identity['ledgers_root']}, instance {identity['instance_id'] or 'not named'}"
                for identity in (known, identity_here)
            )
            problem = f"keeps the runs of {whose}; the store is {own}"
            raise InputError(str(data), problem, "name another folder as `data`, and keep this one")
        if not path.exists() or (instance_id and not named):
            beside = path.with_name(f".{_CLUSTER}.{os.getpid()}")
            beside.write_text(json.dumps(identity_here), encoding="utf-8")
            beside.replace(path)
    except OSError as error:
        remedy = "free space, or name another folder as `data`"
        raise InputError(str(path), f"cannot be written ({error.strerror})", remedy) from error
    except (ValueError, KeyError, TypeError) as error:
        problem = "does not say which cluster's runs these are"
        raise InputError(str(path), problem, "remove this file if the folder is of this cluster") from error


def list_runs(folder: Path) -> list[tuple[datetime, str]]:
    """Return time and name of the runs in a job's folder, the newest first; other folders are not ours."""
    if not folder.is_dir():
        return []
    entries = [(match[1], entry.name) for entry in folder.iterdir() if (match := _NAME.fullmatch(entry.name))]
    return sorted(((datetime.strptime(time, _FORM).replace(tzinfo=UTC), name) for time, name in entries), reverse=True)


def choose_kept(runs: Iterable[tuple[datetime, str]], kept: KeptRuns) -> set[str]:
    """Return the names of runs to be kept: the newest, and the newest of each of some hours, days and weeks.

    Args:
        runs: time and name, the newest first.
        kept: number to keep of each.
    """
    ordered = list(runs)
    chosen = {name for _, name in ordered[: kept.runs]}
    spans = ((kept.hourly, "%Y%m%d%H"), (kept.daily, "%Y%m%d"), (kept.weekly, "%G%V"))
    for number, form in spans:
        newest: dict[str, str] = {}
        for time, name in ordered:
            newest.setdefault(time.strftime(form), name)
        chosen.update(list(newest.values())[:number])
    return chosen


def remove_others(data: Path, job: str, kept: KeptRuns, named: Collection[str], now: datetime) -> list[str]:
    """Remove runs of a job that are not to be kept; return their names.

    A run of a time to come was made by a clock that was wrong: it goes first, and takes the place of no other one.

    Args:
        data: the service's folder.
        job: the name of it.
        kept: number to keep.
        named: folders of runs that are always kept, because the service's record names them.
        now: the time.
    """
    folder = data / job
    runs = list_runs(folder)
    whole = [(time, name) for time, name in runs if (folder / name / OUT / "manifest.json").exists()]
    keep = choose_kept([run for run in whole if run[0] <= now + _AHEAD], kept) | {Path(run).name for run in named}
    # The newest of all may be one that another instance writes at this moment.
    keep.update([name for time, name in runs if time <= now + _AHEAD][:1])
    gone = [name for _, name in runs if name not in keep]
    for name in gone:
        shutil.rmtree(folder / name, ignore_errors=True)
    return gone
