"""What all commands have in common: help, JSON, colours, progress, completion, and how quickly they answer."""

import json
import os
import pty
import re
import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest

from reconcile.cli.command import Exit
from reconcile.cli.main import COMMANDS
from reconcile.cli.options import LAYOUTS
from recovery.codecs.store import Layout
from tests.simulation.bookie_dir import BookieDir, make_bookie, record, write_journal
from tests.support.command import PATIENCE_S, PROGRAM, commands, environment, process, run

pytestmark = pytest.mark.long

NAMES = sorted(commands())
HEAVY = ("numpy", "pyarrow", "pandas", "pyspark", "kazoo", "rocksdict", "jinja2", "rich", "google.protobuf")
ESCAPE = "\x1b"
JOURNAL = 0x18BCFE56801

each_command = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def bookie(tmp_path: Path) -> BookieDir:
    """A small bookie's folders."""
    return make_bookie(tmp_path / "bookie", {5: [0, 1, 2], 6: [1, 4, 7]})


def folders(made: BookieDir) -> list[str]:
    """The options that name a bookie's folders."""
    named = [("--ledger-dir", made.ledger_dirs), ("--journal-dir", made.journal_dirs), ("--index-dir", made.index_dirs)]
    return [word for option, paths in named for path in paths for word in (option, str(path))]


@each_command
def test_every_command_says_how_it_is_used(name: str) -> None:
    """Each takes --json, --short and --progress, each option has help, and there is one example of the command itself.

    Where ledgers are named their halves are, too, by both options; where they are listed, the scope.
    """
    command = commands()[name]
    options = {name for parameter in command.params for name in parameter.opts}
    assert {"--json", "--short", "--progress"} <= options
    names_ledgers = any(parameter.name in ("ledger", "ledgers", "dropped") for parameter in command.params)
    both = {"--ledger-scope-id", "--ledger-qualified-name"}
    lists_a_scope = name in {"tombstones list", "scrutiny list"}
    assert both & options == (both if names_ledgers else {"--ledger-scope-id"} if lists_a_scope else set())
    assert [p.name for p in command.params if isinstance(p, click.Option) and not p.help] == []
    assert re.match(rf"Example: (\w+=\S+ )?bkmeta {name}\b", command.epilog or "")
    assert command.help


@each_command
def test_every_command_declares_its_exit_codes(name: str) -> None:
    """Each says when it ends with 0 and with 2, in the order of the codes, and nothing of codes that all have."""
    codes = list(commands()[name].exits)
    assert codes == sorted(codes)
    assert {Exit.DONE, Exit.USAGE} <= set(codes) <= set(range(7))


