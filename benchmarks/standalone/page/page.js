// Shows what was measured, as JSON: in a worker, or here where an engine starts in pages alone.
import { measure, readJob } from './measuring.js';

const job = await readJob();
if (job.provider === 'litert') {
  measure(job).then((rows) => end({ rows }), (error) => end({ error: `${error.name}: ${error.message}` }));
} else {
  const worker = new Worker('worker.js', { type: 'module' });
  worker.onmessage = ({ data }) => end(data);
  worker.onerror = ({ message }) => end({ error: message || 'the worker did not start' });
}

function end({ rows, error }) {
  document.getElementById('found').textContent = error ?? JSON.stringify(rows);
  document.body.dataset.state = error ? 'wrong' : 'measured';
}
