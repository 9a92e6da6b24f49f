"""What this process may use of the machine it runs on."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """The number of CPU cores this process may run on.

    Linux can restrict a process to some of the cores, as containers and job schedulers do. macOS and Windows cannot:
    there it is the number of cores of the machine.

    >>> usable_cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
