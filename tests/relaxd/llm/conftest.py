from pathlib import Path

import pytest

from tests.relaxd.llm.models import KINDS, build, tokenizer


@pytest.fixture(scope="session")
def language_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Bundles with state by kind, and the folder `tokenizer`."""
    folder = tmp_path_factory.mktemp("llm")
    return {
        **{kind: build(folder, kind) for kind in KINDS},
        "tokenizer": tokenizer(folder / "tokenizer"),
    }
