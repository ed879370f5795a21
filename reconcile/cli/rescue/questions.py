"""The questions of a rescue: each with what is known, what an answer costs, and a recommendation."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from reconcile.cli.rescue.copies import FetchedBookie, Gap
from reconcile.cli.rescue.record import RescueQuestion
from reconcile.words import count_noun, list_names

_LIKELY: Final = 0.5
"""Share of the evidence from which on quorums are asked about."""
_SHOWN: Final = 5
"""Things that are named of many."""
_SESSIONS: Final = 3
"""Sessions that are named before one is asked about."""
_PASSES: Final = "bookies collect at each pass (gcWaitTime, 10 minutes by default)"
AGAIN: Final = "again"
"""Answers that a bookie which was not collected can be."""
NONE_OF_THESE: Final = "none"
"""Answers that no id which is known is a bookie's."""
_COMES_BACK: Final = {
    "back": "its ledgers are guarded: readable, every copy kept, to be settled when it is back",
    "gone": "what only it had is given up, by name, in the plan; nothing waits for it",
}


def ask_what_happened(
    ledgers: int, seen: Mapping[str, Any], history: Mapping[str, Any], *, can_freeze: bool
) -> RescueQuestion:
    """Return the question what kind of disaster it is, of a store that lists ledgers.

    Args:
        ledgers: that it lists.
        seen: what preflight says.
        history: what undelete says of sessions that deleted ledgers which the store lacks; empty: there is none.
        can_freeze: whether the store has rights.
    """
    kept = "nothing is stopped" if can_freeze else "etcd cannot be frozen, so bookies are stopped if you say so"
    known = [f"the store lists {count_noun(ledgers, 'ledger')}", f"preflight: {seen['verdict']}"]
    sessions = history.get("sessions", [])
    known += [f"by the history {_describe_deletes(row)}" for row in sessions[:_SESSIONS]]
    recommended = "lost" if seen.get("level") == "critical" else None
    if sessions and history["coverage"]["complete"]:
        known.append("the history has no gap, so their records come back byte for byte")
        known.append("if the store was put back from an older copy, its history is that of the copy: answer lost then")
        recommended = "deletes"
    return RescueQuestion(
        "kind",
        "what happened?",
        tuple(known),
        {
            "lost": "the store was lost, emptied, or put back from an older copy: every bookie is stopped at once",
            "deletes": f"ledgers of a live cluster were deleted by mistake: they come back; {kept}",
        },
        recommended,
    )


def ask_whether_lost(verdict: str, other_roots: Sequence[str]) -> RescueQuestion:
    """Return the question whether a store is lost that was not seen empty, or that may be another cluster's.

    Args:
        verdict: of preflight.
        other_roots: what bookies' configurations name instead of this root; empty: it was not seen to be empty.
    """
    known = other_roots or ("while no bookie can list it either, none deletes",)
    return RescueQuestion(
        "store",
        "no bookie's configuration that was read names this root: is it theirs, and lost?"
        if other_roots
        else "the store was not seen to be empty: is it lost?",
        (f"preflight: {verdict}", *known),
        {
            "no": "it ends here, and nothing is stopped; make the store answer or correct the URI, then run this again",
            "lost": "every bookie is stopped at once; before the restore a store must answer at this URI",
        },
        "no",
    )


def ask_to_freeze(ledgers: int) -> RescueQuestion:
    """Return the question whether deletes are frozen on a cluster that clients write to."""
    return RescueQuestion(
        "freeze",
        "freeze the deletes of bookies until all is back?",
        (f"the store lists {count_noun(ledgers, 'ledger')}", _PASSES),
        {
            "freeze": "bookies delete nothing and replication waits, until the thaw; clients go on to create, write, "
            "read and delete ledgers",
            "no": "what bookies collect before it is back is gone",
        },
        "freeze",
    )


