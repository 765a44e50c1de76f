"""Messages between this program's own processes: a pickle behind its length in eight bytes."""

import pickle
from typing import IO, Any


def write_message(pipe: IO[bytes], message: Any) -> None:
    """Write one message and flush."""
    data = pickle.dumps(message)
    pipe.write(len(data).to_bytes(8) + data)
    pipe.flush()


def read_message(pipe: IO[bytes]) -> Any:
    """Read one message. Raises EOFError at the end of the pipe."""
    head = pipe.read(8)
    if len(head) < 8:
        raise EOFError("the other process closed its pipe")
    return pickle.loads(pipe.read(int.from_bytes(head)))
