"""What to do next, with the options of the command line."""

from collections.abc import Mapping
from typing import Final

from reconcile.errors import Advice, ReconcileError, Remedy

_WORDS: Final[Mapping[Advice, str]] = {
    Advice.CONFIRM: "review it, then add: --confirm {value}",
    Advice.SEE_WAVES: "see its waves: bkmeta plan show; bkmeta plan split makes some",
    Advice.APPLY_AT_OWN_ROOT: "apply it there; to try it elsewhere: bkmeta rehearse",
    Advice.RECOVER_OR_ACCEPT_UNSEEN: "collect them and recover again, or accept that: --accept-unseen {value}",
    Advice.ACCEPT_NONE_UNSEEN: "leave out --accept-unseen",
    Advice.NAME_ACL: "name them in the plan: bkmeta plan edit --acl-of catalog:///DIR, or --acl SPEC",
    Advice.NAME_FREEZE_JOURNAL: "name its folder with --journal",
    Advice.SHOW_THAT_NONE_IS_STORED: "show with --inventory DIR, for each bookie, that they hold none; "
    "else restore first",
    Advice.RESTORE: "restore or hold them",
    Advice.RESTORE_OR_ACCEPT_ABSENT: "restore or hold them, or accept that they go: --accept-absent {value}",
    Advice.ACCEPT_NONE_ABSENT: "leave out --accept-absent",
    Advice.COLLECT_OR_ACCEPT_UNSEEN: "collect them and restore or hold that, or accept that it goes: "
    "--accept-unseen {value}",
    Advice.INVENTORIES_OR_ACCEPT_UNSEEN: "give --inventory DIR for each bookie, or accept that nobody looked: "
    "--accept-unseen {value}",
    Advice.RESTORE_OR_ACCEPT_LEFT_OUT: "have the ledgers held or restored with those bookies, or accept that they go: "
    "--accept-left-out {value}",
    Advice.ACCEPT_NONE_LEFT_OUT: "leave out --accept-left-out",
    Advice.MAKE_PLAN_FOR_STORE: "make a plan for this store: bkmeta recover",
    Advice.NAME_NO_ACL: "leave --acl out",
}


def word_error(error: ReconcileError) -> str:
    """Return what an error says, its remedy with the options of the command line."""
    remedy = getattr(error, "remedy", None)
    if not isinstance(remedy, Remedy):
        return str(error)
    subject, problem, _ = error.args
    return f"{subject}: {problem}; {_WORDS[remedy.advice].format(value=remedy.value)}"
