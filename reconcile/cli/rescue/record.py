"""What a rescue has done, asked and been told: `rescue.json` in its folder, written whole after each change."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from reconcile.operator_files import convert_values, read_json
from reconcile.write.audit_journal import name_runner
from recovery.errors import InputError

SCHEMA: Final = "bkmeta.rescue-record/1"
FILE: Final = "rescue.json"


class RescuePhase(StrEnum):
    """The steps, in their order."""

    LOOK = "look"
    STOP = "stop"
    COLLECT = "collect"
    DECIDE = "decide"
    REVIEW = "review"
    RESTORE = "restore"
    START = "start"


@dataclass(frozen=True, slots=True)
class RescueQuestion:
    """What only a person knows.

    Attributes:
        id: of it; an answer names it.
        text: the question.
        known: what is known, a line each.
        choices: answer → what it costs, or does; empty: any text.
        recommended: one of the choices; None: none is.
    """

    id: str
    text: str
    known: tuple[str, ...] = ()
    choices: Mapping[str, str] = field(default_factory=dict)
    recommended: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


@dataclass(slots=True)
class RescueRecord:
    """A rescue so far.

    Attributes:
        folder: of it.
        values: the object of the file.
        now: the clock.
    """

    folder: Path
    values: dict[str, Any]
    now: Callable[[], datetime]

    @classmethod
    def open(
        cls, folder: Path, metadata: str, now: Callable[[], datetime], *, topic: str | None = None
    ) -> "RescueRecord":
        """Return the record of a folder, or begin one.

        Raises:
            InputError: the file is no record, or is of another store, or of other topics.
        """
        values = read_record(folder)
        if values is None:
            values = {"schema": SCHEMA, "metadata": metadata, "topic": topic, "began": _show(now())}
            values |= {"phases": {}, "answers": {}, "commands": []}
        elif not values["phases"].get(RescuePhase.LOOK, {}).get("ended"):
            values |= {"metadata": metadata, "topic": topic}  # Nothing was looked at yet: the first name was not right.
        elif values["metadata"] != metadata:
            problem = f"is a rescue of {values['metadata']}"
            raise InputError(str(folder / FILE), problem, "name that store, or another folder")
        elif None not in (topic, values.get("topic")) and not values["phases"].get(RescuePhase.DECIDE, {}).get("ended"):
            values["topic"] = topic  # Nothing was decided yet: the first name was not the right one.
        elif values.get("topic") != topic:
            problem = "is a rescue of " + ("all topics" if values.get("topic") is None else str(values["topic"]))
            raise InputError(str(folder / FILE), problem, "say the same --topic, or name another folder")
        record = cls(folder, values, now)
        record.save()
        return record

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / FILE

    def show_now(self) -> str:
        """Return the time as the file has it."""
        return _show(self.now())

    def save(self) -> None:
        """Write the file, whole or not at all."""
        path = self.path
        fresh = path.with_name(f".{FILE}.new")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(self.values, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)

    def find_phase(self, phase: RescuePhase) -> dict[str, Any]:
        """Return what a phase has written of itself."""
        facts: dict[str, Any] = self.values["phases"].setdefault(phase.value, {})
        return facts

    def is_done(self, phase: RescuePhase) -> bool:
        """Whether a phase has come to its end."""
        return bool(self.find_phase(phase).get("ended"))

    def end(self, phase: RescuePhase) -> None:
        """Say that a phase has come to its end."""
        self.find_phase(phase)["ended"] = _show(self.now())
        self.save()

    def find_answer(self, question: str) -> str | None:
        """Return what a question was answered with; None: it was not."""
        given = self.values["answers"].get(question)
        return None if given is None else str(given["answer"])

    def take_answer(self, question: RescueQuestion, answer: str) -> None:
        """Keep an answer, with who gave it, and when."""
        runner = name_runner()
        self.values["answers"][question.id] = {
            "question": question.text,
            "answer": answer,
            "at": _show(self.now()),
            "by": f"{runner['user']}@{runner['host']}",
        }
        self.save()

    def add_command(self, command: str, exit_code: int, verdict: str, seconds: float) -> None:
        """Keep what was run, and the seconds that it took."""
        row = {"at": _show(self.now()), "command": command, "exit_code": exit_code, "verdict": verdict}
        row["seconds"] = round(seconds, 1)
        self.values["commands"].append(row)
        self.save()


def read_record(folder: Path) -> dict[str, Any] | None:
    """Return the object of a rescue's file; None: there is none.

    Raises:
        InputError: it cannot be read, or is of another kind.
    """
    path = folder / FILE
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(str(path), f"cannot be read ({error})", "name another folder") from error
    if not isinstance(values, dict) or values.get("schema") != SCHEMA:
        raise InputError(str(path), "is not a record of a rescue", "name another folder")
    return values


def read_answers(path: Path) -> dict[str, str]:
    """Return the answers of a file: a JSON object of question → answer.

    Raises:
        InputError: it cannot be read, or is no such object.
    """
    form = "write a JSON object: question → answer"
    return convert_values(read_json(path, form), dict[str, str], path, form)


def _show(time: datetime) -> str:
    return time.isoformat(timespec="seconds")
