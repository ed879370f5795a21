"""What a row of RECONSTRUCTION claims, in short words of a violation."""

from collections.abc import Iterable, Sequence

from tests.simulation.row_truth import Row


def short_name(name: str) -> str:
    """Return the last part of a simulated bookie's name."""
    return name.removeprefix("10.0.0.").removesuffix(":3181")


def describe_segments(segments: Iterable[tuple[int, Sequence[str]]]) -> str:
    """Return segments as text."""
    return " ".join(f"{first}:[{','.join(map(short_name, members))}]" for first, members in segments)


def describe_runs(entries: Iterable[int]) -> str:
    """Return entries as runs; of very many the first and the last."""
    runs: list[list[int]] = []
    for entry in sorted(entries):
        if runs and runs[-1][1] + 1 == entry:
            runs[-1][1] = entry
        else:
            runs.append([entry, entry])
    texts = [f"{low}-{high}" if high > low else f"{low}" for low, high in runs]
    return " ".join(texts if len(texts) <= 24 else [*texts[:16], "…", *texts[-6:]])


def describe_claim(row: Row) -> str:
    """Return what a row says of its ledger."""
    if not row:
        return "nothing"
    if row["outcome"] != "restored":
        return f"{row['outcome']}: {row['class']} {row['reason']}, holders {[*map(short_name, row['holders'])]}"
    grades = {name: row["grades"][name] for name in ("ensemble_size", "last_entry", "length", "segments", "state")}
    return (
        f"{row['class']} {row['ensemble_size']}/{row['write_quorum']}/{row['ack_quorum']} {row['state']} last "
        f"{row['last_entry']} length {row['length']} {row['digest']} lac_low {row['lac_low']} acked_high "
        f"{row['acked_high']} {describe_segments((s['first'], s['members']) for s in row['segments'])} {grades} "
        f"alternatives {[(a['field'], a['value']) for a in row['alternatives']]}"
    )
