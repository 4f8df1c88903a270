"""A second folder of the same files, without a second copy of their bytes."""

import os
import shutil
from pathlib import Path


def link_tree(source: Path, target: Path, without: str | None = None) -> None:
    """Fills `target` with links to the files of `source`; where links are not possible, with copies.

    For files that nothing changes once they are written: the one folder stays whole when the other is removed.

    Args:
      without: name of a file at the top that is left out.
    """

    def ignored(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if name == without and Path(folder) == source]

    shutil.copytree(source, target, copy_function=_link_or_copy, dirs_exist_ok=True, ignore=ignored)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