@each_command
def test_help_fits_and_its_example_can_be_copied(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No line is longer than the terminal, and the example's lines are one line for a shell, unchanged."""
    done = run(capsys, *name.split(), "--help")
    assert done.code == 0
    text = done.out[done.out.index("Example: ") :].split("\n\n")[0]
    assert re.sub(r" \\\n *", " ", text).strip() == (commands()[name].epilog or "").split("\n\n")[0]
    assert max(map(len, done.out.splitlines())) <= 100
    for code in commands()[name].exits:
        assert re.search(rf"^  {code.value}  ", done.out, re.MULTILINE)


def test_the_list_of_commands_is_what_there_is() -> None:
    """Every command of the list can be loaded, by the name that it is listed under."""
    assert sorted({name.split()[0] for name in NAMES}) == sorted(COMMANDS)


def test_help_loads_none_of_the_libraries_that_the_work_needs() -> None:
    """Help of the program and of any command comes without Arrow, ZooKeeper, Spark or a page's templates."""
    light = sorted(set(NAMES) - {"freeze", "thaw"})
    code = (
        "import sys\n"
        "from reconcile.cli.main import main\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        main([*name.split(), '--help'])\n"
        "    except SystemExit as ended:\n"
        "        assert ended.code == 0, name\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code, "", *light], check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)


def test_help_takes_less_than_three_tenths_of_a_second() -> None:
    """`bkmeta --help` and the version, counted in the processor's time: what else the machine does is not ours."""
    for argument in ("--help", "--version"):
        spent = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert process(argument).code == 0
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert min(spent) < 0.3


def test_what_is_refused_is_refused_before_libraries_are_loaded(tmp_path: Path) -> None:
    """A folder that is not there is said without pandas, Spark, or a page's templates."""
    code = (
        "import sys\n"
        "from reconcile.cli.main import main\n"
        "try:\n"
        "    main(['collect', '--ledger-dir', 'nowhere', '--out', 'x'])\n"
        "except SystemExit as ended:\n"
        "    assert ended.code == 2\n"
        "assert not {'pandas', 'pyspark', 'jinja2', 'kazoo', 'rich'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, capture_output=True, timeout=PATIENCE_S)


def test_the_layouts_that_help_lists_are_the_layouts() -> None:
    """They are written down twice, so that help needs no library."""
    assert tuple(str(layout) for layout in Layout) == LAYOUTS


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["collect", "--nonsense"], "No such option"),
        (["collect", "--out", "x"], "either --bookie-conf"),
        (["capture", "--metadata", "nonsense", "--out", "x"], "not a store URI"),
        (["plan", "show", "nowhere"], "no such folder"),
        (["nonsense"], "No such command"),
    ],
)
def test_an_error_is_an_object_for_programs(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json the last line says what is wrong, with the keys of every result; stderr stays empty."""
    done = run(capsys, *arguments, "--json")
    assert done.err == ""
    assert words in done.result["verdict"]
    assert done.result["verdict"].endswith(done.result["next"])
    assert {key: done.result[key] for key in done.result if key not in ("verdict", "next")} == {
        "schema": "bkmeta.error/1", "exit_code": 2, "counts": {}, "coverage": {}
    }  # fmt: skip
    assert done.code == 2


@each_command
def test_every_command_gives_programs_an_object_for_what_it_refuses(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown option is exit code 2 with one object, whichever command it is."""
    done = run(capsys, *name.split(), "--json", "--no-such-option")
    assert (done.code, done.result["exit_code"], done.result["schema"]) == (2, 2, "bkmeta.error/1")


def test_nothing_but_text_goes_into_a_pipe(bookie: BookieDir, tmp_path: Path) -> None:
    """Results, errors and help have no escape codes in a pipe, and there is no progress."""
    terminal = environment(TERM="xterm-256color", COLORTERM="truecolor", FORCE_COLOR="1", CLICOLOR_FORCE="1")
    done = process("collect", *folders(bookie), "--out", tmp_path / "i", env=terminal)
    assert (done.code, done.err) == (0, "")
    for other in (process("collect", "--out", "x", env=terminal), process("collect", "--help", env=terminal)):
        assert ESCAPE not in other.out + other.err
    assert ESCAPE not in done.out


def test_progress_as_events(bookie: BookieDir, tmp_path: Path) -> None:
    """--progress json: one object a line on stderr, in which what is done never exceeds all; stdout has the result."""
    done = process("collect", *folders(bookie), "--out", tmp_path / "i", "--progress", "json", "--json")
    events = [json.loads(line) for line in done.err.splitlines()]
    assert {event["event"] for event in events} == {"progress"}
    assert {"journals", "index", "logs", "inventory"} <= {event["stage"] for event in events}
    assert all(set(event) == {"event", "stage", "done", "total", "unit"} for event in events)
    assert all(0 <= event["done"] <= event["total"] or not event["total"] for event in events)
    assert len(done.out.splitlines()) == 1
    assert done.result["schema"] == "bkmeta.collect/1"


def on_a_terminal(arguments: list[object], env: dict[str, str]) -> tuple[int, str]:
    """Run the program on a terminal of its own; return its exit code and everything that it drew."""
    child, terminal = pty.fork()
    if child == 0:  # pragma: no cover - another program from here on
        os.execve(PROGRAM, [str(PROGRAM), *map(str, arguments)], env)  # noqa: S606 - the terminal is the point
    drawn = b""
    while True:
        try:
            block = os.read(terminal, 1 << 16)
        except OSError:  # what Linux says at the end of a terminal
            break
        drawn += block
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), drawn.decode()


