"""Step 4 of a rescue: the plan, its rehearsal, and one hash to confirm."""

import re
from pathlib import Path
from typing import Final

from reconcile.cli.command import Exit
from reconcile.cli.rescue.open_rescue import LOST, READ_CODES, OpenRescue
from reconcile.cli.rescue.record import RescuePhase, RescueQuestion
from reconcile.errors import GuardRefusedError
from reconcile.estimates import EstimatedStep

_ANY_HASH: Final = "any"
_TYPED: Final = 8


def review(rescue: OpenRescue) -> None:
    """Show the plan, rehearse it, and have it confirmed."""
    facts = rescue.record.find_phase(RescuePhase.DECIDE)
    shown = rescue.run("plan", "show", facts["plan"], codes=(*READ_CODES, Exit.REFUSED))
    rescue.say(f"the report: {Path(facts['plan']) / 'report.html'}")
    known = [shown["verdict"], *facts.get("topics", [])]
    # What is lost for certain is said before a person confirms.
    known += [facts["verdict"]] if "verdict" in facts else []
    if (root := name_rehearsal(rescue.uri)) is not None and rescue.kind == LOST:
        if facts.get("rehearsed", {}).get("hash") != facts["hash"]:
            words = ["rehearse", facts["plan"], "--metadata", root, *rescue.build_disk_options("1000")]
            rescue.expect(EstimatedStep.APPLY, rescue.count_writes())
            rehearsed = rescue.run(*words, codes=READ_CODES)
            rescue.measure(EstimatedStep.APPLY, rescue.count_writes())
            rescue.run("rehearse", facts["plan"], "--metadata", root, "--remove", codes=READ_CODES)
            # A person may take hours to confirm it, and then it is not tried again.
            facts["rehearsed"] = {"hash": facts["hash"], "verdict": rehearsed["verdict"]}
            rescue.record.save()
        known.append(f"rehearsed: {facts['rehearsed']['verdict']}")
    question = RescueQuestion(
        "confirm",
        f"write this plan? type the first {_TYPED} digits of its hash, {facts['hash']}",
        tuple(known),
    )
    typed = rescue.answer(question)
    if typed != _ANY_HASH and not (len(typed) >= _TYPED and facts["hash"].startswith(typed.lower())):
        rescue.forget("confirm")
        problem = f"has hash {facts['hash']}, not {typed}"
        raise GuardRefusedError("the plan", problem, "run this again, and type its hash")


def name_rehearsal(uri: str) -> str | None:
    """Return the URI of a root for rehearsals beside the cluster's; None: where it is cannot be told."""
    is_plain = re.fullmatch(r"[a-z+]+://[^/]+/.+", uri) is not None
    return f"{uri.rstrip('/')}-rehearsal" if is_plain else None
