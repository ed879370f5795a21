"""`ask`: a service that runs, asked over gRPC."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import DURATION, FILE, make_output, output_options
from reconcile.cli.output import Result
from reconcile.operator_files import read_operator_file
from recovery.errors import InputError

if TYPE_CHECKING:
    from reconcile.service.api.methods import Method

TOKEN_VARIABLE: Final = "BKMETA_SERVICE_TOKEN"  # noqa: S105 - its name
_CLEAR: Final = "the token was sent without encryption: name --tls-ca, and have the service use TLS"
_LEDGER: Final = "LedgerId"
_CODES: Final = {
    "INVALID_ARGUMENT": Exit.USAGE,
    "NOT_FOUND": Exit.USAGE,
    "UNAUTHENTICATED": Exit.REFUSED,
    "PERMISSION_DENIED": Exit.REFUSED,
    "FAILED_PRECONDITION": Exit.REFUSED,
}


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "the service answered; for a command that it ran: that command's code",
        Exit.FAILED: "the service or its store did not answer in time, or the service is too busy",
        Exit.USAGE: "a method, a field or an address that cannot be used",
        Exit.FOUND: "from the command that the service ran: something was found, or is unsafe",
        Exit.UNDECIDABLE: "from that command: something that matters could not be checked",
        Exit.REFUSED: "the token is not known, or lacks the role; another instance leads; or from that command",
        Exit.PARTLY: "from that command: partly done; run it again",
    },
    epilog="Example: bkmeta ask check-impact bookies=bk1:3181 bookies=bk2:3181 --service bkmeta.example.org:8481",
)
@click.argument("method")
@click.argument("fields", metavar="[FIELD=VALUE]...", nargs=-1)
@click.option(
    "--service", "address", default="127.0.0.1:8481", show_default=True, help="HOST:PORT of the service's gRPC."
)
@click.option(
    "--tls-ca",
    "ca",
    type=FILE,
    help="PEM of the certificate authority that signed the service's certificate. Turns TLS on.",
)
@click.option(
    "--deadline", type=DURATION, default="10m", show_default=True, help="How long to wait for the whole answer."
)
@output_options
def ask(
    method: str,
    fields: tuple[str, ...],
    address: str,
    ca: Path | None,
    deadline: timedelta,
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Ask a service that runs: get-status, list-findings, check-impact, explain-ledger, run-now, request-deletes, ….

    FIELD=VALUE are those of the method's message; a field that may be given several times is repeated. A ledger is
    123, scope:123 or 32 hex digits; @FILE is what a file holds. The token is in BKMETA_SERVICE_TOKEN.
    """
    output = make_output(shared)
    try:
        from reconcile.service.api.client import ask_service
        from reconcile.service.api.methods import METHODS, ApiError
    except ImportError as error:
        raise InputError("ask", f"{error.name} is not installed", "install bkmeta[service]") from error
    chosen = next((known for known in METHODS if known.path == method), None)
    if chosen is None:
        raise click.BadParameter(f"known are {', '.join(known.path for known in METHODS)}", param_hint="METHOD")
    from google.protobuf import json_format

    try:
        request = json_format.ParseDict(_read_fields(chosen, fields), chosen.request())
    except json_format.ParseError as error:
        raise click.BadParameter(str(error), param_hint="FIELD=VALUE") from error
    token = os.environ.get(TOKEN_VARIABLE, "")
    cautions = [_CLEAR] if token and ca is None and not _is_own_host(address) else []
    shown = []
    try:
        for answer in ask_service(address, chosen, request, token=token, ca=ca, deadline_s=deadline.total_seconds()):
            answered = json_format.MessageToDict(
                answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
            if chosen.streams:
                click.echo(json.dumps(answered))
            shown.append(answered)
    except ApiError as error:
        code = _CODES.get(error.why.value[0], Exit.FAILED)
        sys.exit(output.show(Result("ask", error.text, code, details=cautions, facts={"why": error.why.value[0]})))
    result = _make_result(chosen, shown)
    sys.exit(output.show(replace(result, details=[*result.details, *cautions])))


def _is_own_host(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or host.startswith("127.")


def _make_result(method: "Method", shown: list[dict[str, Any]]) -> Result:
    if method.streams:
        return Result("ask", f"{len(shown)} of them", Exit.DONE, counts={"answers": len(shown)})
    [answered] = shown
    code = int(answered.get("exit_code", Exit.DONE))
    verdict = str(answered.get("verdict") or answered.get("state") or "answered")
    details = [f"{name}: {_show(value)}" for name, value in answered.items() if name not in ("verdict", "exit_code")]
    return Result("ask", verdict, code, details=details, facts={"answer": answered})


def _show(value: object) -> str:
    return json.dumps(value) if isinstance(value, Mapping | list) else str(value)


def _read_fields(method: "Method", fields: tuple[str, ...]) -> dict[str, Any]:
    """Return fields as protobuf's JSON has them."""
    known = method.request.DESCRIPTOR.fields_by_name
    given: dict[str, Any] = {}
    for text in fields:
        name, equals, value = text.partition("=")
        if not equals or (name not in known and name != "ledger"):
            raise click.BadParameter(f"{text!r}: fields are {', '.join(known)}", param_hint="FIELD=VALUE")
        if name == "ledger" and "ledger_id" in known:
            given |= _read_ledger(value)
        elif name not in known:
            raise click.BadParameter(f"{text!r}: fields are {', '.join(known)}", param_hint="FIELD=VALUE")
        elif known[name].is_repeated:
            given.setdefault(name, []).append(_read_value(known[name], value))
        else:
            given[name] = _read_value(known[name], value)
    return given


def _read_value(field: Any, value: str) -> Any:  # noqa: ANN401 - a descriptor; what JSON has
    import base64

    if field.message_type is not None and field.message_type.name == _LEDGER:
        return _read_ledger(value)
    raw = read_operator_file(Path(value[1:])) if value.startswith("@") else value.encode()
    if field.message_type is not None and field.message_type.full_name == "google.protobuf.Struct":
        return json.loads(raw)
    if field.type == field.TYPE_BYTES:
        return base64.b64encode(raw).decode()
    if field.type == field.TYPE_BOOL and value in ("true", "false"):
        return value == "true"
    return raw.decode(errors="replace")


def _read_ledger(text: str) -> dict[str, str]:
    from reconcile.cli.options import parse_ledger

    ledger = parse_ledger(text, hint="FIELD=VALUE")
    return {"ledger_id": str(ledger.ledger), "ledger_scope_id": str(ledger.scope)}
