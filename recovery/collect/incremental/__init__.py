"""The results that a collection keeps, so that the next one of the bookie reads only changed files.

It is a dataset of its own in the inventory's folder (`AGAIN`): fingerprints of files, and the result of reading each. A
result depends on the bytes of its file alone, so a file with the same fingerprint has the same result:

    ledger of index files   taken over if its file, and every entry log that its slots name, are unchanged
    ledger of Db storage    likewise; its slots are compared by a hash, for which a changed database is read
    entry log               if it is unchanged, neither it nor its map is read
    journal                 not read if it is unchanged, and its place before, in or behind the mark is the same

Then everything is merged again. A fingerprint is inode, size, time of content and time of status. A fingerprint counts
only if its times are older than its collection: the file may have changed again within the same tick of the clock. What
damage touched is always read again.
"""
