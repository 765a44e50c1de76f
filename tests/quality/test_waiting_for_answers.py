"""A server that does not answer ends no study: reading gives up in time, and at once when asked to."""

import socket
import time
from collections.abc import Iterator

import pytest

from autotune.errors import Interrupted
from autotune.quality.ask import QualityUnavailable, Server, read
from autotune.quality.reading import Prompts

PROMPTS = Prompts(passages=((1, 2, 3),), openings=((4, 5),))


@pytest.fixture
def silent() -> Iterator[Server]:
    """Takes connections and says nothing; closing it ends them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Server(f"http://127.0.0.1:{listener.getsockname()[1]}", "m")


def test_reading_has_a_limit_of_its_own(silent: Server) -> None:
    began = time.monotonic()
    with pytest.raises(QualityUnavailable, match="did not read all texts within 1 s"):
        read(silent, PROMPTS, limit_s=1.0)
    assert time.monotonic() - began < 5


def test_a_request_to_stop_is_heard_while_an_answer_is_awaited(silent: Server) -> None:
    began = time.monotonic()

    def keep_waiting() -> None:
        if time.monotonic() - began > 0.5:
            raise Interrupted("asked to")

    with pytest.raises(Interrupted):
        read(silent, PROMPTS, keep_waiting)
    assert time.monotonic() - began < 5
