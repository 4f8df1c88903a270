"""Processes that must not outlive the one that started them."""

import ctypes
import os
import signal
import sys

from foundation.errors import HostError

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent dies, however it dies.

    Args:
      parent: its process id; if it is gone already, this process ends at once.

    Raises:
      HostError: the kernel does not offer that.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise HostError(f"prctl failed: {os.strerror(ctypes.get_errno())}; Tokenmill runs on Linux")
    if os.getppid() != parent:  # it died before the call
        sys.exit(1)
