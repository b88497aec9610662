// Measures beside the page.
import { measure, readJob } from './measuring.js';

try {
  postMessage({ rows: await measure(await readJob()) });
} catch (error) {
  postMessage({ error: `${error.name}: ${error.message}` });
}
