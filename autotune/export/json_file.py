"""The recommendation as JSON, with the command that it stands for; ``Recommendation.from_json`` reads it back."""

import json

from autotune.export.options import DEFAULT_OPTIONS, ExportOptions
from autotune.export.serving import serving, without_secrets
from autotune.store.recommendation import Recommendation


def render(recommendation: Recommendation, options: ExportOptions = DEFAULT_OPTIONS) -> str:
    """The file's text."""
    s = serving(recommendation)
    launch = {
        "argv": [options.vllm, "serve", s.model, *s.launch.argv()],
        "env": dict(s.launch.env),
        "env_from_caller": list(s.secrets),
    }
    data = {**without_secrets(recommendation).to_json(), "launch": launch}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
