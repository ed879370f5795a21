"""What `doctor` says of Spark: a real session that runs tasks, and one that does not start."""

import pytest

from reconcile.jobs.diagnose import doctor
from reconcile.jobs.diagnose.doctor import CheckState

pytestmark = pytest.mark.spark


def test_a_session_runs_tasks_with_the_same_packages() -> None:
    """Tasks in workers of their own see the Python and the packages that the driver sees."""
    found = {check.name: check for check in doctor.examine(spark=True, master="local[2]")}
    assert found["Spark session"].state is CheckState.OK
    assert found["executors"].state is CheckState.OK


def test_a_master_that_is_none_is_missing() -> None:
    """What keeps a session from starting is said in a line, and ends nothing."""
    found = {check.name: check for check in doctor.examine(spark=True, master="no-such-master")}
    assert found["Spark session"].state is CheckState.MISSING
    assert "no-such-master" in found["Spark session"].found