def test_progress_on_a_terminal(bookie: BookieDir, tmp_path: Path) -> None:
    """A bar with a share and the time that is left is drawn while it works, and is gone when the result is shown."""
    write_journal(bookie, JOURNAL, [record(5, 0)])
    with bookie.journal(JOURNAL).open("r+b") as journal:
        journal.truncate(40_000_000)  # of which nothing is on the disk, and all is read
    env = environment(TERM="xterm", COLUMNS="100", NO_COLOR=None)
    code, drawn = on_a_terminal(["collect", *folders(bookie), "--max-mb-s", "20", "--out", tmp_path / "i"], env)
    assert code == 0
    assert re.search(r"collecting journals .*[1-9]\d?% .*\d:\d\d:\d\d", drawn)
    drawing, _, result = drawn.partition("bookie 10.")
    assert ESCAPE in drawing
    assert "collecting" not in result


def test_colours_only_where_they_are_wanted(bookie: BookieDir, tmp_path: Path) -> None:
    """On a terminal the verdict has a colour; with NO_COLOR, or on a dumb terminal, nothing has."""
    look: list[object] = ["inspect", bookie.log(), "--progress", "none"]
    colour = re.compile(r"\x1b\[[0-9;]*m")
    assert colour.search(on_a_terminal(look, environment(TERM="xterm", NO_COLOR=None))[1])
    for quiet in (environment(TERM="xterm", NO_COLOR="1"), environment(TERM="dumb", NO_COLOR=None)):
        assert ESCAPE not in on_a_terminal(look, quiet)[1]


def test_long_lines_are_cut_between_words_on_a_terminal_only(tmp_path: Path) -> None:
    """On a narrow terminal no word is torn and no line is longer; in a pipe a line stays a line."""
    words = ["plan", "show", tmp_path / ("nowhere-" * 8)]
    code, drawn = on_a_terminal(words, environment(TERM="xterm", COLUMNS="60"))
    lines = drawn.splitlines()
    assert (code, len(lines) > 1) == (2, True)
    assert all(len(line) <= 60 or " " not in line.strip() for line in lines)
    assert " ".join(line.strip() for line in lines) == process(*words).err.strip()


def test_completion_knows_commands_and_options() -> None:
    """A shell can complete command names, and options of a command; the script for bash is printed on demand."""

    def completed(line: str) -> str:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_BKMETA_COMPLETE": "bash_complete"}
        return process(env=environment(**words)).out

    assert completed("bkmeta col").splitlines() == ["plain,collect"]
    assert completed("bkmeta plan sp").splitlines() == ["plain,split"]
    assert "plain,--expect-bookies" in completed("bkmeta recover --expect").splitlines()
    assert completed("bkmeta recover --layout fl").splitlines() == ["plain,flat"]
    script = process(env=environment(_BKMETA_COMPLETE="bash_source"))
    assert script.code == 0
    assert "complete " in script.out


@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["no-such-command"], 2)])
def test_what_libraries_do_when_a_process_ends_changes_no_exit_code(words: list[str], code: int) -> None:
    """Where C++ would abort at the end, as Arrow's threads may, all was said, and Python's own end was gone through."""
    program = (
        "import atexit, ctypes, sys\n"
        "from reconcile.cli import __main__ as door, main as loaded\n"
        "library = ctypes.CDLL(None)\n"
        "library.__cxa_atexit(library.abort, None, None)\n"
        "run = loaded.main\n"
        "loaded.main = lambda: (atexit.register(print, 'tidied up'), run())\n"
        "door.main()\n"
    )
    arguments = [sys.executable, "-c", program, *words]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == code, done.stderr
    assert done.stdout.endswith("tidied up\n")
    assert ("bkmeta" in done.stdout) == (code == 0)
    assert ("no-such-command" in done.stderr) == (code != 0)


def test_a_reader_that_goes_away_is_no_fault() -> None:
    """`bkmeta … | head -1`: no complaint."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [PROGRAM, "collect", "--help"],
        stdout=write,
        stderr=subprocess.PIPE,
        env=environment(),
        timeout=PATIENCE_S,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [("plan", "--help"), ("doctor", "--json")])
def test_a_result_that_cannot_be_printed_is_a_failure(arguments: tuple[str, ...], unbuffered: str) -> None:
    """A full disk under stdout is exit code 1 and one message."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [PROGRAM, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment() | {"PYTHONUNBUFFERED": unbuffered},
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
