"""Tasks of the service, without one."""

import pytest
from google.protobuf.struct_pb2 import Struct

from reconcile.service.api.tasks import TaskBook
from tests.support.waiting import until


def test_a_fault_of_ours_ends_a_task(caplog: pytest.LogCaptureFixture) -> None:
    """It is not left running: its caller reads that it failed, and the log has the trace."""

    def fail(*_: object, **__: object) -> None:
        raise LookupError("unexpected")

    book = TaskBook(fail, lambda: 7, lambda _method, _by: None)
    begun = book.start("get-status", Struct(), "ops", "")
    until(lambda: book.show(begun.id).HasField("ended_ms"), "it ended")
    ended = book.show(begun.id)
    assert (ended.state, "LookupError" in ended.error, ended.ended_ms) == ("REFUSED", True, 7)
    assert "unexpected" in caplog.text
