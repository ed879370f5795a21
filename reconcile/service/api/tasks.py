"""Long requests as tasks: started and read by separate calls, with their caller and reason.

A task is of the instance that began it, and goes with it: what it changed is in the store and its journal all the same.
"""

import json
import logging
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct

from reconcile.service._pb import service_pb2 as pb
from reconcile.service.api.messages import read_whole
from reconcile.service.api.methods import METHODS, ApiError, Method, Why
from reconcile.service.runs.children import LOG

_LOG: Final = logging.getLogger(__name__)
_MOST_RUNNING: Final = 16
_MOST_KEPT: Final = 200
_TAIL: Final = 4096
"""Bytes of a command's log that are read for its progress."""
_BY_PATH: Final = {
    method.path: method for method in METHODS if not method.streams and not method.path.endswith("-task")
}


class TaskState(StrEnum):
    """The state of a task."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    REFUSED = "REFUSED"
    CANCELLED = "CANCELLED"


@dataclass(slots=True)
class _Task:
    """A task; `folders` is where its command writes."""

    id: str
    method: Method
    by: str
    why: str
    began_ms: int
    state: TaskState = TaskState.RUNNING
    ended_ms: int | None = None
    error: str = ""
    result: Struct | None = None
    given_up: threading.Event = field(default_factory=threading.Event)
    folders: list[Path] = field(default_factory=list)


class TaskBook:
    """The tasks of one instance.

    Args:
        answer: answers a method, as `Api.answer` does.
        now_ms: the time.
        require_role: refuses a method that a caller may not ask for.
    """

    def __init__(
        self, answer: Callable[..., Any], now_ms: Callable[[], int], require_role: Callable[[Method, str], None]
    ) -> None:
        self._answer = answer
        self._now_ms = now_ms
        self._require_role = require_role
        self._lock = threading.Lock()
        self._tasks: dict[str, _Task] = {}

    def start(self, path: str, request: Struct, by: str, why: str) -> pb.Task:
        """Begin a task.

        Args:
            path: of the method, as URLs have it.
            request: its message, as JSON has it.
            by: the caller.
            why: the reason; may be empty.

        Raises:
            ApiError: no such method, the caller may not ask for it, the message is not of it, or too many tasks run.
        """
        method = _BY_PATH.get(path)
        if method is None:
            raise ApiError(Why.NOT_FOUND, f"no method {path!r} runs as a task; known are {', '.join(sorted(_BY_PATH))}")
        self._require_role(method, by)
        message = method.request()
        try:
            json_format.ParseDict(read_whole(json_format.MessageToDict(request)), message)
        except json_format.ParseError as error:
            raise ApiError(Why.BAD_REQUEST, f"request is not a {method.request.DESCRIPTOR.name}: {error}") from error
        task = _Task(secrets.token_hex(8), method, by, why, self._now_ms())
        with self._lock:
            if sum(known.state is TaskState.RUNNING for known in self._tasks.values()) >= _MOST_RUNNING:
                raise ApiError(Why.TOO_MANY, f"{_MOST_RUNNING} tasks are running: wait for one, or cancel one")
            ended = [known.id for known in self._tasks.values() if known.state is not TaskState.RUNNING]
            for oldest in ended[: max(0, len(self._tasks) + 1 - _MOST_KEPT)]:
                del self._tasks[oldest]
            self._tasks[task.id] = task
        threading.Thread(target=self._run, args=(task, message), name=f"task {task.id}", daemon=True).start()
        return _show(task)

    def _run(self, task: _Task, message: Any) -> None:  # noqa: ANN401 - a message of the method's type
        state, error, result = TaskState.DONE, "", None
        try:
            answer = self._answer(task.method, message, task.by, given_up=task.given_up, folders=task.folders)
            text = json_format.MessageToDict(
                answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
            result = json_format.ParseDict(text, Struct())
        except ApiError as refused:
            state, error = TaskState.REFUSED, refused.text
        except Exception as fault:  # noqa: BLE001 - of one task; without this it would run for ever
            _LOG.exception("task %s (%s) is not done", task.id, task.method.path)
            state = TaskState.REFUSED
            error = f"a fault of the service ({type(fault).__name__}): its log has more"
        with self._lock:
            if task.state is TaskState.RUNNING:
                task.state, task.error, task.result = state, error, result
            task.ended_ms = self._now_ms()

    def show(self, task_id: str) -> pb.Task:
        """Return a task.

        Raises:
            ApiError: there is none of this id.
        """
        return _show(self._find(task_id))

    def _find(self, task_id: str) -> _Task:
        task = self._tasks.get(task_id)
        if task is None:
            problem = f"no task {task_id!r} on this instance: a task is known where it was begun, until a restart"
            raise ApiError(Why.NOT_FOUND, f"{problem}; list-tasks names those that are")
        return task

    def list(self) -> pb.Tasks:
        """Return all tasks, the newest first, without results."""
        with self._lock:
            tasks = list(reversed(self._tasks.values()))
        return pb.Tasks(tasks=[_show(task, with_result=False) for task in tasks])

    def cancel(self, task_id: str, by: str) -> pb.Task:
        """End a task; an ended task stays as it is.

        Raises:
            ApiError: there is none of this id, or the caller may not use its method.
        """
        task = self._find(task_id)
        self._require_role(task.method, by)
        with self._lock:
            if task.state is TaskState.RUNNING:
                task.state = TaskState.CANCELLED
        task.given_up.set()
        return _show(task)

    def stop(self) -> None:
        """End all tasks."""
        for task in list(self._tasks.values()):
            task.given_up.set()


def _show(task: _Task, *, with_result: bool = True) -> pb.Task:
    return pb.Task(
        id=task.id,
        method=task.method.path,
        by=task.by,
        why=task.why,
        state=task.state,
        began_ms=task.began_ms,
        ended_ms=task.ended_ms,
        progress=_read_progress(task) if task.state is TaskState.RUNNING else "",
        error=task.error,
        result=task.result if with_result else None,
    )


def _read_progress(task: _Task) -> str:
    """Return the current step of a task's command; empty: none yet."""
    if not task.folders:
        return "waits for a place" if task.method.acts else ""
    with suppress(OSError):
        with (task.folders[-1] / LOG).open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - _TAIL))
            lines = log.read().decode(errors="replace").splitlines()
        for line in reversed(lines):
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("event") == "progress":
                    total = f" of {event['total']}" if event.get("total") else ""
                    return f"{event.get('stage')}: {event.get('done')}{total} {event.get('unit', '')}".strip()
    return ""
