// Shows what a worker measured, as JSON.
const worker = new Worker('worker.js', { type: 'module' });
worker.onmessage = ({ data }) => end(data);
worker.onerror = ({ message }) => end({ error: message || 'the worker did not start' });

function end({ rows, error }) {
  document.getElementById('found').textContent = error ?? JSON.stringify(rows);
  document.body.dataset.state = error ? 'wrong' : 'measured';
}
