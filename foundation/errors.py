"""The project's errors: one base, one class per kind of remedy.

A message says what is wrong, where (file, record, key), the value received, and what to do.
The command line prints the message alone and exits with the class's `exit_code`.
"""


class TokenmillError(Exception):
    """Base of every error that Tokenmill raises on purpose."""

    exit_code = 1


class ConfigError(TokenmillError):
    """The configuration is wrong: the user edits a key."""

    exit_code = 2


class CorpusError(TokenmillError):
    """The documents are wrong: the user mends the data, or says how to treat what is bad."""

    exit_code = 3


class HostError(TokenmillError):
    """The machine is wrong: a missing program, a full disk, a port in use."""

    exit_code = 4


class TrainingError(TokenmillError):
    """Training cannot go on: rows that do not fit the model, a checkpoint that does not fit the run."""

    exit_code = 5


class ModelError(TokenmillError):
    """A model, an export or a registry version is missing, damaged or not what it claims to be."""

    exit_code = 6


class PipelineError(TokenmillError):
    """A component of the pipeline failed; the cause is in the message, the rest in the log."""

    exit_code = 7


NOT_BLESSED_EXIT_CODE = 8
"""Of a run that finished, whose model was refused: no error, but nothing was pushed."""


class PreemptedError(TokenmillError):
    """Training was asked to stop; it has saved and can go on. Cluster managers take codes from 128 on for "again"."""

    exit_code = 138


class PeerLostError(TokenmillError):
    """Another worker of the same training is gone; this one has no fault of its own."""

    exit_code = 140
