"""A shell script that starts the container with ``docker run``; arguments given to it go to vLLM."""

from autotune.export.compose import HEALTH
from autotune.export.image import container_image, image_lines
from autotune.export.options import DEFAULT_OPTIONS, ExportOptions
from autotune.export.provenance import comment_lines, facts
from autotune.export.serving import CACHE_MOUNT, PORT, serving
from autotune.export.text import flag_groups, render_template
from autotune.store.recommendation import Recommendation


def render(recommendation: Recommendation, options: ExportOptions = DEFAULT_OPTIONS) -> str:
    """The script's text. Raises ``UsageError`` where no image is known."""
    image = container_image(recommendation, options)
    s = serving(recommendation)
    usage = [
        "PORT, GPU (indexes or UUIDs) and CACHE (a volume or a folder) may be set by the caller.",
        f"Passed on from the environment, if set: {', '.join(s.secrets)}.",
        *image_lines(recommendation, options),
    ]
    values = {
        "head": comment_lines(recommendation, usage=usage),
        "name": s.name,
        "port": PORT,
        "gpus": s.gpus,
        "shm_gib": s.shm_gib,
        "health": HEALTH,
        "startup_s": s.startup_s,
        "cache": CACHE_MOUNT,
        "folder": s.folder,
        "mount": f"type=bind,{_field('source', str(s.folder))},{_field('target', s.container_model)},readonly",
        "env": s.launch.env,
        "secrets": s.secrets,
        "labels": facts(recommendation).items(),
        "image": image,
        "arguments": flag_groups(s.container_arguments()),
    }
    return render_template("docker.sh.jinja", {}, values)


def _field(key: str, text: str) -> str:
    """One field of ``--mount``, which Docker reads as a line of CSV."""
    pair = f"{key}={text}"
    return f'"{pair.replace(chr(34), chr(34) * 2)}"' if '"' in pair or "," in pair else pair
