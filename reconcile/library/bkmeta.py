"""What the wheel places as the package `bkmeta`: `reconcile.library` under the name that users know."""

from reconcile.library import *  # noqa: F403 - what __all__ lists
