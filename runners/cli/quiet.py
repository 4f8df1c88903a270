"""Quiet for a command whose answer is all that a user wants to see."""

import os


class quiet_stderr:
    """Sends what libraries write to descriptor 2 while they start to nowhere; Python's errors still rise."""

    def __enter__(self) -> None:
        self._saved = os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._saved, 2)
        os.close(self._saved)
