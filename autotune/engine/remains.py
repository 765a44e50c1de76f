"""Files that an ended engine leaves behind, and their removal.

Python keeps shared memory in /dev/shm; vLLM binds sockets in the temporary folder under random names, and
its process group meets over a file there; an engine that is ended by a signal removes none of them. A file
is an engine's where one of its processes has it, or its log names it; it must have such a name and belong
to this user. It goes once nobody uses it.
"""

import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autotune.engine import procfs
from autotune.engine.procfs import ProcessStat

_SEGMENT = re.compile(r"/dev/shm/psm_[0-9a-f]+")
_SOCKET = re.compile(r"/.*/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MEETING = re.compile(r"distributed_init_method=file://(/\S*/vllm_dist_[0-9a-f]{32})(?!\S)")


@dataclass(frozen=True, slots=True)
class Remains:
    """One file, by its path and the inode that it had when it was an engine's."""

    path: str
    inode: int


def used_by(stats: Iterable[ProcessStat]) -> set[Remains]:
    """Shared-memory segments and bound sockets of these processes."""
    pids = [stat.pid for stat in stats]
    segments = {path for pid in pids for path in procfs.shared_memory_files(pid) if _SEGMENT.fullmatch(path)}
    inodes = {inode for pid in pids for inode in procfs.socket_inodes(pid)}
    bound = procfs.bound_unix_sockets() if inodes else {}
    return _ours(segments | {bound[i] for i in inodes & bound.keys() if _SOCKET.fullmatch(bound[i])})


def named_in(log_path: Path) -> set[Remains]:
    """The file over which the engine's processes met, as its log has it."""
    try:
        log = log_path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    return _ours(set(_MEETING.findall(log)))


def remove(files: Collection[Remains]) -> tuple[str, ...]:
    """Remove those files that are still the same ones and that nobody uses any more; their paths, sorted."""
    left = {file.path for file in files if _inode(file.path) == file.inode}
    if not left:
        return ()
    used = {path for stat in procfs.all_stats() for path in procfs.shared_memory_files(stat.pid)}
    removed = sorted(left - used - set(procfs.bound_unix_sockets().values()))
    for path in removed:
        with suppress(FileNotFoundError):
            os.unlink(path)
    return tuple(removed)


def _ours(paths: Iterable[str]) -> set[Remains]:
    found = {(path, _inode(path)) for path in paths}
    return {Remains(path, inode) for path, inode in found if inode is not None}


def _inode(path: str) -> int | None:
    """The inode of a file of this user; None where there is no such file."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_ino if info.st_uid == os.getuid() else None
