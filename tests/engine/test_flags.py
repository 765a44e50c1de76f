"""The flag table: what it reads from small source trees in vLLM's old and new layouts, and what it answers."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from autotune.engine.flag_reader import Flag, read_known_env, read_serve_flags
from autotune.engine.flags import FlagTable, load_flags, number_of, read_flags
from autotune.engine.install import VllmInstall, find_installs
from autotune.errors import EnvironmentFault

NEW_LAYOUT = {
    "config/__init__.py": """
        from vllm.config.cache import CacheConfig, CacheDType
        from vllm.config.vllm import Level, VllmConfig
    """,
    "config/cache.py": """
        from dataclasses import field
        from typing import ClassVar, Literal
        BaseDType = Literal["auto", "bfloat16"]
        CacheDType = Literal[BaseDType, "fp8"]
        SEEN = 4
        @config
        class CacheConfig:
            block_size: int = Field(default=None, gt=0)
            gpu_memory_utilization: float = Field(default=0.92, gt=0, le=1)
            cache_dtype: CacheDType = "auto"
            layers: list[str] = field(default_factory=list)
            prefix: bool | None = None
            tokens: int = 2048
            hash_algo: Literal["sha256", "gone"] = "sha256"
            token: bool | str | None = None
            seen: int = SEEN
    """,
    "config/vllm.py": """
        from enum import IntEnum, Enum
        class Level(IntEnum):
            O0 = 0
            O2 = 2
        class Backend(Enum):
            FLASH = "vllm.v1.flash.Backend"
            TRITON = "vllm.v1.triton.Backend"
        @config
        class VllmConfig:
            level: Level = Level.O2
            backend: Backend | None = None
            nested: CacheConfig = field(default_factory=CacheConfig)
            quantization: "Methods | str | None" = None
        if TYPE_CHECKING:
            from vllm.layers import Methods
        else:
            Methods = str
        from vllm.config.cache import CacheConfig
    """,
    "layers/__init__.py": """
        from typing import Literal
        Methods = Literal["fp8", "awq"]
    """,
    "engine/arg_utils.py": """
        from vllm.config import CacheConfig, VllmConfig
        GONE = "gone"
        def _compute_kwargs(cls):
            for name in ():
                if name == "max_model_len":
                    kwargs["type"] = human_readable_int_or_auto
                elif name in ("tokens", "other"):
                    kwargs["type"] = human_readable_int
        def get_kwargs(cls):
            return _compute_kwargs(cls)
        class EngineArgs:
            @staticmethod
            def add_cli_args(parser):
                cache_kwargs = get_kwargs(CacheConfig)
                cache_kwargs["hash_algo"]["choices"].remove(GONE)
                group = parser.add_argument_group(title="CacheConfig")
                group.add_argument("--block-size", **cache_kwargs["block_size"])
                group.add_argument(
                    "--gpu-memory-utilization", "--device-memory-utilization",
                    **cache_kwargs["gpu_memory_utilization"],
                )
                group.add_argument("--kv-cache-dtype", **cache_kwargs["cache_dtype"])
                group.add_argument("--layers", **cache_kwargs["layers"])
                group.add_argument("--enable-prefix-caching", **{**cache_kwargs["prefix"], "default": None})
                group.add_argument("--max-num-batched-tokens", **{**cache_kwargs["tokens"], "default": None})
                group.add_argument("--hash-algo", **cache_kwargs["hash_algo"])
                group.add_argument("--hf-token", **cache_kwargs["token"])
                seen = cache_kwargs["seen"]
                group.add_argument("--seen", "-s", **seen)
                vllm_kwargs = get_kwargs(VllmConfig)
                vllm_kwargs["nested"]["type"] = optional_type(json.loads)
                group.add_argument("--optimization-level", **vllm_kwargs["level"])
                group.add_argument("--attention-backend", **vllm_kwargs["backend"])
                group.add_argument("--nested-config", "-nc", **vllm_kwargs["nested"])
                group.add_argument("--quantization", "-q", **vllm_kwargs["quantization"])
                group.add_argument("--disable-stats", action="store_true")
        class AsyncEngineArgs(EngineArgs):
            @staticmethod
            def add_cli_args(parser):
                parser.add_argument(
                    "--enable-log", action=argparse.BooleanOptionalAction, default=False
                )
    """,
    "entrypoints/deep/cli_args.py": """
        from typing import Literal
        class BaseFrontendArgs:
            chat_template: str | None = None
            origins: list[str] = field(default_factory=lambda: ["*"])
            @classmethod
            def _customize(cls, frontend_kwargs):
                frontend_kwargs["origins"]["type"] = json.loads
        class FrontendArgs(BaseFrontendArgs):
            port: int = 8000
            log_level: Literal["debug", "info"] = "info"
            @classmethod
            def add_cli_args(cls, parser):
                for key, value in get_kwargs(cls).items():
                    parser.add_argument(f"--{key}", **value)
        def make_arg_parser(parser):
            parser.add_argument("model_tag", nargs="?")
            parser.add_argument("--headless", action="store_true", default=False)
            parser.add_argument("--api-server-count", "-asc", type=int, default=None)
            return parser
    """,
    "envs.py": """
        environment_variables: dict = {
            "VLLM_B": lambda: 1,
            "VLLM_A": lambda: 2,
        }
    """,
}

OLD_LAYOUT = {
    "config/__init__.py": """
        from typing import Literal, Optional, Union
        class Mode(enum.Enum):
            RAW = "raw"
            COOKED = "cooked"
        @config
        class SchedulerConfig:
            max_num_seqs: SkipValidation[int] = None
            policy: Optional[Literal["fcfs", "priority"]] = "fcfs"
            names: Optional[Union[str, List[str]]] = None
    """,
    "engine/arg_utils.py": """
        from vllm.config import SchedulerConfig, Mode
        def get_kwargs(cls):
            human_readable_ints = {"max_num_seqs"}
        class EngineArgs:
            @staticmethod
            def add_cli_args(parser):
                scheduler_kwargs = get_kwargs(SchedulerConfig)
                group.add_argument("--max-num-seqs", **scheduler_kwargs["max_num_seqs"])
                group.add_argument("--scheduling-policy", **scheduler_kwargs["policy"])
                group.add_argument("--served-model-name", **scheduler_kwargs["names"])
                group.add_argument("--compilation-config", "-O", type=json.loads, default={})
                group.add_argument("--logprobs-mode", choices=[m.value for m in Mode], default=Mode.RAW)
                group.add_argument("--use-v2", action="store_true", deprecated=True)
    """,
    "entrypoints/openai/cli_args.py": """
        @config
        class FrontendArgs:
            host: Optional[str] = None
            @staticmethod
            def add_cli_args(parser):
                frontend_kwargs = get_kwargs(FrontendArgs)
    """,
}


def make_tree(root: Path, files: dict[str, str]) -> Path:
    """A folder named vllm with these files, each text dedented."""
    package = root / "vllm"
    for name, text in {"__init__.py": "raise SystemExit('must not be imported')", **files}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return package


@pytest.fixture
def new_flags(tmp_path: Path) -> dict[str, Flag]:
    return {flag.name: flag for flag in read_serve_flags(make_tree(tmp_path, NEW_LAYOUT))}


def table_of(flags: dict[str, Flag]) -> FlagTable:
    return FlagTable("1.2.3", tuple(flags.values()))


def test_every_way_to_define_a_flag_is_read(new_flags: dict[str, Flag]) -> None:
    assert set(new_flags) == {
        *("block-size", "gpu-memory-utilization", "kv-cache-dtype", "layers", "enable-prefix-caching"),
        *("max-num-batched-tokens", "hash-algo", "hf-token", "seen", "optimization-level", "nested-config"),
        *("attention-backend", "quantization", "disable-stats", "enable-log", "chat-template", "origins"),
        *("port", "log-level", "headless", "api-server-count"),
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("block-size", Flag("block-size", kind="int", default=None, bounds=(("gt", 0),))),
        (
            "gpu-memory-utilization",
            Flag(
                "gpu-memory-utilization",
                ("--device-memory-utilization",),
                "float",
                default=0.92,
                bounds=(("gt", 0), ("le", 1)),
            ),
        ),
        ("layers", Flag("layers", kind="list", default=[])),
        ("enable-prefix-caching", Flag("enable-prefix-caching", kind="bool", negatable=True)),
        ("max-num-batched-tokens", Flag("max-num-batched-tokens", kind="size")),
        ("hash-algo", Flag("hash-algo", choices=("sha256",), default="sha256")),
        ("hf-token", Flag("hf-token", kind="optional")),
        ("seen", Flag("seen", ("-s",), "int", default=4)),
        ("disable-stats", Flag("disable-stats", kind="switch", default=False)),
        ("enable-log", Flag("enable-log", kind="bool", default=False, negatable=True)),
        ("origins", Flag("origins", kind="json", default=["*"])),
        ("port", Flag("port", kind="int", default=8000)),
        ("log-level", Flag("log-level", choices=("debug", "info"), default="info")),
        ("api-server-count", Flag("api-server-count", ("-asc",), "int")),
    ],
)
def test_kind_choices_and_default_are_as_the_source_states_them(
    new_flags: dict[str, Flag], name: str, expected: Flag
) -> None:
    assert new_flags[name] == expected


def test_choices_follow_aliases_enums_and_names_for_type_checkers(new_flags: dict[str, Flag]) -> None:
    assert set(new_flags["kv-cache-dtype"].choices or ()) == {"auto", "bfloat16", "fp8"}
    assert not new_flags["kv-cache-dtype"].open_choices
    assert new_flags["quantization"].choices == ("fp8", "awq") and new_flags["quantization"].open_choices
    assert new_flags["attention-backend"].choices == ("FLASH", "TRITON")
    assert new_flags["optimization-level"].choices == (0, 2) and new_flags["optimization-level"].default == 2


def test_a_default_that_is_computed_is_not_guessed(new_flags: dict[str, Flag]) -> None:
    assert not new_flags["nested-config"].default_known
    assert new_flags["nested-config"].kind == "json"


def test_the_layout_of_older_versions_is_read_as_well(tmp_path: Path) -> None:
    flags = {flag.name: flag for flag in read_serve_flags(make_tree(tmp_path, OLD_LAYOUT))}
    assert flags["max-num-seqs"] == Flag("max-num-seqs", kind="size", default=None)
    assert flags["scheduling-policy"].choices == ("fcfs", "priority")
    assert flags["served-model-name"].kind == "list"
    assert flags["compilation-config"].aliases == ("-O",) and flags["compilation-config"].kind == "json"
    assert flags["logprobs-mode"].choices == ("raw", "cooked") and flags["logprobs-mode"].default == "raw"
    assert flags["use-v2"].kind == "switch" and flags["host"].default is None


def test_environment_variables_are_listed(tmp_path: Path) -> None:
    assert read_known_env(make_tree(tmp_path, NEW_LAYOUT)) == ("VLLM_A", "VLLM_B")
    assert read_known_env(make_tree(tmp_path / "old", OLD_LAYOUT)) == ()


@pytest.mark.parametrize(
    ("token", "status", "name", "negated"),
    [
        ("--block-size", "exact", "block-size", False),
        ("--block_size=16", "exact", "block-size", False),
        ("--no-enable-prefix-caching", "exact", "enable-prefix-caching", True),
        ("--device-memory-utilization", "exact", "gpu-memory-utilization", False),
        ("--nested-config.key.other=3", "exact", "nested-config", False),
        ("-nc", "exact", "nested-config", False),
        ("-O3", "exact", "optimization-level", False),
        ("--gpu-memory-util", "abbreviation", "gpu-memory-utilization", False),
        ("--no-enable-prefix", "abbreviation", "enable-prefix-caching", True),
    ],
)
def test_words_resolve_as_vllms_parser_would(
    new_flags: dict[str, Flag], token: str, status: str, name: str, negated: bool
) -> None:
    found = table_of(new_flags).resolve(token)
    assert (found.status, found.flag and found.flag.name, found.negated) == (status, name, negated)


def test_ambiguous_and_unknown_words_name_candidates(new_flags: dict[str, Flag]) -> None:
    table = table_of(new_flags)
    assert table.resolve("--enable").candidates == ("--enable-log", "--enable-prefix-caching")
    assert table.resolve("--enable").status == "ambiguous"
    unknown = table.resolve("--blok-size")
    assert unknown.status == "unknown" and unknown.candidates[0] == "--block-size"
    assert table.resolve("--").status == "unknown" and table.resolve("-x").status == "unknown"


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("block-size", 16, True),
        ("block-size", "16.5", False),
        ("block-size", True, False),
        ("max-num-batched-tokens", "8k", True),
        ("max-num-batched-tokens", "many", False),
        ("gpu-memory-utilization", 0.9, True),
        ("gpu-memory-utilization", "high", False),
        ("enable-prefix-caching", False, True),
        ("enable-prefix-caching", "no", False),
        ("disable-stats", True, True),
        ("disable-stats", False, False),
        ("kv-cache-dtype", "fp8", True),
        ("kv-cache-dtype", "int4", False),
        ("optimization-level", 2, True),
        ("optimization-level", 7, False),
        ("attention-backend", "flash", True),
        ("attention-backend", "BOGUS", False),
        ("nested-config", '{"a": 1}', True),
        ("use-cuda-graph", True, False),
    ],
)
def test_values_are_accepted_or_refused_with_a_reason(
    new_flags: dict[str, Flag], name: str, value: object, accepted: bool
) -> None:
    table = table_of(new_flags)
    assert table.accepts(name, value) is accepted
    assert (table.why_not(name, value) is None) is accepted


def test_reasons_tell_version_flag_and_choices(new_flags: dict[str, Flag]) -> None:
    table = table_of(new_flags)
    assert "vLLM 1.2.3 has no --blocksize (nearest: --block-size" in (table.why_not("blocksize", 1) or "")
    assert "'int4' (choices: auto, bfloat16, fp8)" in (table.why_not("kv-cache-dtype", "int4") or "")


def make_install(package: Path) -> VllmInstall:
    return VllmInstall(Path(sys.executable), "1.2.3", "vllm", package)


def many_flags(root: Path) -> Path:
    fields = "\n".join(f"    field_{i}: int = {i}" for i in range(60))
    engine = "class EngineArgs:\n    pass\n"
    return make_tree(root, {"engine/arg_utils.py": engine, "entrypoints/c.py": f"class FrontendArgs:\n{fields}\n"})


def test_too_few_flags_stop_loudly(tmp_path: Path) -> None:
    install = make_install(make_tree(tmp_path, NEW_LAYOUT))
    with pytest.raises(EnvironmentFault, match=r"only 21 flags in vLLM 1\.2\.3"):
        read_flags(install)


def test_a_file_that_does_not_parse_is_not_a_traceback(tmp_path: Path) -> None:
    package = make_tree(tmp_path, {"engine/arg_utils.py": "class EngineArgs(:"})
    with pytest.raises(EnvironmentFault):
        read_flags(make_install(package))


def test_the_table_is_cached_and_the_cache_is_renewed_when_files_change(tmp_path: Path) -> None:
    package, cache = many_flags(tmp_path), tmp_path / "cache"
    table = load_flags(make_install(package), cache)
    (file,) = cache.iterdir()
    kept = json.loads(file.read_text())
    kept["flags"][0]["name"] = "from-the-cache"
    file.write_text(json.dumps(kept))
    assert load_flags(make_install(package), cache).get("from-the-cache")
    os.utime(package / "entrypoints/c.py", ns=(1, 1))
    assert load_flags(make_install(package), cache) == table


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version": "1", "flags": [{"x": 1}]}'])
def test_a_damaged_cache_is_read_anew(tmp_path: Path, text: str) -> None:
    package, cache = many_flags(tmp_path), tmp_path / "cache"
    table = load_flags(make_install(package), cache)
    (file,) = cache.iterdir()
    file.write_text(text)
    assert load_flags(make_install(package), cache) == table
    assert FlagTable.from_json(json.loads(file.read_text())) == table


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    assert len(load_flags(make_install(many_flags(tmp_path)), tmp_path / "cache").flags) == 60


@pytest.fixture(scope="module")
def real_install() -> VllmInstall:
    named = os.environ.get("AUTOTUNE_VLLM_PYTHON")
    installs = find_installs(Path(named) if named else None)
    if not installs:
        pytest.skip("no vLLM on PATH, beside us or in AUTOTUNE_VLLM_PYTHON")
    return installs[0]


def test_the_installed_vllm_is_read_in_under_a_second(real_install: VllmInstall) -> None:
    started = time.perf_counter()
    table = read_flags(real_install)
    took_s = time.perf_counter() - started
    assert took_s < 1.5, f"{took_s:.2f} s"
    assert len(table.flags) > 150 and "VLLM_LOGGING_LEVEL" in table.known_env
    utilization = table.get("gpu-memory-utilization")
    assert utilization and utilization.kind == "float" and 0.8 < utilization.default < 1
    assert {"auto", "fp8"} <= set((table.get("kv-cache-dtype") or Flag("")).choices or ())
    for name in ("max-num-seqs", "max-num-batched-tokens", "block-size", "enforce-eager", "quantization", "port"):
        assert table.get(name), name


PARSER_DUMP = """
import json, sys
from vllm.utils import argparse_utils
try:
    from vllm.entrypoints.common.cli_args import make_arg_parser
