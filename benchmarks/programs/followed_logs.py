"""Changes of a server's logs, followed to their end: `python -m benchmarks.programs.followed_logs FOLDER ROOT`.

A program of its own that loads nothing else, since it is timed as a whole, beside another that is.
"""

import json
import sys
from pathlib import Path

import pyarrow.compute as pc

from backends.protocols import FeedGap
from backends.zkfiles.feed import ZooKeeperLogFeed

_LEDGER = r"/L[0-9]{4}$"


def main(folder: str, root: str) -> None:
    """Follow from the first transaction to the last one, and count the ledgers that were created."""
    feed = ZooKeeperLogFeed("zk", [Path(folder)], [root], pause_s=0)
    ledgers = rows = 0
    began = False
    for step in feed.follow(0):
        if isinstance(step, FeedGap):
            raise SystemExit(step.why)
        created = step.rows.filter(pc.equal(step.rows["op"], "created"))
        ledgers += pc.sum(pc.match_substring_regex(created["key"], _LEDGER)).as_py() or 0
        rows += step.rows.num_rows
        if began and not step.rows.num_rows:
            break
        began |= bool(step.rows.num_rows)
    feed.close()
    print(json.dumps({"ledgers": ledgers, "rows": rows}))


if __name__ == "__main__":
    main(*sys.argv[1:])
