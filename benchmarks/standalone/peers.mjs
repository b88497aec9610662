// Engines that are compared: each opener takes a model's bytes and gives a session, whose runs give results by name.

/** onnxruntime-web; provider: `wasm` or `webgpu`. */
export function onnxruntime(ort, threads, provider) {
  ort.env.wasm.numThreads = threads;
  ort.env.logLevel = 'error';
  return async (bytes) => {
    const session = await ort.InferenceSession.create(bytes, { executionProviders: [provider] });
    return {
      feed: (inputs) => Object.fromEntries(inputs.map(({ name, dtype, shape, data }) => [name, new ort.Tensor(dtype, data, shape)])),
      async run(feed) {
        const results = await session.run(feed);
        return Object.fromEntries(session.outputNames.map((name) => [name, results[name].data]));
      },
      close: () => session.release(),
    };
  };
}

/** LiteRT.js on the processor, of which the scripts lie at `scripts`. */
export async function litert({ loadLiteRt, loadAndCompile, Tensor }, scripts) {
  await loadLiteRt(scripts);
  return async (bytes) => {
    const model = await loadAndCompile(bytes, { accelerator: 'wasm' });
    const names = model.getOutputDetails().map(({ name }) => name);
    return {
      feed: (inputs) => inputs.map(({ data, shape }) => new Tensor(data, shape)),
      async run(feed) {
        const tensors = await model.run(feed);
        const results = Object.fromEntries(tensors.map((tensor, i) => [names[i], tensor.toTypedArray()]));
        for (const tensor of tensors) tensor.delete();
        return results;
      },
      close: () => model.delete(),
    };
  };
}
