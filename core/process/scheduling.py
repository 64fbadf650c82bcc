"""CPU priorities of processes, without privileges.

Where sched_autogroup_enabled is 1 (sched(7), "The autogroup feature"), Linux divides CPU time among sessions, and nice
counts within a session only: beside eight busy sessions, all processes of one supervisor together get a ninth. So each
collector and the writer have sessions of their own. Processes that can wait get a lower priority: by their nice value,
and a leader of a session, as each of PostgreSQL's backends is, by that of the session.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

NICE = 5  # a third of the weight of a process that wants the same core


def start_own_session() -> None:
    """Put this process into a session of its own. One that a terminal started stays in the terminal's."""
    if "PLANTLOG_PROCESS" not in os.environ:
        return
    with suppress(OSError):
        os.setpgid(0, os.getpgid(os.getppid()))  # the supervisor made it a group's leader, which may not leave
        os.setsid()


def lower_priority(pid: int = 0) -> None:
    """Lower the CPU priority of the process ``pid`` (0: this one), if permitted. One that is lower stays as it is."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, max(NICE, os.getpriority(os.PRIO_PROCESS, pid)))
    with suppress(OSError):
        if pid and os.getsid(pid) == pid:
            Path(f"/proc/{pid}/autogroup").write_text(str(NICE))
