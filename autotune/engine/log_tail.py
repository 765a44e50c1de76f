"""Reads what was added to a log file since the last look."""

from pathlib import Path

CHUNK = 1 << 20


class LogTail:
    """Follows one growing file; a line is given out once it is complete (a progress bar's line, at its ``\\r``)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def read(self) -> list[bytes]:
        """Complete lines written since the last call, without their ends."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(CHUNK)
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        self._rest = self._rest[-CHUNK:]
        return [line for line in lines if line]


def set_aside(path: Path, word: str) -> Path | None:
    """Rename what lies at ``path`` to a free name with ``word`` in it; None where there was nothing."""
    if not path.exists():
        return None
    number = 1
    while (target := path.with_name(f"{path.stem}.{word}{number}{path.suffix}")).exists():
        number += 1
    return path.rename(target)
