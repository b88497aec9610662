// Shows what a check reports: from a worker, or with `?in=page` from the page itself.
import { check } from './checking.js';
import { at, facts, made, progress } from './display.js';

const show = {
  progress,
  facts: facts('running'),
  row({ dims, name, shape, ms, difference, near }) {
    const row = document.createElement('tr'), text = Object.entries(dims).map((pair) => pair.join(' = ')).join(', ');
    row.append(
      made('td', text), made('td', name), made('td', shape.join(' x ')), made('td', ms < 1 ? ms.toFixed(4) : ms.toFixed(1), 'number'),
      made('td', difference.toExponential(1), 'number'), made('td', near ? 'near' : 'FAR', near ? 'good' : 'bad'),
    );
    at('rows').append(row);
  },
  end({ near, error }) {
    at('verdict').textContent = error ?? (near ? 'agrees with ONNX Runtime' : 'differs from ONNX Runtime');
    at('verdict').className = near ? 'good' : 'bad';
    document.body.dataset.state = near ? 'near' : 'wrong';
  },
};
const report = (message) => show[message.kind](message);

const plan = await (await fetch('plan.json')).json();
if (new URLSearchParams(location.search).get('in') === 'page') {
  await check(plan, report).catch((error) => report({ kind: 'end', near: false, error: `${error.name}: ${error.message}` }));
} else {
  const worker = new Worker('worker.js', { type: 'module' });
  worker.onmessage = ({ data }) => report(data);
  worker.onerror = () => report({ kind: 'end', near: false, error: 'the worker did not start' });
  worker.postMessage(plan);
}
