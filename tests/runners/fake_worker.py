"""A worker for the supervisor's tests: does one thing, named by its last argument."""

import os
import signal
import subprocess
import sys

from foundation.events import emit
from foundation.processes import die_with_parent


def main() -> None:
    die_with_parent(int(sys.argv[sys.argv.index("--parent") + 1]))
    print("chatter on stdout", flush=True)
    os.write(2, b"chatter on descriptor 2\n")
    task = sys.argv[-1]
    if task == "talk":
        for number in range(1000):
            emit("note", text=f"{number}")
    elif task == "fail":
        emit("run_finished", ok=False, error="bad corpus")
        sys.exit(3)
    elif task == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif task == "family":  # children that leave: own session, orphaned, deaf to SIGTERM
        deaf = (
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
            "print('up', flush=True); time.sleep(600)"
        )
        child = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        orphan = "import os, time; os.fork() and os._exit(0); print(os.getpid(), flush=True); time.sleep(600)"
        forked = subprocess.run([sys.executable, "-c", orphan + ""], stdout=open_pipe(), check=True)
        assert forked.returncode == 0
        emit("note", text="ready", children=[os.getpid(), child.pid, int(read_pipe())])
        signal.pause()


_PIPE = os.pipe()


def open_pipe() -> int:
    return _PIPE[1]


def read_pipe() -> bytes:
    return os.read(_PIPE[0], 100)


if __name__ == "__main__":
    main()
