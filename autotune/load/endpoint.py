"""Where requests go, and what stands before their bodies."""

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from autotune.errors import UsageError
from autotune.load.types import Target


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path of a server. ``head`` is a request up to the value of its last header, ``Content-Length``."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    head: bytes
    name: str

    @classmethod
    def of(cls, target: Target, path: str, *, method: str = "POST", accept: str = "text/event-stream") -> "Endpoint":
        """The endpoint ``path`` (``/v1/...``) of a target.

        Raises UsageError for a URL that is no server's, and for a key that no header can hold.
        """
        try:
            url = urlsplit(target.base_url)
            given_port = url.port
        except ValueError as error:
            raise _no_url(target, f" ({error})") from None
        plain = target.base_url.isascii() and target.base_url.isprintable() and " " not in target.base_url
        if url.scheme not in ("http", "https") or not url.hostname or not plain:
            raise _no_url(target)
        tls = ssl.create_default_context() if url.scheme == "https" else None
        port = (443 if tls else 80) if given_port is None else given_port
        head = (
            f"{method} {url.path.rstrip('/').removesuffix('/v1')}{path} HTTP/1.1\r\n"
            f"Host: {url.netloc.rpartition('@')[2]}\r\n{_authorization(target.api_key)}"
            f"Content-Type: application/json\r\nAccept: {accept}\r\nContent-Length: "
        )
        return cls(url.hostname, port, tls, head.encode(), f"{url.hostname}:{port}")


def _no_url(target: Target, why: str = "") -> UsageError:
    return UsageError(f"{target.base_url!r} is not a server's URL{why}; give one like http://127.0.0.1:8000")


def _authorization(api_key: str | None) -> str:
    if not api_key:
        return ""
    if not (api_key.isascii() and api_key.isprintable()):
        raise UsageError("the API key holds a line break or a character that no header can hold; give it without")
    return f"Authorization: Bearer {api_key}\r\n"
