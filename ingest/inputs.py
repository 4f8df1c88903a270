"""Finding the input files: what is taken, under which name, by which reader."""

import dataclasses
import glob
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from foundation.errors import ConfigError, CorpusError
from ingest.bad import BAD_NAME, GIVEN_TWICE, NOTHING_MATCHED, UNREADABLE, Bad
from ingest.options import IngestOptions

TEXT_KIND, CODE_KIND, JSONL_KIND, PARQUET_KIND, TFRECORD_KIND = "text", "code", "jsonl", "parquet", "tfrecord"

_FORMATS = {
    ".txt": TEXT_KIND,
    ".md": TEXT_KIND,
    ".jsonl": JSONL_KIND,
    ".ndjson": JSONL_KIND,
    ".parquet": PARQUET_KIND,
    ".tfrecord": TFRECORD_KIND,
    ".tfrecords": TFRECORD_KIND,
}
_COMPRESSIONS = (".gz", ".zst")
_BYTECODE_CACHE = "__pycache__"
_COMPRESSIBLE = (TEXT_KIND, JSONL_KIND, TFRECORD_KIND)


@dataclasses.dataclass(frozen=True)
class InputFile:
    """One file to read."""

    path: str
    """As it is opened, and named in messages."""

    name: str
    """Name of the input's folder and the path below it, with `/`: stable wherever the folder lies. Begins doc_ids."""

    source: str
    """Source of its documents, where no field gives one."""

    kind: str
    """Which reader: one of the kinds above."""

    size: int
    """Bytes."""

    mtime_ns: int


@dataclasses.dataclass
class Discovery:
    """What the inputs hold."""

    files: list[InputFile] = dataclasses.field(default_factory=list)
    """In the order of the inputs, inside a folder sorted by path."""

    bad: list[Bad] = dataclasses.field(default_factory=list)
    ignored: dict[str, int] = dataclasses.field(default_factory=dict)
    """Files that no reader is for, by ending."""

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)


def discover(options: IngestOptions) -> Discovery:
    """Finds every file of the inputs.

    Raises:
      ConfigError: a file given by name that no reader is for.
      CorpusError: two files whose documents would have the same ids.
    """
    from ingest.stdlib import stdlib_files  # This module's classes are what it returns.

    finder = _Finder(options)
    for place in options.inputs:
        finder.add_input(place)
    if options.stdlib:
        finder.add_files(stdlib_files(options.source), "the standard library")
    found = finder.discovery
    _check_names(found.files, options)
    return found


