"""Process titles and ends, as vLLM's libraries leave them.

vLLM names its engine process through ``setproctitle``, which writes the title over the process's arguments *and* over
its initial environment as others see it in ``/proc/PID/environ``, unless ``SPT_NOENV`` is set. The stand-in does the
same, since whoever looks for a mark in a process's environment must know it.
"""

import os
import time
from pathlib import Path
from typing import NoReturn


def set_title(title: str) -> None:
    """Show ``title`` as name and arguments of this process, and blank its environment unless ``SPT_NOENV`` is set."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    arg_start, arg_end, _, env_end = (int(x) for x in fields[45:49])
    end = arg_end if os.environ.get("SPT_NOENV") else env_end
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(arg_start)
        memory.write(title.encode()[: end - arg_start - 1].ljust(end - arg_start, b"\0"))
    Path("/proc/self/comm").write_text(title[:15])


def sleep_forever() -> NoReturn:
    """Do nothing until a signal ends the process."""
    while True:
        time.sleep(60)