except ImportError:
    try:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    except ImportError:
        from vllm.entrypoints.openai.cli_args import make_arg_parser
parser = make_arg_parser(argparse_utils.FlexibleArgumentParser(prog="vllm serve"))
print("ACTIONS" + json.dumps([
    [action.option_strings, None if action.choices is None else [str(c) for c in action.choices]]
    for action in parser._actions
]))
"""


@pytest.mark.slow
@pytest.mark.e2e
def test_the_table_equals_the_parser_of_the_installed_vllm(real_install: VllmInstall) -> None:
    done = subprocess.run(
        [str(real_install.python), "-c", PARSER_DUMP], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    actions = json.loads(done.stdout.split("ACTIONS", 1)[1])
    table = read_flags(real_install)
    real = {word for words, _ in actions for word in words} - {"--help", "-h"}
    missed = sorted(word for word in real if table.resolve(word).status != "exact")
    assert len(missed) < 0.01 * len(real), missed
    for words, choices in actions:
        flag = next((flag for word in words if (flag := table.resolve(word).flag)), None)
        if flag and choices and flag.choices and not flag.open_choices:
            assert set(map(str, flag.choices)) == set(choices) - {"None"}, flag.name


@pytest.mark.parametrize(("value", "said"), [(0, "more than 0"), (1.5, "at most 1"), ("1.5", "at most 1")])
def test_a_value_beyond_the_stated_limits_is_refused(new_flags: dict[str, Flag], value: object, said: str) -> None:
    assert said in (table_of(new_flags).why_not("gpu-memory-utilization", value) or "")
    assert table_of(new_flags).accepts("gpu-memory-utilization", 1)


def test_a_parser_that_pairs_enable_with_disable_takes_both_words(new_flags: dict[str, Flag]) -> None:
    plain = table_of(new_flags)
    paired = FlagTable(plain.version, plain.flags, paired=True)
    found = paired.resolve("--disable-prefix-caching")
    assert (found.status, found.flag and found.flag.name, found.negated) == ("exact", "enable-prefix-caching", True)
    assert plain.resolve("--disable-prefix-caching").status == "unknown"


@pytest.mark.parametrize(
    ("text", "number"),
    [("8k", 8000), ("8K", 8192), ("1.5m", 1_500_000), ("auto", -1), (0.9, 0.9), ("x", None), (True, None)],
)
def test_numbers_are_read_as_vllm_reads_them(text: object, number: float | None) -> None:
    assert number_of(text) == number


OLD_PARSER = {
    "layers/__init__.py": """
        METHODS: dict = {"awq": 1, "gptq": 2}
        NAMES = list(get_args(Kinds))
        Kinds = Literal["a", "b"]
    """,
    "engine/arg_utils.py": """
        from vllm.layers import METHODS, NAMES
        class EngineArgs:
            @staticmethod
            def add_cli_args(parser):
                parser.add_argument("--method", type=str, choices=[*METHODS, None])
                parser.add_argument("--kind", choices=[*NAMES])
                parser.add_argument("--unread", choices=[*elsewhere(), "x"])
                parser.add_argument("--names", nargs="+", type=str)
                parser.add_argument("--maybe", type=str, nargs="?", const="x")
                parser.add_argument("--old", action="store_true", deprecated=True)
    """,
    "entrypoints/openai/cli_args.py": """
        def make_arg_parser(parser):
            parser.add_argument("--port", type=int, default=8000)
            return parser
    """,
}


@pytest.fixture
def old_flags(tmp_path: Path) -> dict[str, Flag]:
    for name, text in OLD_PARSER.items():
        path = tmp_path / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return {flag.name: flag for flag in read_serve_flags(tmp_path / "vllm")}


@pytest.mark.parametrize(
    "expected",
    [
        Flag("method", choices=("awq", "gptq", None)),
        Flag("kind", choices=("a", "b")),
        Flag("unread"),
        Flag("names", kind="list"),
        Flag("maybe", kind="optional"),
        Flag("old", kind="switch", default=False, deprecated=True),
        Flag("port", kind="int", default=8000),
    ],
    ids=lambda flag: flag.name,
)
def test_parsers_of_old_versions(old_flags: dict[str, Flag], expected: Flag) -> None:
    assert old_flags[expected.name] == expected


def test_a_config_class_lends_its_fields_as_keys(new_flags: dict[str, Flag]) -> None:
    assert {"block_size", "cache_dtype"} <= set(new_flags["nested-config"].keys)


def test_items_of_a_list_of_numbers_must_be_numbers() -> None:
    table = FlagTable("1.2.3", (Flag("sizes", kind="list", items="int"), Flag("words", kind="list")))
    assert table.accepts("sizes", "1 2 8") and not table.accepts("sizes", "1 x")
    assert table.accepts("words", "a b")
