"""Finding the input files: what is taken, under which name, by which reader."""

import dataclasses
import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from foundation.errors import ConfigError, CorpusError
from ingest.bad import BAD_NAME, GIVEN_TWICE, NOTHING_MATCHED, UNREADABLE, Bad
from ingest.options import IngestOptions
from ingest.span import is_ingests_own

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
_SHARD_OF_TFRECORDS = re.compile(r"(\.tfrecords?)-\d+-of-\d+(?=$|\.gz$|\.zst$)")
"""`train.tfrecord-00000-of-00064`, as TensorFlow's data sets name their files."""

_HIDDEN = "hidden"
_LINK = "link to a file that is taken"


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
    """Files that no reader is for, by ending; in folders also what is `hidden`, each file or folder once."""

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
            self._add_found(root, self._matched(place, root), place)
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
        # A way through a link to a file that is there without adds nothing: files first, then what only links lead to.
        for path in _links_last(root, paths):
            real = os.path.realpath(path)
            kind = kind_of(path.name, self._options.extensions)
            if kind is None or real in files:
                self._ignore(path.suffix if kind is None else _LINK)
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

    def _matched(self, pattern: str, root: Path) -> Iterator[Path]:
        """Files that a glob matches, and what is below the folders that it matches, as if the shell had given them."""
        visited: set[str] = set()
        for path in _links_last(root, map(Path, glob.glob(pattern, recursive=True))):
            if _BYTECODE_CACHE in path.parts or self._is_own(path):
                continue
            if path.is_dir():
                yield from self._walk(path, visited)
            else:
                yield path

    def _walk(self, root: Path, visited: set[str] | None = None) -> Iterator[Path]:
        """Files below `root`; without hidden ones, bytecode caches and the spans of the corpus that is being written.

        Args:
          visited: real paths of folders that are not to be read again; receives those that were.
        """
        visited = set() if visited is None else visited

        def failed(error: OSError) -> None:
            self._bad(UNREADABLE, str(error.filename), error.strerror or str(error))

        for folder, folders, names in os.walk(root, onerror=failed, followlinks=True):
            real = os.path.realpath(folder)
            if real in visited:
                folders.clear()  # A link that leads back.
                continue
            visited.add(real)
            folders[:] = [name for name in sorted(folders) if self._is_wanted(folder, name) and name != _BYTECODE_CACHE]
            yield from (Path(folder, name) for name in sorted(names) if self._is_wanted(folder, name))

    def _is_wanted(self, folder: str, name: str) -> bool:
        if self._is_own(Path(folder, name)):
            return False
        if name.startswith("."):
            self._ignore(_HIDDEN)
            return False
        return True

    def _is_own(self, path: Path) -> bool:
        """Whether it is what ingests made in `out`. The rest of `out` is input as anything else: it may be `.`."""
        start = os.path.join(self._out, "")
        real = os.path.realpath(path)
        return real.startswith(start) and is_ingests_own(real.removeprefix(start).split(os.sep)[0])

    def _ignore(self, what: str) -> None:
        self.discovery.ignored[what] = self.discovery.ignored.get(what, 0) + 1

    def _bad(self, reason: str, where: str, detail: str) -> None:
        self.discovery.bad.append(Bad(reason, where, detail))


def kind_of(file_name: str, extensions: Sequence[str]) -> str | None:
    """Which reader a file is for, by the end of its name; None if there is none."""
    name = _SHARD_OF_TFRECORDS.sub(r"\1", file_name.lower())
    stem, ending = os.path.splitext(name)
    if ending in _COMPRESSIONS:
        kind = _FORMATS.get(os.path.splitext(stem)[1])
        return kind if kind in _COMPRESSIBLE else None
    return _FORMATS.get(ending) or (CODE_KIND if ending in extensions else None)


def _links_last(root: Path, paths: Iterable[Path]) -> list[Path]:
    """`paths` sorted, each once; at the end those that are links, or lead through one, below `root`."""
    real_root = os.path.realpath(root)

    def is_direct(path: Path) -> bool:
        return os.path.realpath(path) == os.path.join(real_root, *path.relative_to(root).parts)

    return sorted(dict.fromkeys(paths), key=lambda path: (not is_direct(path), path))


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
