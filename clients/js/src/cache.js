// Keeps blobs in the browser's Cache API.
import { sha256 } from './digests.js';

/** Content has no address but its digest: nothing is fetched from this one. */
const addressOf = (digest) => `https://blobs.invalid/${digest.replace(':', '/')}`;

/** The bytes of a digest from the cache of that name, after `found()`, else those that `get` gives, which it keeps. */
export async function kept(name, digest, get, found) {
  const cache = await globalThis.caches?.open(name), address = addressOf(digest);
  const response = await cache?.match(address);
  if (response) {
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (`sha256:${await sha256(bytes)}` === digest) {
      found();
      return bytes;
    }
    await cache.delete(address);
  }
  const bytes = await get();
  try {
    await cache?.put(address, new Response(bytes));
  } catch (error) {
    // Where the browser has no room left, the next pull fetches again.
    if (error.name !== 'QuotaExceededError') throw error;
  }
  return bytes;
}