def ask_to_stop(registered: int, named: int) -> RescueQuestion:
    """Return the question whether bookies are stopped on a cluster that clients write to, and that cannot be frozen.

    Args:
        registered: bookies in the store.
        named: bookies in the file of hosts.
    """
    return RescueQuestion(
        "stop",
        "etcd cannot be frozen: stop every bookie until all is back?",
        (
            f"the store knows {count_noun(registered, 'bookie')}, the file of hosts {named}",
            _PASSES,
        ),
        {
            "stop": "nothing is deleted; no client reads or writes until they are started again",
            "no": "clients go on; what bookies collect before it is back is gone",
        },
        "stop",
    )


def ask_for_host(name: str, error: Exception) -> RescueQuestion:
    """Return the question whether a bookie is off whose host was not reached."""
    return RescueQuestion(
        f"host {name}",
        f"{error}. Is its bookie certainly off, and will it stay off?",
        (),
        {
            "no": "it ends here: a bookie that runs deletes; make the host reachable, then run this again",
            "down": "it goes on without that host; its disks count as missing",
        },
        "no",
    )


def ask_for_disks(item: FetchedBookie) -> RescueQuestion:
    """Return the question for a bookie that was not collected, or whose missing part is not known."""
    text = f"{item.name}: {item.verdict}. May what is missing come back?"
    if item.bookie is not None:
        return RescueQuestion(f"disks of {item.name}", text, (), _COMES_BACK, "back")
    costs_again = "it ends here; give the host the program (`program`, `copy`) or its disks, then run this again"
    choices = {AGAIN: costs_again, **_COMES_BACK}
    known = ("the program did not run there: its disks were not read",) if item.is_unread else ()
    return RescueQuestion(f"disks of {item.name}", text, known, choices, AGAIN if item.is_unread else "back")


def ask_for_folder(item: FetchedBookie, gap: Gap) -> RescueQuestion:
    """Return the question for one folder of a bookie whose other_roots were read."""
    problem = "is missing" if gap.is_missing else "was not read whole"
    text = f"folder {gap.path} of {item.name} {problem}: may it come back?"
    return RescueQuestion(f"folder {gap.path} of {item.name}", text, (item.verdict,), _COMES_BACK, "back")


def ask_for_id(name: str, left: Sequence[str], *, is_only: bool) -> RescueQuestion:
    """Return the question for the id of a bookie that neither its disks nor the file of hosts name.

    Args:
        name: of the bookie.
        left: ids of the snapshots that no other bookie has.
        is_only: whether one id is left, and one bookie has none.
    """
    text = f"what is the id of {name}, as ledger metadata names it?"
    if not left:
        return RescueQuestion(f"id of {name}", text, ("the snapshots name no bookie that is not known already",))
    known = (
        f"the snapshots name {list_names(left)}, and no other host in the file has "
        + ("it" if len(left) == 1 else "these"),
        "if the file of hosts lacks a bookie, the id of that one is among them, too",
    )
    cost = f"{name} counts as this bookie: what only it had is guarded, or given up if its disks are gone"
    choices = dict.fromkeys(left, cost)
    choices[NONE_OF_THESE] = "it ends here; write the id in the file of hosts, then run this again"
    return RescueQuestion(f"id of {name}", text, known, choices, left[0] if is_only else None)


def ask_for_session(row: Mapping[str, Any]) -> RescueQuestion:
    """Return the question for the deletes of a session; only a plan of `recover` can hold them until later."""
    name = row["session"] or "none"
    choices = {
        "mistake": "the last record of each is written, byte for byte",
        "wanted": "they stay deleted, and bookies delete their data",
    }
    can_wait = "on_bookies" in row
    if can_wait:
        choices["later"] = "they are held: their data is kept, and no client reads them"
    return RescueQuestion(
        f"session {name}",
        f"{_describe_deletes(row)}: a mistake?",
        (f"{row['on_bookies']} of them are on bookies",) if can_wait else (),
        choices,
        "later" if can_wait else None,
    )


