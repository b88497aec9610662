import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { PullError, load, pull } from 'relaxd';
import { files, sha256 } from './bundle.mjs';

const INDEX = 'application/vnd.oci.image.index.v1+json';
const TOKEN = 'secret';
const blobs = new Map(), seen = [];
let server, url, reference;

function store(bytes) {
  const digest = `sha256:${sha256(bytes)}`;
  blobs.set(digest, bytes);
  return { digest, size: bytes.length };
}

const document = (value) => store(Buffer.from(JSON.stringify(value)));

function bundle(content = files()) {
  const layers = Object.entries({ ...content, LICENSES: Buffer.from('text') }).map(([name, bytes]) => ({
    ...store(bytes), mediaType: 'application/octet-stream', annotations: { 'org.opencontainers.image.title': name },
  }));
  return document({ schemaVersion: 2, layers });
}

before(async () => {
  reference = `relaxd/bundles@${bundle().digest}`;
  server = createServer((request, response) => {
    seen.push(request);
    const digest = decodeURIComponent(request.url.split('/').at(-1));
    const status = request.headers.authorization !== `Bearer ${TOKEN}` ? 401 : blobs.has(digest) ? 200 : 404;
    response.writeHead(status);
    response.end(status === 200 ? blobs.get(digest) : JSON.stringify({ errors: [{ message: `status ${status}` }] }));
  }).listen(0, '127.0.0.1');
  await new Promise((ready) => { server.on('listening', ready); });
  url = `http://127.0.0.1:${server.address().port}`;
});

after(() => server.close());

test('a bundle comes by digest, and nothing that running does not need', async () => {
  seen.length = 0;
  const steps = [];
  const found = await pull(url, reference, { token: TOKEN, onProgress: (...step) => steps.push(step) });
  assert.deepEqual(Object.keys(found).sort(), ['manifest.json', 'model.wasm', 'weights.bin']);
  assert.equal(seen.length, 4);
  const size = found['model.wasm'].length + found['weights.bin'].length;
  assert.deepEqual(steps.at(-1), [size, size]);
  const { y } = (await load(found)).run({ x: new Float32Array(6).fill(1) }, { n: 1 });
  assert.deepEqual([...y.data], [0.5, 2, -1, 0.5, 2, -1]);
});

test('files are kept by their digests, and compared when they are taken', async (t) => {
  const stored = new Map();
  let refusal = null;
  const cache = {
    match: async (address) => stored.get(address)?.clone(),
    delete: async (address) => stored.delete(address),
    async put(address, response) {
      if (refusal) throw refusal;
      stored.set(address, response);
    },
  };
  globalThis.caches = { open: async () => cache };
  t.after(() => { delete globalThis.caches; });
  const steps = [];
  const again = async () => {
    seen.length = steps.length = 0;
    const found = await pull(url, reference, { token: TOKEN, cache: 'models', onProgress: (...step) => steps.push(step) });
    const size = found['model.wasm'].length + found['weights.bin'].length;
    assert.deepEqual(steps.at(-1), [size, size]);
    for (const [name, bytes] of Object.entries(files())) assert.ok(bytes.equals(found[name]), name);
    return seen.map((request) => request.url.split('/').at(-2));
  };
  assert.deepEqual(await again(), ['manifests', 'blobs', 'blobs', 'blobs']);
  assert.deepEqual(await again(), ['manifests']);
  const [address] = stored.keys();
  stored.set(address, new Response('other'));
  assert.deepEqual(await again(), ['manifests', 'blobs']);
  assert.deepEqual(await again(), ['manifests']);
  stored.clear();
  refusal = new DOMException('full', 'QuotaExceededError');
  assert.equal((await again()).length, 4);
  refusal = new TypeError('broken');
  await assert.rejects(again(), /broken/);
  delete globalThis.caches;
  assert.equal((await again()).length, 4);
});

test('other files of the bundle come where they are asked for', async () => {
  const found = await pull(url, reference, { token: TOKEN, also: ['LICENSES'] });
  assert.equal(String(Buffer.from(found.LICENSES)), 'text');
  await assert.rejects(pull(url, reference, { token: TOKEN, also: ['words'] }), { code: 'client.pull', message: /lacks words/ });
});

test('the digest alone is enough, and a slash behind the address does not matter', async () => {
  await pull(`${url}/`, reference.split('@')[1], { token: TOKEN });
  assert.match(seen.at(-1).url, /^\/v2\/relaxd\/bundles\/blobs\//);
});

test('of an index the fastest that this engine runs is taken, or the one asked for', async () => {
  const one = (target, bytes) => ({
    ...bundle({ ...files(), 'weights.bin': bytes }), annotations: { 'org.relaxd.target': target },
  });
  const [slow, fast] = [Buffer.from('slow'), Buffer.from('fast')];
  const manifests = [one('native', Buffer.from('none')), one('wasm32', slow), one('wasm32-simd', fast)];
  const index = document({ mediaType: INDEX, manifests }).digest;
  assert.equal(String(Buffer.from((await pull(url, index, { token: TOKEN }))['weights.bin'])), 'fast');
  const found = await pull(url, index, { token: TOKEN, target: 'wasm32' });
  assert.equal(String(Buffer.from(found['weights.bin'])), 'slow');
  const lacking = document({ mediaType: INDEX, manifests: [manifests[0]] }).digest;
  await assert.rejects(pull(url, lacking, { token: TOKEN }), { code: 'client.pull', message: /it has native/ });
});

test('content that belies its digest is refused, whichever it is', async () => {
  const kept = new Map(blobs);
  for (const digest of [reference.split('@')[1], ...Object.values(files()).map((bytes) => `sha256:${sha256(bytes)}`)]) {
    const bytes = Buffer.from(kept.get(digest));
    bytes[bytes.length - 2] ^= 1;
    blobs.set(digest, bytes);
    await assert.rejects(pull(url, reference, { token: TOKEN }), (error) => error instanceof PullError && error.message.includes(digest));
    blobs.set(digest, kept.get(digest));
  }
  const weights = `sha256:${sha256(files()['weights.bin'])}`;
  blobs.set(weights, Buffer.alloc(1 << 20));
  await assert.rejects(pull(url, reference, { token: TOKEN, onProgress() {} }), /longer than it should be/);
  blobs.set(weights, kept.get(weights));
});

test('a tag, or what is no bundle, is refused', async () => {
  await assert.rejects(pull(url, 'relaxd/bundles:latest'), { code: 'client.pull', message: /a tag may change/ });
  const other = document({ layers: [] }).digest;
  await assert.rejects(pull(url, other, { token: TOKEN }), { code: 'client.pull', message: /is not a bundle/ });
});

test('what the service refuses, and one that is not there, are errors of their own', async () => {
  await assert.rejects(pull(url, reference), { code: 'server.problem', status: 401, message: /status 401/ });
  await assert.rejects(pull('http://127.0.0.1:9', reference), { code: 'server.unreachable', message: /RELAXD_PULL_ORIGINS/ });
});

test('a pull can be given up', async () => {
  const signal = AbortSignal.abort();
  await assert.rejects(pull(url, reference, { token: TOKEN, signal }), { name: 'AbortError' });
});
