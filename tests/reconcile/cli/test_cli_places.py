"""Every option of every command that names a place takes one of an object store, or refuses it by its own name."""

from pathlib import Path
from typing import Final

import click
import pytest

from reconcile.cli.options import FILE, LocalPath, Names, PlaceType
from recovery.place import RemotePlace
from tests.support.command import commands, run

AWAY: Final = "s3://bucket/folder"
CAPTURES: Final = frozenset(
    {
        *("--metadata", "--snapshot", "--inventory", "--inventory-dir", "--earlier", "--against"),
        *("--acl-of", "--tombstones", "--history"),
    }
)
"""Texts that name datasets, or stores whose captures are datasets."""
LOCAL: Final = {"--disk": f"10.0.0.1:3181={AWAY}", "--references": AWAY, "--incident": AWAY}
"""Texts that name files of this machine, each as it is typed with a place in a store."""
NO_PLACES: Final = frozenset(
    {
        *("LEDGER", "BOOKIE", "METHOD", "FIELD=VALUE", "--ledger-scope-id", "--ledger-qualified-name", "--ledgers"),
        *("--bookie", "--bookies", "--bookie-id", "--bookie-auth", "--unrecoverable", "--host", "--domain", "--lost"),
        "FILE|KIND=HASH",
        *(
            "--http",
            "--master",
            "--zookeeper",
            "--service",
            "--confirm",
            "--approver",
            "--without-approver",
            "--reason",
            "--head",
            "--acl",
        ),
        *("--drop", "--choose", "--choose-all", "--where", "--accept-loss", "--restore-deleted-by", "--adopt"),
        *("--accept-deleted-by", "--replace-cookie", "--replace-below", "--subtree", "--waves", "--default-quorum"),
        *(
            "--at",
            "--as-of",
            "--instance-id",
            "--head",
            "--bookies-from",
            "--sample",
            "--buckets",
            "--category",
            "--repair",
            "--by",
            "--to",
            "--checksum",
            "--encrypt-to",
            "--logs",
            "--entries",
            "--topics",
        ),
        *("--session", "--from-time", "--to-time", "--topic"),
    }
)
"""Texts that name something else: bookies register in living stores alone; `--to` of an archive is kept as it is;
logs are read where a server writes them."""


def _name(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return str(parameter.metavar or parameter.human_readable_name).strip("[]").removesuffix("...").strip("[]")


def _cases(*kinds: type) -> list[tuple[str, click.Parameter]]:
    return [
        (command, parameter)
        for command, found in commands().items()
        for parameter in found.params
        if isinstance(parameter.type, kinds)
    ]


def _id(value: object) -> str:
    return _name(value) if isinstance(value, click.Parameter) else str(value)


def test_every_option_that_is_a_text_is_known() -> None:
    """A new one says here whether it names a place; none is a path of another type, which would not know of stores."""
    texts = {_name(parameter) for _, parameter in _cases(click.types.StringParamType)}
    assert texts - CAPTURES - LOCAL.keys() <= NO_PLACES
    assert CAPTURES | LOCAL.keys() <= texts
    assert {type(parameter.type) for _, parameter in _cases(click.Path)} == {LocalPath}


@pytest.mark.parametrize(("command", "option"), _cases(LocalPath, Names), ids=_id)
def test_what_is_of_this_machine_is_refused_by_name(
    command: str,
    option: click.Parameter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before anything else is looked at; no folder named `s3:` is made."""
    monkeypatch.chdir(tmp_path)
    typed = [_name(option), AWAY] if isinstance(option, click.Option) else [AWAY]
    done = run(capsys, *command.split(), *typed)
    assert done.code == 2
    assert f"{AWAY} is in a store" in done.err
    assert _name(option) in done.err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", LOCAL)
def test_texts_of_this_machine_are_refused_by_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By every command that has the option."""
    having = [command for command, option in _cases(click.types.StringParamType) if _name(option) == name]
    for command in having:
        done = run(capsys, *command.split(), name, LOCAL[name])
        assert done.code == 2
        assert f"{AWAY} is in a store" in done.err, command
        assert name in done.err


def test_datasets_may_stand_in_a_store() -> None:
    """An option of a dataset gives the place as it is, a URI of a file as a path."""
    options = _cases(PlaceType)
    assert {_name(option) for _, option in options} >= {"--out", "--since", "--plan", "PLAN"}
    for _, option in options:
        assert option.type.convert(AWAY, option, None) == RemotePlace(AWAY)
        assert option.type.convert("file:///folder", option, None) == Path("/folder")
    assert FILE.convert("file:///file", None, None) == Path("/file")


def test_what_is_taken_is_tried_against_a_server() -> None:
    """Each option that may name a place in a store is typed so by a test that has one."""
    real = Path(__file__).parents[2] / "real"
    typed = "".join((real / name).read_text() for name in ("test_object_store.py", "test_object_store_live.py"))
    assert [option for option in sorted(CAPTURES) if f'"{option}"' not in typed] == []
