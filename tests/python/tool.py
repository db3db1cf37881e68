"""Runs the `tenure` binary under limits and keeps what it said and used.

`TENURE_BIN` names the binary (default: `target/release/tenure` of this repository).
"""

import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("TENURE_BIN", REPOSITORY / "target/release/tenure"))
SHARED = Path(os.environ.get("TENURE_SHARED", REPOSITORY.parent / "shared"))

ADDRESS_SPACE = 2 << 30
SECONDS = 20
PATIENCE = 6
"""How many times its seconds of processor time a run may take by the clock."""


@dataclass
class Result:
    """One run; `code` is None when its time was up. Times in seconds."""

    command: list[str]
    code: int | None
    out: str
    err: str
    cpu: float
    wall: float

    def json(self) -> dict:
        """The summary of a run that must have succeeded."""
        assert self.code == 0, f"{' '.join(self.command)}: exit {self.code}: {self.err.strip()}"
        return json.loads(self.out)


def tenure(*arguments, seconds: float = SECONDS, address_space: int = ADDRESS_SPACE) -> Result:
    """Runs `tenure ARGUMENTS` without standard input, in so much processor time and memory."""
    assert BINARY.exists(), f"{BINARY} is missing: cargo build --release --workspace --bins"
    command = [str(BINARY), *map(str, arguments)]

    cpu = math.ceil(seconds)
    limits = {
        resource.RLIMIT_CPU: (cpu, cpu + 1),
        resource.RLIMIT_AS: (address_space, address_space),
        resource.RLIMIT_CORE: (0, 0),
    }
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        # Limits are set from outside: a function run in the child would make Python fork itself,
        # with all that it holds, in place of a mere start.
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        for kind, values in limits.items():
            # A child that is over waits to be asked how it went, so its number is still its own.
            resource.prlimit(child.pid, kind, values)
        overdue = threading.Timer(PATIENCE * seconds, child.kill)
        overdue.start()
        _, status, usage = os.wait4(child.pid, 0)
        overdue.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        late = child.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
        out.seek(0)
        err.seek(0)
        return Result(
            command=command,
            code=None if late else child.returncode,
            out=out.read().decode(errors="replace"),
            err=err.read().decode(errors="replace"),
            cpu=usage.ru_utime + usage.ru_stime,
            wall=time.monotonic() - start,
        )


MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak(*arguments) -> int:
    """The most bytes of memory that `tenure ARGUMENTS` has at a time.

    The system counts what a process held before it became the program, too, so a small
    interpreter starts it and not this one, which may hold a model.
    """
    command = [sys.executable, "-I", "-S", "-c", MEASURE, str(BINARY), *map(str, arguments)]
    measured = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return int(measured.stdout) * 1024
