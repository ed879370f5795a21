"""Tasks of a plan carried in this process, for tests of what they find: Spark itself is tested elsewhere."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import recovery.spark
from reconcile.jobs.make_plan import plan


@contextmanager
def carry_here() -> Iterator[None]:
    """Have `recover` start no Spark, and carry its tasks one after the other."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recovery.spark, "session", _give_none)
        patched.setattr(plan, "over_buckets", _carry)
        yield


@contextmanager
def _give_none(*_: object, **__: object) -> Iterator[None]:
    yield None


def _carry(
    _: object,
    task: Callable[[range], Mapping[str, Any]],
    ranges: Sequence[range],
    *,
    done: Callable[[int, int], None],
) -> list[dict[str, Any]]:
    answers = []
    for number, buckets in enumerate(ranges):
        done(number, len(ranges))
        answers.append(dict(json.loads(json.dumps(task(buckets)))))
    done(len(ranges), len(ranges))
    return answers
