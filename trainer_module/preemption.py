"""A polite stop: SIGTERM, as a cluster manager sends it before it takes a machine away."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether this process was sent SIGTERM inside the block.

    More of them change nothing: whoever loses patience sends SIGKILL. To be installed after TensorFlow's strategy is
    made, which installs a handler of its own. In a thread, where Python installs none, nothing is ever asked.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()

    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
