from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.relaxd.llm.models import KINDS, build, tokenizer

if TYPE_CHECKING:
    import openai


@pytest.fixture(scope="session")
def language_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Bundles with state by kind, and the folder `tokenizer`."""
    folder = tmp_path_factory.mktemp("llm")
    return {
        **{kind: build(folder, kind) for kind in KINDS},
        "tokenizer": tokenizer(folder / "tokenizer"),
    }


@pytest.fixture
def client(address: str) -> "Iterator[openai.OpenAI]":
    """OpenAI's client of the endpoint that a module's `address` serves."""
    import openai

    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as created:
        yield created
