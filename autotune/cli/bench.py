"""``autotune bench``: the load generator alone, against any OpenAI-compatible server."""

from pathlib import Path
from typing import Annotated

import typer


def bench(
    url: Annotated[str, typer.Argument(help="The server, like http://127.0.0.1:8000.")],
    workload: Annotated[
        str, typer.Option("--workload", "-w", help="A preset's name, or a workload, trace or request file.")
    ] = "demo",
    model: Annotated[str | None, typer.Option(help="The served model (default: the first).")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY", help="The server's key.")] = None,
    concurrency: Annotated[int | None, typer.Option("--concurrency", "-c", min=1, help="Requests in flight.")] = None,
    rate: Annotated[float | None, typer.Option(help="Requests per second, whatever the server does.")] = None,
    burstiness: Annotated[
        float | None, typer.Option(min=0.01, help="With --rate: 1 = Poisson, below 1 = bursts, inf = even.")
    ] = None,
    replay: Annotated[bool, typer.Option("--replay", help="Send at the trace's or the workload's own times.")] = False,
    capacity: Annotated[bool, typer.Option("--capacity", help="Find the highest rate that meets every --slo.")] = False,
    slo: Annotated[list[str] | None, typer.Option(help="Like ttft_p95=500ms; may be repeated.")] = None,
    shortest: Annotated[str, typer.Option("--min", help="Shortest scored window.")] = "10s",
    longest: Annotated[str, typer.Option("--max", help="Longest scored window.")] = "60s",
    vocab_size: Annotated[int | None, typer.Option(help="Send token ids below this instead of text.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Repeat the prompts of an earlier bench (default: new ones).")
    ] = None,
    respect_eos: Annotated[
        bool, typer.Option("--respect-eos", help="Let answers end early: for servers without ignore_eos.")
    ] = False,
    clients: Annotated[int, typer.Option(min=0, help="Client processes; 0 = as many as needed.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write pictures to this file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Load a server and measure it."""
    from autotune.cli.bench_view import run_and_show
    from autotune.load.slo import Slo
    from autotune.tuner.bench import BenchSettings
    from autotune.tuner.settings import parse_duration

    settings = BenchSettings(
        url=url,
        workload=workload,
        model=model,
        api_key=api_key,
        concurrency=concurrency,
        rate_per_s=rate,
        burstiness=burstiness,
        replay=replay,
        capacity=capacity,
        slos=tuple(Slo.parse(text) for text in slo or ()),
        min_s=parse_duration(shortest, "min"),
        max_s=parse_duration(longest, "max"),
        vocab_size=vocab_size,
        seed=seed,
        processes=clients,
        respect_eos=respect_eos,
    )
    if not run_and_show(settings, html=html, as_json=json):
        raise typer.Exit(1)
