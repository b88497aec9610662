// Pulls a bundle by digest from a registry, and checks every byte.
import { kept } from './cache.js';
import { sha256 } from './digests.js';
import { PullError, ServerError, ServerUnreachable } from './errors.js';
import { targets } from './features.js';

const MANIFEST = 'application/vnd.oci.image.manifest.v1+json';
const INDEX = 'application/vnd.oci.image.index.v1+json';
const REFERENCE = /^(?:([a-z0-9._/-]+)@)?(sha256:[0-9a-f]{64})$/;

/** The files of a bundle by name, as `load` takes them. */
export async function pull(server, reference, options = {}) {
  const [, name = 'relaxd/bundles', digest] = REFERENCE.exec(reference) ?? [];
  if (!digest) {
    throw new PullError(`${reference} is not a digest`, {
      hint: 'as in relaxd/bundles@sha256:<64 hex>; a tag may change, so it proves nothing',
    });
  }
  const registry = new Registry(`${String(server).replace(/\/$/, '')}/v2/${name}`, options);
  let artifact = await registry.document(digest);
  if (artifact.manifests) artifact = await registry.document(choose(artifact, options.target));
  return registry.files(artifact.layers ?? [], options.also);
}

class Registry {
  constructor(base, { token, signal, onProgress, cache, fetch = globalThis.fetch }) {
    Object.assign(this, { base, signal, onProgress, cache, fetch: (...given) => fetch(...given) });
    this.headers = token ? { Authorization: `Bearer ${token}` } : {};
  }

  async document(digest) {
    const bytes = await this.get(`manifests/${digest}`, digest, { Accept: `${MANIFEST}, ${INDEX}` });
    return JSON.parse(new TextDecoder().decode(bytes));
  }

  async files(layers, also = []) {
    const named = new Map(layers.map((layer) => [titleOf(layer), layer]));
    const manifestLayer = named.get('manifest.json');
    if (!manifestLayer) throw new PullError('the artifact is not a bundle: it has no manifest.json');
    const bytes = await this.blob(manifestLayer.digest);
    const manifest = JSON.parse(new TextDecoder().decode(bytes));
    const wanted = [manifest.library, ...(manifest.weights?.length ? [manifest.weights_file] : []), ...also];
    const progress = { done: 0, total: 0 };
    const found = await Promise.all(wanted.map(async (name) => {
      const layer = named.get(name);
      if (!layer) throw new PullError(`the artifact lacks ${name}`);
      progress.total += layer.size;
      return [name, await this.blob(layer.digest, layer.size, progress)];
    }));
    return Object.fromEntries([['manifest.json', bytes], ...found]);
  }

  blob(digest, size, progress) {
    const get = () => this.get(`blobs/${digest}`, digest, {}, size, progress);
    return this.cache ? kept(this.cache, digest, get, () => progress && this.advance(progress, size)) : get();
  }

  advance(progress, bytes) {
    progress.done += bytes;
    this.onProgress?.(progress.done, progress.total);
  }

  async get(path, digest, headers, size, progress) {
    const url = `${this.base}/${path}`;
    const response = await this.ask(url, headers);
    const bytes = await this.body(response, size, progress);
    if (`sha256:${await sha256(bytes)}` !== digest) {
      throw new PullError(`${url} gave something else than ${digest}`, { hint: 'pull again' });
    }
    return bytes;
  }

  async ask(url, headers) {
    let response;
    try {
      response = await this.fetch(url, {
        headers: { ...this.headers, ...headers }, signal: this.signal, credentials: 'omit',
      });
    } catch (cause) {
      if (this.signal?.aborted) throw cause;
      throw new ServerUnreachable(`no answer from ${url}`, {
        cause, hint: "is the page's origin in RELAXD_PULL_ORIGINS, and the server in its connect-src?",
      });
    }
    if (response.ok) return response;
    const problem = await response.json().catch(() => null);
    const why = problem?.errors?.[0]?.message ?? response.statusText;
    throw new ServerError(`${url}: ${response.status} ${why}`, { status: response.status });
  }

  async body(response, size, progress) {
    if (!progress || !this.onProgress || !response.body) {
      return new Uint8Array(await response.arrayBuffer());
    }
    const bytes = new Uint8Array(size);
    const reader = response.body.getReader();
    for (let at = 0; ;) {
      const { done, value } = await reader.read();
      if (done) return bytes;
      if (at + value.length > size) throw new PullError(`${response.url} is longer than it should be`);
      bytes.set(value, at);
      at += value.length;
      this.advance(progress, value.length);
    }
  }
}

const titleOf = (layer) => layer.annotations?.['org.opencontainers.image.title'];

function choose(index, wanted) {
  const built = new Map(index.manifests.map((one) => [one.annotations?.['org.relaxd.target'], one.digest]));
  const able = wanted ? [wanted] : targets();
  const target = able.find((one) => built.has(one));
  if (target) return built.get(target);
  throw new PullError(`the index has no bundle for ${able.join(' or ')}`, {
    hint: `it has ${[...built.keys()].join(', ')}`,
  });
}
