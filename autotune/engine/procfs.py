"""Reads Linux's /proc: who runs since when, in which session, with which environment, listening where.

A process is named by its pid *and* its start time in clock ticks since the machine booted, as the kernel
gives it: pids are used again, the pair is not. Everything here returns None or nothing for a process that
ended meanwhile.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
LISTEN = "0A"
STARTED_FIELD = 19
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, order=True)
class ProcessId:
    """A process, told apart from later ones with the same pid by its start in clock ticks since boot."""

    pid: int
    started_ticks: int


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of /proc/PID/stat, as far as we need it."""

    id: ProcessId
    name: str
    state: str
    ppid: int
    pgid: int
    sid: int
    cpu_ticks: int
    threads: int

    @property
    def pid(self) -> int:
        """The process number."""
        return self.id.pid

    @property
    def running(self) -> bool:
        """Whether it still holds anything: a zombie holds only its number, unless threads of it live on."""
        return self.state not in ("Z", "X") or self.threads > 1


def read_stat(pid: int) -> ProcessStat | None:
    """The process's state, or None where there is none."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name stands in brackets and may itself hold spaces and brackets.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    if len(fields) <= STARTED_FIELD:
        return None
    return ProcessStat(
        id=ProcessId(pid, int(fields[STARTED_FIELD])),
        name=head.partition("(")[2],
        state=fields[0],
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        sid=int(fields[3]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
    )


def all_stats() -> Iterator[ProcessStat]:
    """Every process that can be seen, zombies included."""
    for entry in os.scandir(PROC):
        if entry.name.isdigit() and (stat := read_stat(int(entry.name))):
            yield stat


def alive(process: ProcessId) -> bool:
    """Whether exactly this process still runs."""
    stat = read_stat(process.pid)
    return stat is not None and stat.id == process and stat.running


def read_environ(pid: int) -> dict[str, str]:
    """The environment that the process was started with; empty where it may not be read."""
    try:
        data = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition("=") for item in os.fsdecode(data).split("\0") if "=" in item)
    return {name: value for name, _, value in pairs}


def command_line(pid: int) -> str:
    """The command line for a person to read; empty where it may not be read."""
    try:
        data = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return os.fsdecode(data).replace("\0", " ").strip()


def owner_uid(pid: int) -> int | None:
    """The user that the process belongs to."""
    try:
        return (PROC / str(pid)).stat().st_uid
    except OSError:
        return None


def io_bytes(pid: int) -> int:
    """Bytes that the process has read and written so far; 0 where that may not be read."""
    try:
        lines = (PROC / str(pid) / "io").read_text().splitlines()
    except OSError:
        return 0
    values = {name: int(value) for name, _, value in (line.partition(":") for line in lines)}
    return values.get("rchar", 0) + values.get("wchar", 0) + values.get("read_bytes", 0)


def oom_kills() -> int | None:
    """How often the kernel has killed in our memory cgroup so far; None where no counter can be read."""
    for path in _oom_counters():
        try:
            fields = dict(line.split(maxsplit=1) for line in path.read_text().splitlines())
            return int(fields["oom_kill"])
        except (OSError, KeyError, ValueError):
            continue
    return None


def _oom_counters() -> Iterator[Path]:
    """Our own group's counter in both versions of control groups, then the root's: a container sees only
    that.
    """
    mount = Path("/sys/fs/cgroup")
    for fields in (line.split(":", 2) for line in _lines(PROC / "self/cgroup")):
        if fields[1] in ("", "memory"):
            group = mount / fields[1] / fields[2].strip("/")
            yield group / ("memory.oom_control" if fields[1] else "memory.events")
    yield mount / "memory.events"
    yield mount / "memory/memory.oom_control"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def pid_namespace() -> str:
    """Pids mean something only within one namespace; containers have their own."""
    try:
        return os.readlink(PROC / "self/ns/pid").removeprefix("pid:").strip("[]")
    except OSError:
        return ""


def machine_boot_id() -> str:
    """An id that changes whenever the machine boots: start times of processes mean nothing across it."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def listening_inodes(port: int) -> set[int] | None:
    """Socket inodes that listen on the TCP port on an address that 127.0.0.1 reaches; None where it is not
    told.
    """
    rows = [line.split() for table in ("net/tcp", "net/tcp6") for line in _lines(PROC / table)]
    if not rows:  # there is a heading at least, where the system tells
        return None
    found = set()
    for fields in rows:
        if fields[0] == "sl":
            continue
        address, _, hex_port = fields[1].rpartition(":")
        if fields[3] == LISTEN and int(hex_port, 16) == port and _reached_from_loopback(address):
            found.add(int(fields[9]))
    return found


def _reached_from_loopback(address: str) -> bool:
    """For addresses as /proc/net/tcp writes them: 32-bit words in little-endian byte order."""
    v4_any, v4_loopback = "00000000", "0100007F"
    v6_any, v6_mapped_loopback = "0" * 32, "0000000000000000FFFF00000100007F"
    return address in (v4_any, v4_loopback, v6_any, v6_mapped_loopback)


def socket_inodes(pid: int) -> set[int]:
    """Inodes of the sockets that the process holds open."""
    return {int(target[8:-1]) for target in _open_files(pid) if target.startswith("socket:[")}


def bound_unix_sockets() -> dict[int, str]:
    """Paths of the Unix sockets that are bound to a file, by inode."""
    try:
        lines = (PROC / "net" / "unix").read_text(errors="replace").splitlines()[1:]
    except OSError:
        return {}
    rows = [fields for line in lines if len(fields := line.split(maxsplit=7)) == 8]
    return {int(fields[6]): fields[7] for fields in rows if fields[7].startswith("/")}


def shared_memory_files(pid: int) -> set[str]:
    """Paths under /dev/shm that the process has open or mapped."""
    return {path for path in (*_open_files(pid), *_mapped_files(pid)) if path.startswith("/dev/shm/")}


def _open_files(pid: int) -> list[str]:
    folder = PROC / str(pid) / "fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    targets = []
    for name in names:
        try:
            targets.append(os.readlink(folder / name))
        except OSError:  # closed meanwhile
            continue
    return targets


def _mapped_files(pid: int) -> set[str]:
    try:
        lines = (PROC / str(pid) / "maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    return {fields[5] for line in lines if len(fields := line.split(maxsplit=5)) == 6}
