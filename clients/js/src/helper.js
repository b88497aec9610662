// One of a model's threads: an instance of its module over the memory of the one that leads.
async function serve({ module, memory, entry, number, stack }, ready) {
  const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
  ready('at work');
  for (;;) {
    try {
      exports.__stack_pointer.value = stack;
      exports[`${entry}_help`](number);
    } catch {
      // Called again, it states that its task has failed.
    }
  }
}

if (globalThis.WorkerGlobalScope) {
  onmessage = ({ data }) => serve(data, postMessage);
} else {
  import(/* webpackIgnore: true */ `node:${'worker_threads'}`).then(({ parentPort }) => {
    parentPort.once('message', (data) => serve(data, (text) => parentPort.postMessage(text)));
  });
}
