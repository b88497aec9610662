// Pulls a language model, and continues prompts by the likeliest tokens.
import { load, loadGpu, pull } from './relaxd/index.js';
import { vocabularyOf } from './vocabulary.js';

onmessage = async ({ data: plan }) => {
  try {
    await write(plan, postMessage);
  } catch (error) {
    postMessage({ kind: 'end', error: `${error.name}: ${error.message}` });
  }
};

/** Reports `{kind: 'progress' | 'facts' | 'prompt' | 'token' | 'end', ...}` as it goes. */
async function write({ server, reference, prompts, tokens, capacity, threads }, report) {
  const began = performance.now();
  const onProgress = (done, total) => report({ kind: 'progress', done, total });
  const files = await pull(server, reference, { also: ['tokenizer.json'], onProgress });
  const pulled = performance.now();
  const { device } = JSON.parse(new TextDecoder().decode(files['manifest.json'])).load, onGpu = device === 'webgpu';
  const model = await (onGpu ? loadGpu(files) : load(files, { threads: threads ?? undefined })), state = await model.state({ capacity });
  const vocabulary = vocabularyOf(JSON.parse(new TextDecoder().decode(files['tokenizer.json'])));
  report({
    kind: 'facts',
    facts: {
      model: model.manifest.name,
      bundle: reference,
      target: model.manifest.target.name,
      ...(onGpu && { adapter: `${model.info.vendor} ${model.info.architecture}${model.emulated ? ', emulated' : ''}` }),
      ...((model.threads > 1 || model.lacking) && { threads: `${model.threads}${model.lacking ? `: ${model.lacking}` : ''}` }),
      library: `${(files[model.manifest.library].length / 1024).toFixed(1)} KiB`,
      weights: `${(files['weights.bin'].length / 2 ** 20).toFixed(1)} MiB`,
      pulled: `${(pulled - began).toFixed(0)} ms, every sha256 checked`,
      loaded: `${(performance.now() - pulled).toFixed(0)} ms`,
    },
  });
  let steps = 0, spent = 0;
  for (const { text, ids } of prompts) {
    const decoder = new TextDecoder();
    const tell = ([token, logit]) => {
      // A character may have bytes in several tokens.
      report({ kind: 'token', token, logit, text: decoder.decode(vocabulary.get(token), { stream: true }) });
      return token;
    };
    state.reset();
    report({ kind: 'prompt', text });
    let token = tell(likeliest(await state.step(BigInt64Array.from(ids, BigInt))));
    const first = performance.now();
    for (let i = 1; i < tokens; ++i) token = tell(likeliest(await state.step(BigInt64Array.of(BigInt(token)))));
    steps += tokens - 1;
    spent += performance.now() - first;
  }
  const memory = onGpu ? '' : `, ${(model.memory.buffer.byteLength / 2 ** 20).toFixed(0)} MiB of memory`;
  report({ kind: 'end', verdict: `${Number((steps / spent * 1000).toPrecision(3))} tokens a second${memory}` });
}

/** The token of the greatest logit in the last row, and that logit. */
function likeliest({ logits: { shape, data } }) {
  const last = data.subarray(-shape.at(-1));
  const token = last.reduce((most, value, i) => (value > last[most] ? i : most), 0);
  return [token, last[token]];
}
