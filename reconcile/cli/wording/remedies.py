"""What to do next, with the options of the command line."""

import shlex
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
    Advice.INVENTORIES_OR_ACCEPT_UNSEEN: "give --inventory DIR for each bookie, or accept that they were not read: "
    "--accept-unseen {value}",
    Advice.RESTORE_OR_ACCEPT_LEFT_OUT: "have the ledgers held or restored with those bookies, or accept that they go: "
    "--accept-left-out {value}",
    Advice.ACCEPT_NONE_LEFT_OUT: "leave out --accept-left-out",
    Advice.MAKE_PLAN_FOR_STORE: "make a plan for this store: bkmeta recover",
    Advice.NAME_NO_ACL: "leave --acl out",
    Advice.MEND_AND_RESUME: "fix that, then run it again with --resume",
    Advice.RESUME: "go on with it: --resume",
    Advice.NAME_OTHER_JOURNAL: "name another folder with --journal",
    Advice.SEE_WHAT_IS_LEFT: "run it again without --confirm, and see what is left",
    Advice.STOP_OR_ACCEPT_UNFROZEN: "stop them until apply has ended, or accept that: --accept-unfrozen",
    Advice.FREEZE_OR_ACCEPT_UNFROZEN: "stop them or freeze first (bkmeta freeze), or accept that: --accept-unfrozen",
    Advice.COUNT_LOCKS_AGAIN: "make the plan again with this store (--metadata): it counts the locks that are there",
    Advice.NAME_ACL_OF_LEDGERS: "name one: --acl scheme:id:perms,… as ledgers of this cluster have it",
    Advice.FREEZE_ALL: "freeze all: leave --deletes-only out",
    Advice.FREEZE_OR_UNDO_REPLACED: "freeze it first (bkmeta freeze; a store without ACLs cannot be), or put back "
    "only what was replaced: --replaced-only",
    Advice.END_UNDO: "end it: bkmeta undo {value}; then apply with a journal of its own",
    Advice.APPLY_WITH_NEW_JOURNAL: "to apply again, leave --resume out and name a new journal: --journal {value}",
    Advice.SCRUTINIZE_WAVE: "scrutinise it: --wave {value} --resume, with --inventory DIR or --wire",
    Advice.FIX_OR_ACCEPT_FINDINGS: "fix them, then apply that wave with --resume; or accept them: "
    "--accept-findings {value}",
    Advice.WAIT_FOR_REPLICATION: "wait until they are re-replicated, which a freeze does not let happen; "
    "or accept that: --accept-marked {value}",
    Advice.APPLY_WAVES_BEFORE: "apply them first, in their order; one that was begun with --resume",
    Advice.REMOVE_REHEARSAL: "remove it with --remove, or name another root",
    Advice.END_APPLY: "let it come to its end first: bkmeta apply … --resume",
    Advice.RECOVER_WITH_STORE: "recover with --metadata, then edit that plan",
    Advice.APPROVE: "have each of them sign it, bkmeta approve {value} --key KEY --out FILE, and add --approval FILE "
    "for each",
    Advice.SIGN_CERTIFICATE: "add --sign-key KEY, a key that the policy names; bkmeta delete policy show lists them",
    Advice.NAME_ACL_ENTRIES: "name an ACL: --acl scheme:id:perms,…",
}


def describe_error(error: ReconcileError) -> str:
    """Return what an error says, its remedy with the options of the command line."""
    if not isinstance(getattr(error, "remedy", None), Remedy):
        return str(error)
    subject, problem, _ = error.args
    return f"{subject}: {problem}; {describe_error_remedy(error)}"


def describe_error_remedy(error: BaseException) -> str:
    """Return what an error advises to do next, with the options of the command line; empty: nothing."""
    remedy = getattr(error, "remedy", "")
    if isinstance(remedy, Remedy):
        return _WORDS[remedy.advice].format(value=shlex.quote(str(remedy.value)))
    return str(remedy)
