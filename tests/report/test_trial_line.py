"""What a person sees of a trial, on wide and narrow terminals."""

import io

from rich.console import Console

from autotune.report.progress import RichProgress, TrialLine

FLAGS = "--max-num-batched-tokens 8192 --max-num-seqs 256"


def line(value: float | None = 2789.4, ratio: float | None = 1.22, reason: str = "") -> TrialLine:
    return TrialLine("trial 1", FLAGS, "infeasible", value, "tok/s", ratio, 2.1, reason)


def drawn(width: int) -> list[str]:
    stream = io.StringIO()
    RichProgress(Console(file=stream, width=width, force_terminal=False)).trial(line())
    return stream.getvalue().splitlines()


def test_a_wide_terminal_gets_one_line() -> None:
    assert drawn(160) == [f"  trial 1  2,789 tok/s  (1.22x default)         boot 2s  {FLAGS}"]


def test_on_a_narrow_terminal_the_configuration_stands_below_under_the_figure() -> None:
    assert drawn(80) == ["  trial 1  2,789 tok/s  (1.22x default)         boot 2s", f"           {FLAGS}"]


def test_a_reason_stands_below() -> None:
    text = line(None, None, "KV cache too small").text()
    assert text.splitlines()[0].split()[:3] == ["trial", "1", "infeasible"]
    assert text.splitlines()[1] == "           KV cache too small"


def test_the_bar_keeps_its_time_left_beside_a_long_moment() -> None:
    stream = io.StringIO()
    progress = RichProgress(Console(file=stream, width=80, force_terminal=True))
    with progress:
        progress.budget(0.5, 150)
        progress.now(f"booting (imports, 3 s): {FLAGS} {FLAGS}")
    last = stream.getvalue().split("2m30s left")
    assert len(last) > 1 and "booting (imports, 3 s)" in last[-1]
