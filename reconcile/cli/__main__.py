"""The door of the program: while it loads, Ctrl-C ends it without words, as it ends a program in C."""

import signal


def main() -> None:
    """Load the program, then run it; it says itself what being stopped means."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from reconcile.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
