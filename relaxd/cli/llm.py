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
        typer.Option(help="The name of the model in the API.", show_default="the bundle's name"),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8485,
    sequences: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The number of requests that are batched.",
            show_default="8, or the model's largest batch",
        ),
    ] = None,
    capacity: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="The maximum number of tokens of a prompt and its completion.",
            show_default="the bundle's maximum",
        ),
    ] = None,
    waiting: Annotated[
        int, typer.Option(min=0, help="The number of requests that may wait; more are refused.")
    ] = 64,
    sharing: Annotated[
        bool,
        typer.Option(
            "--sharing/--no-sharing",
            help="Reuse the KV cache of another prompt with the same beginning.",
        ),
    ] = True,
    cache_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="The memory of the KV cache, as in 4GiB: of requests that run, and of prompts and "
            "completions that later ones may begin with. Where it is full, those that were not "
            "used for longest are dropped, then requests wait.",
            show_default="as much as --sequences of --capacity tokens fill",
        ),
    ] = None,
    cache_disk: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Move what does not fit in --cache-memory to a file in this folder, not drop it.",
            show_default=False,
        ),
    ] = None,
    cache_disk_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="The largest size of that file.",
            show_default="four times --cache-memory",
        ),
    ] = None,
    pages: Annotated[
        bool,
        typer.Option(
            "--pages/--no-pages",
            help="Keep the KV cache in pages that sequences share, where system and bundle admit "
            "it.",
        ),
    ] = True,
    speculate: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE[:N]",
            help="Speculative decoding with up to N draft tokens (default 4): ngram copies what "
            "followed the same tokens before, draft runs the model of --draft.",
            show_default="off",
        ),
    ] = None,
    draft: Annotated[
        Path | None,
        typer.Option(
            metavar="BUNDLE", help="The draft model: a smaller one with the same tokenizer."
        ),
    ] = None,
    lora_modules: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH",
            help="An adapter that requests choose by NAME as their model: a folder of PEFT's, or a "
            "GGUF file; may be repeated. The bundle must be compiled with the option lora_rank.",
            show_default=False,
        ),
    ] = None,
    max_loras: Annotated[
        int, typer.Option(min=1, help="The number of adapters that may be loaded at once.")
    ] = 16,
    allow_lora_updates: Annotated[
        bool,
        typer.Option(
            "--allow-lora-updates",
            help="Let clients load adapters from paths of this machine, and drop them, by "
            "/v1/load_lora_adapter and /v1/unload_lora_adapter.",
        ),
    ] = False,
    threads: Threads = None,
    port_file: PortFile = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="RELAXD_API_KEY",
            help="The key that requests must carry as `Authorization: Bearer KEY`. Prefer the "
            "variable: others on this machine can read a command line.",
            show_default="none is asked for",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name by which clients may call this server where there is no key, beside "
            "addresses and names of this machine; may be repeated.",
            show_default=False,
        ),
    ] = None,
    max_connections: Annotated[
        int, typer.Option(min=1, help="The number of clients that may be connected.")
    ] = 1024,
) -> None:
    """Serve a language model, compiled with an in-place KV cache, to clients of the OpenAI API.

    Compile the model with the option `state=lifted`. The server answers /v1/chat/completions,
    /v1/completions, /v1/models and, for Prometheus, /metrics. Without --api-key, anyone who reaches
    the address can use it.

    The bundle of an encoder, which has no KV cache, answers /v1/embeddings and /v1/rerank instead.

    The bundle of a GGUF file or a Hugging Face folder includes its tokenizer; --tokenizer overrides
    it.

    With --speculate, draft tokens are verified in one call, and those that the model would not have
    generated are dropped: the output is the same, and repetitive text, such as code or quotes of
    the prompt, is generated faster.

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
            loras=serving.Loras(max_loras, tuple(lora_modules or ()), allow_lora_updates),
            threads=threads,
            access=serving.Access(key=api_key or None, hosts=frozenset(allow_host or ())),
            max_connections=max_connections,
            cache=serving.CacheMemory.parse(cache_memory, cache_disk, cache_disk_size, pages=pages),
        )
