// A page pulls a bundle twice with a cache, and so does a service worker, which is this script too: what each fetched,
// and what the model gave.
import { load, pull } from './relaxd/index.js';

const CACHE = 'models';

async function pulled() {
  const { reference, paths } = await (await fetch('registry.json')).json(), fetched = [];
  const from = (url) => {
    const digest = url.split('/').at(-1);
    fetched.push(paths[digest]);
    return fetch(paths[digest]);
  };
  const model = await load(await pull('https://models.example', reference, { cache: CACHE, fetch: from }));
  const { y } = model.run({ x: new Float32Array(6).fill(1) }, { n: 1 });
  return { fetched: fetched.sort(), y: [...y.data] };
}

/** What the service worker answers. */
async function asked() {
  const { installing } = await navigator.serviceWorker.register('page.js', { type: 'module', scope: './elsewhere/' });
  const { port1, port2 } = new MessageChannel();
  installing.postMessage(null, [port2]);
  return new Promise((resolve) => { port1.onmessage = ({ data }) => resolve(data); });
}

async function report() {
  await caches.delete(CACHE);
  const found = [await pulled(), await pulled(), await asked()];
  document.body.textContent = JSON.stringify(found);
  document.body.dataset.state = 'done';
}

if (globalThis.ServiceWorkerGlobalScope) {
  onmessage = ({ ports: [port] }) => pulled().catch((error) => String(error)).then((found) => port.postMessage(found));
} else {
  report();
}
