"""`python -m benchmarks.answers PART`.

Parts are reference: greedy answers beside those of the same weights in torch; prefix: the time to
the first token behind a shared beginning; speculation: the pace with draft tokens; clients: an
endpoint under 64 clients; servers: an endpoint beside llama.cpp's.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.answers import clients, prefix, servers, speculation


def main() -> int:
    """Exit status 0 where everything is as it should be."""
    options = _parser().parse_args()
    return int(options.run(options))


def _reference(options: argparse.Namespace) -> int:
    # torch takes seconds to import.
    from benchmarks.answers import reference

    return reference.run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers", description=__doc__)
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("reference", help="greedy answers beside torch's")
    part.add_argument("model", type=Path, help="a GGUF file")
    part.add_argument("bundle", type=Path, help="what was compiled of it")
    part.add_argument("--tokens", type=int, default=48, help="of each answer")
    part.add_argument("--prompts", type=int, default=20)
    part.add_argument(
        "--beside",
        type=Path,
        help="another bundle: for how many tokens of the answers it has torch's most probable one",
    )
    part.set_defaults(run=_reference)
    part = parts.add_parser("prefix", help="the time to the first token behind a shared beginning")
    part.add_argument("bundle", type=Path)
    part.add_argument("--shared", type=int, default=512, help="tokens that prompts begin with")
    part.add_argument("--own", type=int, nargs="+", default=[1, 8, 16], help="behind them")
    part.add_argument("--turns", type=int, default=3)
    part.add_argument("--threads", type=int, default=1)
    part.set_defaults(run=prefix.run)
    part = parts.add_parser(
        "speculation", help="tokens a second with and without speculative decoding"
    )
    part.add_argument("bundle", type=Path)
    part.add_argument("--speculate", default="ngram:4", help="as of relaxd llm")
    part.add_argument("--draft", type=Path, help="the bundle of a smaller model")
    part.add_argument("--tokens", type=int, default=128, help="of each answer")
    part.add_argument("--capacity", type=int, default=640)
    part.add_argument("--turns", type=int, default=3)
    part.add_argument("--threads", type=int, default=1)
    part.set_defaults(run=speculation.run)
    part = parts.add_parser("clients", help="an endpoint under many clients")
    part.add_argument("bundle", type=Path, nargs="?", help="by default a small random model's")
    part.add_argument("--seconds", type=float, default=60)
    part.add_argument("--clients", type=int, default=64)
    part.add_argument(
        "--speculate", default="ngram:4", help="as of relaxd llm; `none` turns it off"
    )
    part.add_argument("--threads", type=int, default=1)
    part.set_defaults(run=clients.run)
    part = parts.add_parser("servers", help="first and further tokens beside llama.cpp's server")
    part.add_argument("bundle", type=Path)
    part.add_argument("model", type=Path, help="the GGUF file that it was compiled of")
    part.add_argument("--server", type=Path, required=True, help="llama.cpp's llama-server")
    part.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32], help="at once")
    part.add_argument("--seconds", type=float, default=60, help="of each round")
    part.add_argument("--rounds", type=int, default=3)
    part.add_argument("--threads", type=int, default=2)
    part.set_defaults(run=servers.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
