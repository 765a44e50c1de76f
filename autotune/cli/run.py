"""``autotune run``: find the best launch configuration for this machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer


def run(
    model: Annotated[
        str | None, typer.Argument(help="Model folder or hub id (default: a demonstration model).")
    ] = None,
    model_option: Annotated[
        str | None, typer.Option("--model", envvar="AUTOTUNE_MODEL", help="The same as MODEL.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(envvar="AUTOTUNE_GPU", help="auto, a GPU's index or UUID, or cpu.")] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            envvar="AUTOTUNE_OBJECTIVE",
            help="What to win: throughput, latency (at --rate), goodput (under --slo), pareto (throughput against "
            "latency), or cost (with --price-per-hour).",
        ),
    ] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(
            "--slo",
            envvar="AUTOTUNE_SLO",
            help="A limit that must hold, like ttft_p95=500ms (ttft, tpot or e2el); may be repeated. What is picked "
            "has 8 % of it to spare.",
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(envvar="AUTOTUNE_RATE", help="Requests per second, for --objective latency.")
    ] = None,
    price_per_hour: Annotated[
        float | None,
        typer.Option(envvar="AUTOTUNE_PRICE_PER_HOUR", help="Dollars for an hour of this machine, for cost."),
    ] = None,
    workload: Annotated[
        str | None, typer.Option(envvar="AUTOTUNE_WORKLOAD", help="A preset's name or a workload file.")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(envvar="AUTOTUNE_CONCURRENCY", help="Requests in flight (default: the workload's)."),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(envvar="AUTOTUNE_SPACE", help="auto, a built-in search space, or a YAML file."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(envvar="AUTOTUNE_BUDGET", help="Time for the whole run, such as 20m (default 30m)."),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            envvar="AUTOTUNE_TRIALS",
            help="Stop the search after this many trials, incumbents not counted. 0: only race incumbents.",
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(envvar="AUTOTUNE_WINDOW", help="Shortest scored window of a point (default: 10s, on a CPU 5s)."),
    ] = None,
    race_window: Annotated[
        str | None,
        typer.Option(
            envvar="AUTOTUNE_RACE_WINDOW", help="The same for a point of the final race (default: --window's)."
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(envvar="AUTOTUNE_STORAGE", help="SQLAlchemy URL (default: SQLite in the study's folder)."),
    ] = None,
    study: Annotated[str | None, typer.Option(envvar="AUTOTUNE_STUDY", help="Name of the study; resumes it.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(envvar="AUTOTUNE_OUT", help="The study's folder (default: autotune-out/STUDY)."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(envvar="AUTOTUNE_SEED", help="Seed of the search and the prompts.")
    ] = None,
    sampler: Annotated[str | None, typer.Option(envvar="AUTOTUNE_SAMPLER", help="auto, tpe, or random.")] = None,
    vllm_python: Annotated[
        Path | None,
        typer.Option(envvar="AUTOTUNE_VLLM_PYTHON", help="The Python that has vLLM (default: found)."),
    ] = None,
    vllm_arg: Annotated[
        list[str] | None,
        typer.Option(
            "--vllm-arg",
            envvar="AUTOTUNE_VLLM_ARG",
            help="Flag for every engine, such as --vllm-arg=--dtype=half.",
        ),
    ] = None,
    from_command: Annotated[
        list[str] | None,
        typer.Option(
            "--from-command",
            metavar="[NAME=]COMMAND",
            help="What runs in production: a `vllm serve …` line or a file with one. Tried first, raced at the end.",
        ),
    ] = None,
    from_config: Annotated[
        list[str] | None,
        typer.Option(
            "--from-config", metavar="[NAME=]FILE", help="The same from a vLLM YAML or a study's result.json."
        ),
    ] = None,
    allow_unverified_precision: Annotated[
        bool | None,
        typer.Option(
            "--allow-unverified-precision",
            envvar="AUTOTUNE_ALLOW_UNVERIFIED_PRECISION",
            help="Allow values that change what the model computes where quality cannot be measured.",
        ),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            envvar="AUTOTUNE_VARIANT",
            help="Another checkpoint of the same model (FP8, AWQ, GPTQ), folder or hub id; may be repeated.",
        ),
    ] = None,
    max_quality_loss: Annotated[
        str | None,
        typer.Option(
            envvar="AUTOTUNE_MAX_QUALITY_LOSS",
            help="How much a faster precision may lose: none, tiny (default), small, any.",
        ),
    ] = None,
    quality_data: Annotated[
        Path | None,
        typer.Option(envvar="AUTOTUNE_QUALITY_DATA", help="Your prompts to measure quality on (JSON lines or text)."),
    ] = None,
    warm_boot: Annotated[
        bool | None,
        typer.Option(
            "--warm-boot/--no-warm-boot",
            envvar="AUTOTUNE_WARM_BOOT",
            help="Fork search engines from a process that has imported vLLM (default: yes; the race never does).",
        ),
    ] = None,
    live_limits: Annotated[
        bool | None,
        typer.Option(
            "--live-limits/--no-live-limits",
            envvar="AUTOTUNE_LIVE_LIMITS",
            help="Measure lower max-num-seqs and max-num-batched-tokens inside a running engine (default: yes).",
        ),
    ] = None,
    ablation: Annotated[
        bool | None,
        typer.Option(
            "--ablation/--no-ablation",
            envvar="AUTOTUNE_ABLATION",
            help="Measure after the race which flags carry the gain, and drop those that do not (default: yes).",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")] = False,
) -> None:
    """Find the best vLLM launch configuration for this machine, prove it and write it to OUT/best."""
    options = dict(locals())
    from autotune.report.result import print_result
    from autotune.tuner.run import run_study
    from autotune.tuner.settings import resolve_settings

    recommendation = run_study(resolve_settings(given(options)))
    print_result(recommendation, as_json=json)
    if recommendation.verdict == "not-measured":
        raise typer.Exit(1)


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """What a person gave, by the settings' names: the parameters of ``run`` less its own two."""
    own = ("model", "model_option", "json")
    settings = {name: value for name, value in options.items() if name not in own}
    return {"model": _one_model(options["model"], options["model_option"]), **settings}


def _one_model(argument: str | None, option: str | None) -> str | None:
    from autotune.errors import UsageError

    if argument and option and argument != option:
        raise UsageError(f"two models were given: {argument} and {option}. Give one.")
    return option if argument is None else argument
