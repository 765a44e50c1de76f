"""``vllm serve MODEL [flags]`` and ``vllm --version``."""

import sys


def serve(words: list[str]) -> None:
    """Parse the flags of one server and run it until it ends."""
    from vllm.engine.arg_utils import make_arg_parser
    from vllm.fake.server import run_server

    run_server(make_arg_parser(serve_command=False).parse_args(words))


def main() -> None:
    """The console script ``vllm``."""
    from vllm.engine.arg_utils import make_arg_parser
    from vllm.fake.server import run_server

    args = make_arg_parser(serve_command=True).parse_args(sys.argv[1:])
    if args.subparser != "serve":
        sys.exit(2)
    run_server(args)


if __name__ == "__main__":
    main()