def _describe_deletes(row: Mapping[str, Any]) -> str:
    session = f"session {row['session']}" if row["session"] else "an unknown session"
    span = f"from {row['first_at']} to {row['last_at']}"
    if not row["first_at"]:
        span = f"in transactions {row['first_txn']} to {row['last_txn']}"
    return f"{session} deleted {count_noun(row['ledgers'], 'ledger')} {span}"


def ask_for_quorums(plan: Mapping[str, Any]) -> RescueQuestion | None:
    """Return the question for the quorums, where ledgers wait for them and most of the evidence names some."""
    waiting = sum(plan[kind].get("source_incomplete", 0) for kind in ("reasons", "doubts"))
    likely = max(plan["prior"], key=lambda row: row["weight"], default=None)
    if not waiting or likely is None or likely["weight"] < _LIKELY:
        return None
    name = f"{likely['ensemble']}/{likely['write']}"
    ensemble, write = likely["ensemble"], likely["write"]
    choices = {
        f"{name}/{ack}": f"ensemble {ensemble}, write quorum {write}, ack quorum {ack}, all of them"
        for ack in range(write, 0, -1)
    }
    return RescueQuestion(
        "quorums",
        f"were ledgers written with ensemble and write quorum {name}, as {likely['weight']:.0%} of the evidence says?",
        (f"{count_noun(waiting, 'ledger')} do not show theirs by themselves",),
        {**choices, "unknown": "they stay guarded, or held"},
        "unknown",
    )


def ask_for_passwords(ledgers: int, keys: int, file: str | None) -> RescueQuestion:
    """Return the question for passwords, where ledgers open with none of the candidates.

    Args:
        ledgers: such ledgers.
        keys: different master keys of theirs.
        file: of the candidates; None: none was named.
    """
    opens = "opens" if ledgers == 1 else "open"
    known = [f"they have {count_noun(keys, 'password')}, known by the hash of the key that bookies store"]
    choices = {"none": "their records come back without a password: clients that know it read them all the same"}
    if file is not None:
        known.append(f"candidates are in {file}, one a line")
        choices = {"added": f"you added some to {file}: the plan is made again with them", **choices}
    else:
        known.append('name a file of candidates: passwords = "FILE" in [incident], then run this again')
    return RescueQuestion(
        "passwords",
        f"{count_noun(ledgers, 'ledger')} {opens} with none of the known passwords: is there another?",
        tuple(known),
        choices,
        "none",
    )


def ask_for_rights(created: int, lacking: int, named: Mapping[str, int], secured: str) -> RescueQuestion:
    """Return the question which rights the records get that no snapshot names any for.

    Args:
        created: keys that the plan creates.
        lacking: of these, keys without rights of their own.
        named: rights → keys that have them in the snapshot.
        secured: what rights the store has of its own, for people; empty: it is open.
    """
    known = [f"the snapshot has the rights of {created - lacking} of {count_noun(created, 'key')}"]
    known += [f"  {count} have {rights}" for rights, count in sorted(named.items(), key=lambda item: -item[1])[:3]]
    known += [secured] if secured else []
    known.append("write scheme:id:perms,…; what the snapshot has rights of keeps them")
    likely = max(named, key=lambda rights: named[rights], default=None)
    text = f"the store is secured: which rights must the other {count_noun(lacking, 'key')} have?"
    return RescueQuestion("rights", text, tuple(known), {}, likely)


def ask_for_older_ledgers(ids: int) -> RescueQuestion:
    """Return the question what becomes of the older ledgers of ids that were given out twice."""
    return RescueQuestion(
        "older ledgers",
        f"{count_noun(ids, 'id')} of two ledgers: the store has the record of the younger one, and only disks have "
        "the older one. Save the entries of the older ones before bookies start?",
        ("once bookies run, they collect the older copies when the younger ledger is trimmed or deleted",),
        {
            "export": "every bookie's entries of these ids are written to older/ of this folder",
            "saved": "you saved them by yourself",
            "lost": "what only the older ones had is given up, by name, in the plan",
        },
        "export",
    )


