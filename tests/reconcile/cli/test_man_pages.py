"""The manual's pages, and what shells complete: both from the commands that there are."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from reconcile.cli.main import program
from reconcile.cli.man_pages import make_man_page, walk_commands
from tests.support.command import PATIENCE_S, PROGRAM, commands, environment, process, run


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the pages that the program writes."""
    folder = tmp_path_factory.mktemp("man") / "man1"
    done = process("--man-pages", folder)
    assert (done.code, done.err) == (0, "")
    return folder


def test_every_command_has_its_page_with_every_option(pages: Path) -> None:
    """Groups and the program have one, too; an option stands there as it is typed, an exit code with its meaning."""
    walked = dict(walk_commands("bkmeta", program))
    assert {path.name for path in pages.iterdir()} == {f"{path.replace(' ', '-')}.1" for path in walked}
    for name, command in commands().items():
        page = (pages / f"bkmeta-{name.replace(' ', '-')}.1").read_text().replace("\\-", "-")
        options = [opt for option in command.params if isinstance(option, click.Option) for opt in option.opts]
        assert [option for option in options if option not in page] == []
        assert all(f"\n\\fB{code.value}\\fR\n" in page for code in command.exits)
        assert "\n.SH EXAMPLES\n" in page


def test_man_reads_the_pages_without_a_warning(pages: Path) -> None:
    """As groff sees them; what is printed has the words of --help."""
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("no groff; on Debian: apt-get install groff-base")
    names = sorted(map(str, pages.iterdir()))
    done = subprocess.run([groff, "-man", "-ww", "-Tutf8", "-z", *names], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    printed = subprocess.run(
        [groff, "-man", "-Tascii", "-P-c", "-P-b", "-P-u", str(pages / "bkmeta-plan-ledgers.1")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    words = " ".join(printed.split())
    assert "--few-copies Only ledgers that come back with fewer copies than their records promise." in words
    assert "bkmeta plan ledgers plan --few-copies --ids > few-copies.txt" in words


def test_texts_are_no_macros() -> None:
    """What a line begins with, and what roff gives a meaning, is printed as it is."""

    @click.command(help=".SH is no title\n\n'tis \\fBnot\\fR bold … -x")
    def odd() -> None:
        pass

    page = make_man_page("odd", odd, [])
    assert "\n\\&.SH is no title\n" in page
    assert "\n\\(aqtis \\efBnot\\efR bold \\[u2026] \\-x\n" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--man-pages", "/dev/null/man"], "--man-pages: /dev/null/man: Not a directory"),
        (["--man-pages"], "requires an argument"),
        (["--completion", "tcsh"], "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
        (["--log-format", "xml", "doctor"], "'xml' is not one of 'text', 'json', 'journald'"),
    ],
)
def test_options_of_the_program_that_cannot_be_used(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says what is wrong."""
    done = run(capsys, *words)
    assert (done.code, done.out) == (2, "")
    [line] = [line for line in done.err.splitlines() if line.startswith("Error: ")]
    assert message in line


COMPLETE = """
eval "$(bkmeta --completion bash)"
words=$(complete -p bkmeta); words=${words##*-F }; function=${words%% *}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
$function bkmeta
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["bkmeta", "col"], ["collect"]),
        (["bkmeta", "plan", "led"], ["ledgers"]),
        (["bkmeta", "recover", "--layout", "fl"], ["flat"]),
        (["bkmeta", "--log-format", "jo"], ["journald"]),
        (["bkmeta", "--log-format", "json", "tombstones", "e"], ["expire"]),
    ],
)
def test_bash_completes_by_the_script_that_is_printed(typed: list[str], completed: list[str]) -> None:
    """A real bash evaluates it, and calls what it registered."""
    env = environment(PATH=f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}")
    bash = ["bash", "--norc", "-ec", COMPLETE, "bash", *typed]
    done = subprocess.run(bash, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, completed, "")


@pytest.mark.parametrize(("shell", "words"), [("zsh", "compdef _bkmeta_completion bkmeta"), ("fish", "complete ")])
def test_other_shells_have_a_script(shell: str, words: str) -> None:
    """With the program's own name and variable; a shell that is there reads it, too."""
    done = process("--completion", shell)
    assert (done.code, done.err) == (0, "")
    assert words in done.out
    assert re.search(rf"_BKMETA_COMPLETE={shell}_complete", done.out)
    if (program_of_shell := shutil.which(shell)) is not None:
        subprocess.run([program_of_shell, "-n"], input=done.out, text=True, check=True, timeout=PATIENCE_S)
