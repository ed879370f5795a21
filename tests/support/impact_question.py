"""An impact check of a capture, asked as a program would ask it."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from reconcile.check.impact.answer import ImpactAnswer
from reconcile.cli.output import Output
from reconcile.jobs.context import Context
from reconcile.jobs.impact.check import check_impact
from reconcile.jobs.impact.question import ImpactRequest, Taken
from reconcile.stores import NOBODY
from recovery.dataset import Dataset
from tests.support.impacts import AT


def make_context(now: Callable[[], datetime] = lambda: AT + timedelta(minutes=1)) -> Context:
    """Return what a job has from its caller: nobody's access, no progress, a clock."""
    return Context(NOBODY, Output(as_json=True, progress="none"), now)


def ask(catalog: Dataset, *sets: tuple[str, ...], taken: Taken | None = None, **more: Any) -> ImpactAnswer:
    """Ask what becomes of a capture's cluster when sets of bookies are taken."""
    request = ImpactRequest(
        uri=f"catalog://{catalog.path}",
        cache=Path(catalog.path).parent / "cache",
        taken=taken or Taken(sets),
        **more,
    )
    return check_impact(request, make_context())


def list_impacts(answer: ImpactAnswer) -> dict[str, int]:
    """Return impact to segments, of all sets together."""
    shown = answer.together or (answer.sets[0] if answer.sets else answer.now)
    return {impact: tally.segments for impact, tally in shown.impacts.items()}
