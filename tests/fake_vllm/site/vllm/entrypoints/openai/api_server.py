"""``python -m vllm.entrypoints.openai.api_server --model DIR``: the older way to start the server."""

import sys

from vllm.entrypoints.cli.main import serve

if __name__ == "__main__":
    serve(sys.argv[1:])