def ask_for_left_out(copies: Sequence[str], ledgers: int) -> RescueQuestion:
    """Return the question what becomes of copies that records leave out.

    Args:
        copies: each in words.
        ledgers: that they are of.
    """
    return RescueQuestion(
        "left out",
        f"{count_noun(len(copies), 'copy', 'copies')} of {count_noun(ledgers, 'ledger')} are on bookies that the "
        "records do not name, with entries that some named bookie lacks. Save the entries of these ledgers first?",
        (
            *copies[:_SHOWN],
            "no client reads such a copy; bookies delete it after the thaw, when they look for too many",
        ),
        {
            "export": "every bookie's entries of these ledgers are written to left-out/ of this folder",
            "saved": "you saved them by yourself",
            "lost": "what only these copies have is given up",
        },
        "export",
    )


def ask_for_unsaved(folder: str, lacking: Sequence[str]) -> RescueQuestion:
    """Return the question whether to go on though bookies may have more of some ledgers than was saved in a folder."""
    return RescueQuestion(
        f"{folder}, not all saved",
        f"{count_noun(len(lacking), 'bookie')} may have more of these ledgers than was saved in {folder}/. Go on?",
        tuple(lacking),
        {
            "no": "it ends here; repair what is in the way, then run this again",
            "yes": "what was not saved is given up: bookies may delete it",
        },
        "no",
    )


def ask_for_adoption(ledgers: int) -> RescueQuestion:
    """Return the question whether topics get the ledgers that they made after the snapshot."""
    return RescueQuestion(
        "adopt",
        f"{count_noun(ledgers, 'ledger')} came after the snapshot, and their records name their topics: append them?",
        ("a topic whose node does not name a ledger serves none of its messages",),
        {
            "yes": "each is appended to the topic that its record names, as far as that is possible",
            "no": "they come back, and no reader finds them until a topic names them: plan edit --adopt",
        },
        "yes",
    )


def ask_for_the_silent(silent: list[str]) -> RescueQuestion:
    """Return the question whether bookies are off that have no process on hosts that were reached."""
    return RescueQuestion(
        "bookies off",
        f"no process of the bookie was found on {count_noun(len(silent), 'host')}: {list_names(silent)}. "
        "Are these bookies certainly off?",
        ("a bookie is found by the text of `process` in the command line of its Java; without the key, by `conf`",),
        {
            "no": "it ends here: a bookie that runs deletes; give the host another `process`, then run this again",
            "off": "it goes on: their disks are collected, and they are started in the last step",
        },
        "no",
    )


def ask_to_go_on(name: str, verdict: str) -> RescueQuestion:
    """Return the question whether to go on where not every ledger was read as the plan has it."""
    return RescueQuestion(
        name,
        "not every ledger is as the plan has it. Go on?",
        (verdict,),
        {"no": "it ends here; see why, then run this again", "yes": "it goes on to the next step"},
        "no",
    )


def ask_to_go_on_unread(name: str, read: Mapping[str, Any], *, is_last: bool) -> RescueQuestion:
    """Return the question whether to go on where some ledgers could not be read back at all.

    Args:
        name: of the question.
        read: what verify says.
        is_last: whether the thaw is what comes next.
    """
    coverage = read["coverage"]
    known = [f"{bookie} cannot be asked" for bookie in coverage["without_disks"]]
    known += [f"{bookie}: {why}" for bookie, why in coverage["unresolved"].items()]
    known += [f"{bookie} was not read whole" for bookie in coverage["incomplete"]]
    known_first = known[:_SHOWN] + ([f"and {len(known) - _SHOWN} more"] if len(known) > _SHOWN else [])
    goes_on = "bookies start, and all is read again over the wire"
    thawed = "the thaw is made: from then on bookies delete what has no record, and these ledgers were not read"
    return RescueQuestion(
        name,
        "some ledgers could not be read back. Go on?",
        (read["verdict"], *known_first),
        {
            "no": "it ends here" + (", frozen" if is_last else "") + "; make these bookies answer, then run this again",
            "yes": thawed if is_last else goes_on,
        },
        "no",
    )
