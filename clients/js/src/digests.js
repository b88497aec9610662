// SHA-256 by the engine's own cryptography.
import { RelaxdError } from './errors.js';

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');

/** Lower-case hex sha256 of bytes. */
export async function sha256(bytes) {
  if (!globalThis.crypto?.subtle) {
    throw new RelaxdError('this page has no WebCrypto, so nothing can be checked', {
      hint: 'serve it over https, or from localhost',
    });
  }
  return hex(new Uint8Array(await crypto.subtle.digest('SHA-256', bytes)));
}
