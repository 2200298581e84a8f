"""`claimlib WORDS…`, but that an xautoclaim is killed (SIGKILL): the first as it begins to apply
what it has decided, the second once it has applied it.  FOLDER keeps what was done.

python killed.py FOLDER WORDS…
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

PHASES = ("apply", "verify")


def main():
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    command = [sys.executable, "-m", "claimlib", *words]
    to_come = [phase for phase in PHASES if not (folder / phase).exists()]
    if words[0] != "xautoclaim" or not to_come:
        os.execv(sys.executable, command)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            if line.startswith(f"claimlib: {to_come[0]}"):
                (folder / to_come[0]).touch()
                process.kill()
                process.wait()
                os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(process.returncode)


if __name__ == "__main__":
    main()
