"""HTTP/1.1 responses, decoded as they arrive: just what a load client needs, and nothing per token.

A general client wakes a task, a parser and a stream reader for every read, which costs more than the token
itself. ``ResponseDecoder`` is fed whatever the socket gave and returns the body bytes in it; the common
read, one whole chunk of a chunked body, takes one branch.
"""

from dataclasses import dataclass, field

HEAD_MOST = 2**16


class ProtocolError(Exception):
    """The peer did not speak HTTP/1.1 as we understand it."""


@dataclass(slots=True)
class ResponseDecoder:
    """Decodes one response after another on a connection; ``reset`` starts the next.

    ``_chunk_left`` counts the bytes of a chunk still to come; below zero, those of its line end.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    complete: bool = False
    keep_alive: bool = True
    _buffer: bytes = b""
    _in_body: bool = False
    _chunked: bool = False
    _chunk_left: int = 0
    _length_left: int | None = None

    def reset(self) -> None:
        """Forget the response; unread bytes of the connection are kept."""
        self.status, self.headers, self.complete, self.keep_alive = 0, {}, False, True
        self._in_body = self._chunked = False
        self._chunk_left, self._length_left = 0, None

    def feed(self, data: bytes) -> bytes:
        """Body bytes in ``data``. Raises ProtocolError."""
        if self._in_body and self._chunked and not self._buffer and not self._chunk_left:
            head = data.find(b"\r\n", 0, 20)
            if head > 0 and data.endswith(b"\r\n"):
                size = _chunk_size(data[:head])
                if size and len(data) == head + size + 4:
                    return data[head + 2 : -2]
        return self._slow(self._buffer + data if self._buffer else data)

    @property
    def at_chunk(self) -> bool:
        """Whether the next byte starts a chunk of a chunked body."""
        return self._in_body and self._chunked and not self._buffer and not self._chunk_left and not self.complete

    def end_of_stream(self) -> None:
        """The peer closed: fine only for a body that lasts until the close. Raises ProtocolError."""
        if not (self._in_body and not self._chunked and self._length_left is None):
            raise ProtocolError("the server closed the connection in the middle of a response")
        self.complete, self.keep_alive = True, False

    def _slow(self, data: bytes) -> bytes:
        self._buffer = b""
        while not self._in_body:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._hold(data)
                return b""
            self._head(data[:end])
            data = data[end + 4 :]
        if self._chunked:
            return self._chunks(data)
        return self._plain(data)

    def _hold(self, data: bytes) -> None:
        """Keep the beginning of a head until the rest comes."""
        if len(data) > HEAD_MOST:
            raise ProtocolError(f"a head longer than {HEAD_MOST} bytes: {data[:40]!r}")
        self._buffer = data

    def _head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        parts = first.split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not _is_status(parts[1]):
            raise ProtocolError(f"not an HTTP/1.1 response: {first[:80]!r}")
        self.status = int(parts[1])
        if 100 <= self.status < 200:
            return
        pairs = (line.partition(":") for line in lines)
        self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self._in_body = True
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length")
        self._length_left = None if self._chunked or length is None else _length(length)
        self.complete = self._length_left == 0 or self.status in (204, 304)
        closing = self.headers.get("connection", "").lower() == "close" or parts[0] == "HTTP/1.0"
        self.keep_alive = not closing

    def _plain(self, data: bytes) -> bytes:
        if self._length_left is None:
            return data
        body, self._buffer = data[: self._length_left], data[self._length_left :]
        self._length_left -= len(body)
        self.complete = self._length_left == 0
        return body

    def _chunks(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        at = 0 if self._chunk_left else _whole_chunks(data, parts)
        while at < len(data):
            if self._chunk_left > 0:
                body = data[at : at + self._chunk_left]
                parts.append(body)
                at += len(body)
                self._chunk_left -= len(body)
                if self._chunk_left == 0:
                    self._chunk_left = -2
            if self._chunk_left < 0:
                skipped = min(-self._chunk_left, len(data) - at)
                at += skipped
                self._chunk_left += skipped
                continue
            if self._chunk_left:
                break
            next_at = self._chunk_head(data, at)
            if next_at < 0:
                break
            at = next_at
            if self.complete:
                break
        return b"".join(parts)

    def _chunk_head(self, data: bytes, at: int) -> int:
        """Where the chunk's bytes start, -1 where its head (or the trailer) isn't whole yet."""
        end = data.find(b"\r\n", at)
        if end < 0:
            self._hold(data[at:])
            return -1
        size = _chunk_size(data[at:end])
        if size:
            self._chunk_left = size
            return end + 2
        trailer = data.find(b"\r\n\r\n", end)
        if trailer < 0:
            self._hold(data[at:])
            return -1
        self.complete = True
        self._buffer = data[trailer + 4 :]
        return trailer + 4


def _is_status(text: str) -> bool:
    return len(text) == 3 and text.isdecimal()


def _length(text: str) -> int:
    if not (text.isdecimal() and len(text) < 20):
        raise ProtocolError(f"bad content length {text[:40]!r}")
    return int(text)


def _chunk_size(head: bytes) -> int:
    """The size in a chunk's head, which may carry an extension."""
    try:
        size = int(head.split(b";", 1)[0], 16)
    except ValueError:
        size = -1
    if size < 0:
        raise ProtocolError(f"bad chunk size {head[:40]!r}")
    return size


def _whole_chunks(data: bytes, parts: list[bytes]) -> int:
    """Move the bodies of the chunks that are wholly in ``data`` to ``parts``; where the rest starts.

    Stops before anything unusual (the last chunk, an extension, a bad size) and leaves that to the caller.
    """
    at, head, size, total = 0, b"", 0, len(data)
    while True:
        mark = data.find(b"\r\n", at, at + 10)
        if mark < 0:
            return at
        if data[at:mark] != head:
            head = data[at:mark]
            if not head.isalnum() or head.strip(b"0") == b"":
                return at
            try:
                size = int(head, 16)
            except ValueError:
                return at
        end = mark + 2 + size
        if end + 2 > total:
            return at
        parts.append(data[mark + 2 : end])
        at = end + 2
