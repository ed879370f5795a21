"""The history of runs survives what disks do to it."""

from pathlib import Path

from reconcile.service.runs.history import FILE, RunPoint, add_point, read_points


def test_a_line_that_was_cut_off_takes_no_other_with_it(tmp_path: Path) -> None:
    """Neither one that a full disk cut, nor bytes that are no text."""
    add_point(tmp_path, RunPoint("2026-01-01T00:00:00+00:00", 0, "first"))
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'\xff\xfe{"at": "2026-01-0')
    for verdict in ("second", "third"):
        add_point(tmp_path, RunPoint("2026-01-02T00:00:00+00:00", 0, verdict))
    assert [point.verdict for point in read_points(tmp_path, 10)] == ["first", "second", "third"]
