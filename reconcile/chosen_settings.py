"""What a run went by that was not a default, as its dataset's manifest has it: for people."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconcile.words import count_noun

_SHOWN = 8
"""Values of one setting."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a run.

    Attributes:
        name: of the option or the variable.
        value: in words.
        origin: where it came from: option, environment, conf file, incident file.
    """

    name: str
    value: str
    origin: str


def list_chosen(settings: Mapping[str, Any]) -> list[Setting]:
    """Return the settings of a dataset's run that were no defaults, in the order of its manifest."""
    return [
        Setting(name, _word(setting["value"]), setting["from"])
        for name, setting in settings.items()
        if setting["from"] != "default"
    ]


def _word(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case dict():
            return _word([f"{name}={_word(part)}" for name, part in value.items()])
        case list():
            more = [f"and {count_noun(len(value) - _SHOWN, 'more', 'more')}"] if len(value) > _SHOWN else []
            return ", ".join([*map(_word, value[:_SHOWN]), *more]) or "none"
        case _:
            return str(value)
