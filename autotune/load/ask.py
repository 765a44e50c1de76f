"""Single requests beside the load: what a server serves, its metrics, what a text costs in tokens.

They take the same way as the load: straight to the server, past any proxy that the environment names.
"""

import http.client
import urllib.error
import urllib.request

from autotune.errors import UsageError
from autotune.load.types import Target

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(target: Target, path: str, body: bytes | None = None, *, limit_s: float = 10.0) -> bytes:
    """The body of a 200 answer; POST with JSON where ``body`` is given.

    Raises ``OSError`` (no answer, another status) and ``UsageError`` where the target's URL is none.
    """
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if target.api_key:
        headers["Authorization"] = f"Bearer {target.api_key}"
    base = target.base_url.rstrip("/").removesuffix("/v1")
    try:
        with _DIRECT.open(urllib.request.Request(f"{base}{path}", body, headers), timeout=limit_s) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        raise OSError(f"HTTP {error.code}") from None
    except http.client.HTTPException as error:
        raise OSError(f"no HTTP answer ({type(error).__name__})") from None
    except ValueError as error:
        raise UsageError(f"{target.base_url!r} is not a server's URL: {error}") from None
