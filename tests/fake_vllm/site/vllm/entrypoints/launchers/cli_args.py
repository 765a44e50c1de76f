"""Flags of the HTTP front end; each field becomes a flag of the same name."""

from dataclasses import dataclass
from typing import Literal


@dataclass
class BaseFrontendArgs:
    """Flags that every front end has."""

    chat_template: str | None = None
    response_role: str = "assistant"
    enable_auto_tool_choice: bool = False
    tool_call_parser: str | None = None
    max_log_len: int | None = None
    enable_prompt_tokens_details: bool = False


@dataclass
class FrontendArgs(BaseFrontendArgs):
    """Flags of the OpenAI-compatible server."""

    host: str | None = None
    port: int = 8000
    uvicorn_log_level: Literal["debug", "info", "warning", "error", "critical", "trace"] = "info"
    disable_uvicorn_access_log: bool = False
    api_key: list[str] | None = None
    root_path: str | None = None
    disable_fastapi_docs: bool = False
