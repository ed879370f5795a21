"""The settings that a run goes by, and where each came from: for its manifest, so that it can be judged later."""

import os
from collections.abc import Mapping
from typing import Any, Final

import click

from reconcile.cli.incident import OPTION as INCIDENT
from reconcile.cli.incident import incident_file

_PREFIX: Final = "BKMETA_"
TYPED: Final = "option"
_SOURCES: Final = {
    click.core.ParameterSource.COMMANDLINE: TYPED,
    click.core.ParameterSource.ENVIRONMENT: "environment",
    click.core.ParameterSource.DEFAULT_MAP: "incident file",
}
DEFAULT: Final = "default"
CONF_FILE: Final = "conf file"
"""The bookie's own, which another option names."""
_NO_SECRETS: Final = frozenset({"BKMETA_PATIENCE_S", "BKMETA_DEBUG"})
"""Variables whose values are told; of the others it is said only that they are set."""


def effective_settings(taken: Mapping[str, tuple[object, str]] | None = None) -> dict[str, dict[str, Any]]:
    """Return each argument of the command that runs, and each variable of ours: its value, and where that came from.

    Args:
        taken: arguments whose values are not those that click has: the value, and where it came from.
    """
    context = click.get_current_context()
    settings: dict[str, dict[str, Any]] = {}
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        said = parameter.opts[0] if isinstance(parameter, click.Option) else str(parameter.human_readable_name)
        settings[said] = {
            "value": incident_file(context) if said == INCIDENT else _plain(context.params.get(name)),
            "from": DEFAULT if source is None else _SOURCES.get(source, DEFAULT),
        }
    for name, (value, origin) in (taken or {}).items():
        settings[name] = {"value": _plain(value), "from": origin}
    for name in sorted(variable for variable in os.environ if variable.startswith(_PREFIX)):
        settings[name] = {"value": os.environ[name] if name in _NO_SECRETS else "set", "from": "environment"}
    return settings


def _plain(value: object) -> Any:  # noqa: ANN401 - what JSON can say
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)
