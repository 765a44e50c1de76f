"""Limits that a container sets: memory and CPU time, for both versions of Linux control groups.

A limit may lie on any group above ours, so every group up to the root is asked and the tightest counts.
Page cache that can be dropped (``inactive_file``) is not counted as used, since the kernel gives it back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class Limits:
    """What the container allows; ``None`` where it sets no limit. ``memory_free_bytes`` is what is left of it."""

    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    cores: float | None = None


def read_limits(root: Path = Path("/")) -> Limits:
    """The limits on this process; ``root`` is where ``proc`` and ``sys`` lie."""
    groups = _own_groups(root)
    memory = [found for group in groups.get("memory", ()) if (found := _memory(group))]
    cores = [allowed for group in groups.get("cpu", ()) if (allowed := _cores(group))]
    return Limits(
        min((limit for limit, _ in memory), default=None),
        min((max(limit - used, 0) for limit, used in memory), default=None),
        min(cores, default=None),
    )


def _own_groups(root: Path) -> dict[str, list[Path]]:
    """Folders of our groups by controller, own group first, up to the root of each tree."""
    found: dict[str, list[Path]] = {}
    mount = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(",") if controllers else ("memory", "cpu"):
            base = mount / controller if controllers else mount
            found.setdefault(controller, []).extend(_upwards(base, path.strip("/")))
    return found


def _upwards(base: Path, path: str) -> Iterator[Path]:
    """The group and its parents. Inside a container the path is the host's, and only the root exists."""
    parts = [part for part in path.split("/") if part]
    for depth in range(len(parts), -1, -1):
        folder = base.joinpath(*parts[:depth])
        if folder.is_dir():
            yield folder


def _memory(group: Path) -> tuple[int, int] | None:
    """(limit, used) in bytes of one group, or None where it sets no limit."""
    names = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for limit_name, used_name in names:
        limit = _number(_text(group / limit_name))
        if limit is not None and limit < _UNLIMITED:
            used = _number(_text(group / used_name)) or 0
            return limit, max(used - _droppable(group), 0)
    return None


def _droppable(group: Path) -> int:
    rows = (line.split() for line in _text(group / "memory.stat").splitlines())
    values = {row[0]: row[1] for row in rows if len(row) == 2}
    return _number(values.get("total_inactive_file", values.get("inactive_file", "0"))) or 0


def _cores(group: Path) -> float | None:
    """CPU time per wall time that one group allows."""
    quota, _, period = _text(group / "cpu.max").strip().partition(" ")
    if not quota:
        quota = _text(group / "cpu.cfs_quota_us").strip()
        period = _text(group / "cpu.cfs_period_us").strip()
    allowed, per = _number(quota), _number(period)
    return allowed / per if allowed and per and allowed > 0 else None


def _number(text: str) -> int | None:
    try:
        return int(text.strip())
    except ValueError:
        return None


def _text(path: Path) -> str:
    """The file's text, or nothing where it cannot be read: then it sets no limit that we could know."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
