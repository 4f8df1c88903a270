"""Byte counts of several writers add up, whatever part of a line the follower sees."""

from pathlib import Path

from ingest.progress import ProgressFollower, ProgressWriter
from ingest.report import Progress


def test_counts_of_several_writers_add_up(tmp_path: Path) -> None:
    seen: list[Progress] = []
    with ProgressFollower(tmp_path / "progress", 3_000_010, seen.append) as follower:
        for counts in ([10, 1_500_000], [1_499_000, 1_000]):
            writer = ProgressWriter(tmp_path / "progress")
            for count in counts:
                writer.add(count)
            writer.close()
        follower.writing()
    assert seen[-1] == Progress("write", 3_000_010, 3_000_010)


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    seen: list[Progress] = []
    path = tmp_path / "progress"
    follower = ProgressFollower(path, 100, seen.append)
    for text in ("12\n3", "4\n", ""):
        with path.open("a") as file:
            file.write(text)
        follower.tell()
    assert [item.done_bytes for item in seen] == [12, 46, 46]


def test_without_a_callback_nothing_runs(tmp_path: Path) -> None:
    with ProgressFollower(tmp_path / "progress", 0, None):
        assert (tmp_path / "progress").exists()
