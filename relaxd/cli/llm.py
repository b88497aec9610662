"""`relaxd llm`: serves a language model to clients of OpenAI's API."""

from pathlib import Path
from typing import Annotated

import typer

from relaxd.cli.run import BundlePath, Threads
from relaxd.cli.serving import Host, Port, PortFile
from relaxd.client import extras


def llm_command(
    bundle: BundlePath,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder of tokenizer.json and its settings.",
            show_default="the bundle's own",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="What clients call the model.", show_default="the bundle's name"),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8485,
    sequences: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many requests are answered at once.",
            show_default="8, or what the model's batch admits",
        ),
    ] = None,
    capacity: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Tokens of a prompt and its answer together.",
            show_default="what the bundle admits",
        ),
    ] = None,
    waiting: Annotated[
        int, typer.Option(min=0, help="How many more requests may wait before one is refused.")
    ] = 64,
    sharing: Annotated[
        bool,
        typer.Option(
            "--sharing/--no-sharing",
            help="Let a prompt take the rows of another with the same beginning.",
        ),
    ] = True,
    speculate: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE[:N]",
            help="Guess up to N tokens at once, 4 by default: ngram takes what stood behind the "
            "same words, draft asks the bundle of --draft.",
            show_default="no guesses",
        ),
    ] = None,
    draft: Annotated[
        Path | None,
        typer.Option(metavar="BUNDLE", help="A smaller model with the same tokenizer."),
    ] = None,
    threads: Threads = None,
    port_file: PortFile = None,
) -> None:
    """Serve BUNDLE, a language model compiled with state=lifted, to clients of OpenAI's API.

    /v1/chat/completions, /v1/completions and /v1/models; Prometheus' metrics at /metrics. Anybody
    who reaches the address may use it.

    A bundle made of a GGUF file or a folder of Hugging Face's brings its tokenizer; --tokenizer
    names the folder of another.

    Guesses change no answer: a call computes them with the token that they follow, and those that
    the model would not have chosen are dropped. Text that repeats, such as code or what stands in
    the prompt, comes sooner.

    Example: [bold]relaxd llm out --tokenizer export --speculate ngram:4[/]
    """
    serving = extras.load("relaxd.llm.serving", extra="llm")
    with extras.runtime():
        serving.serve(
            bundle,
            tokenizer,
            name=name,
            address=(host, port),
            port_file=port_file,
            sequences=sequences,
            capacity=capacity,
            waiting=waiting,
            sharing=sharing,
            speculate=speculate,
            draft=draft,
            threads=threads,
        )