class _Finder:
    def __init__(self, options: IngestOptions):
        self._options = options
        self._out = os.path.realpath(options.out)
        self._taken: dict[str, str] = {}
        self.discovery = Discovery()

    def add_input(self, place: str) -> None:
        """A file, a folder or a glob."""
        if os.path.isdir(place):
            root = Path(place)
            self._add_found(root, self._walk(root), place)
        elif os.path.lexists(place):
            path = Path(place)
            if kind_of(path.name, self._options.extensions) is None:
                raise ConfigError(
                    f"no reader for this file; formats are {' '.join(_FORMATS)} (text, JSON lines and TFRecord also "
                    f"with .gz or .zst) and, in `extensions`, source code. Received: {place!r}"
                )
            self._add_found(path.parent, iter([path]), place)
        elif glob.has_magic(place):
            root = _folder_before_magic(place)
            found = (Path(match) for match in sorted(glob.glob(place, recursive=True)))
            paths = (path for path in found if _BYTECODE_CACHE not in path.parts and not path.is_dir())
            self._add_found(root, (path for path in paths if not self._is_out(path)), place)
        else:
            self._bad(NOTHING_MATCHED, place, "no such file or folder")

    def add_files(self, files: list[InputFile], place: str) -> None:
        """Files that were found elsewhere; `place` is what they come from."""
        if not files:
            self._bad(NOTHING_MATCHED, place, "no file that a reader is for")
        for file in files:
            real = os.path.realpath(file.path)
            if real in self._taken:
                self._bad(GIVEN_TWICE, file.path, f"already taken as {self._taken[real]}")
            else:
                self._taken[real] = file.path
                self.discovery.files.append(file)

    def _add_found(self, root: Path, paths: Iterator[Path], place: str) -> None:
        num_bad = len(self.discovery.bad)
        files: dict[str, InputFile] = {}
        # A link beside the file that it leads to adds nothing: files first, then links to what is not there yet.
        for path in sorted(paths, key=lambda path: (path.is_symlink(), path)):
            real = os.path.realpath(path)
            kind = kind_of(path.name, self._options.extensions)
            if kind is None or (real in files and path.is_symlink()):
                ending = path.suffix if kind is None else "link to a file that is taken"
                self.discovery.ignored[ending] = self.discovery.ignored.get(ending, 0) + 1
            elif (file := self._describe(path, root, kind)) is not None:
                files[real] = file
        if files or len(self.discovery.bad) == num_bad:
            self.add_files(sorted(files.values(), key=lambda file: file.name), place)

    def _describe(self, path: Path, root: Path, kind: str) -> InputFile | None:
        try:
            status = path.stat()
        except OSError as error:
            self._bad(UNREADABLE, str(path), error.strerror or str(error))
            return None
        if not stat.S_ISREG(status.st_mode):
            self._bad(UNREADABLE, str(path), "not a regular file")
            return None
        if not os.access(path, os.R_OK):
            self._bad(UNREADABLE, str(path), "Permission denied")
            return None
        root_name = root.resolve().name or "root"
        below = path.relative_to(root)
        name = "/".join((root_name, *below.parts))
        try:
            name.encode()
        except UnicodeEncodeError:
            self._bad(BAD_NAME, str(path), repr(os.fsencode(path)))
            return None
        source = self._options.source or (below.parts[0] if len(below.parts) > 1 else root_name)
        return InputFile(str(path), name, source, kind, status.st_size, status.st_mtime_ns)

    def _walk(self, root: Path) -> Iterator[Path]:
        """Files below `root`; without hidden ones, bytecode caches and the corpus that is being written."""
        visited: set[str] = set()

        def failed(error: OSError) -> None:
            self._bad(UNREADABLE, str(error.filename), error.strerror or str(error))

        for folder, folders, names in os.walk(root, onerror=failed, followlinks=True):
            real = os.path.realpath(folder)
            if real in visited:
                folders.clear()  # A link that leads back.
                continue
            visited.add(real)
            folders[:] = sorted(
                name
                for name in folders
                if not name.startswith(".") and name != _BYTECODE_CACHE and not self._is_out(Path(folder, name))
            )
            yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))

    def _is_out(self, path: Path) -> bool:
        real = os.path.realpath(path)
        return real == self._out or real.startswith(self._out + os.sep)

    def _bad(self, reason: str, where: str, detail: str) -> None:
        self.discovery.bad.append(Bad(reason, where, detail))


def kind_of(file_name: str, extensions: Sequence[str]) -> str | None:
    """Which reader a file is for, by the end of its name; None if there is none."""
    name = file_name.lower()
    stem, ending = os.path.splitext(name)
    if ending in _COMPRESSIONS:
        kind = _FORMATS.get(os.path.splitext(stem)[1])
        return kind if kind in _COMPRESSIBLE else None
    return _FORMATS.get(ending) or (CODE_KIND if ending in extensions else None)


def _folder_before_magic(pattern: str) -> Path:
    """`a/b` of `a/b/**/c*.txt`."""
    fixed: list[str] = []
    for part in Path(pattern).parts[:-1]:
        if glob.has_magic(part):
            break
        fixed.append(part)
    return Path(*fixed)


def _check_names(files: list[InputFile], options: IngestOptions) -> None:
    """Early, since ids that clash would otherwise be found when everything has been read."""
    paths: dict[str, str] = {}
    for file in files:
        if options.id_field is not None and file.kind not in (TEXT_KIND, CODE_KIND):
            continue
        if file.name in paths:
            raise CorpusError(
                f"two files would give the same doc_id {file.name!r}: {paths[file.name]} and {file.path}; "
                "rename one of their folders, or give the folder that holds both"
            )
        paths[file.name] = file.path
