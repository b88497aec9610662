// Shows what a check reports: from a worker, or with `?in=page` from the page itself.
import { check } from './checking.js';

const at = (id) => document.getElementById(id);
const cell = (kind, text, className = '') => Object.assign(document.createElement(kind), { textContent: text, className });

const show = {
  progress({ done, total }) {
    at('progress').value = done / total;
  },
  facts({ facts }) {
    for (const [name, text] of Object.entries(facts)) at('facts').append(cell('dt', name), cell('dd', text));
    at('verdict').textContent = 'running';
  },
  row({ dims, name, shape, ms, difference, near }) {
    const row = document.createElement('tr'), text = Object.entries(dims).map((pair) => pair.join(' = ')).join(', ');
    row.append(
      cell('td', text), cell('td', name), cell('td', shape.join(' x ')), cell('td', ms < 1 ? ms.toFixed(4) : ms.toFixed(1), 'number'),
      cell('td', difference.toExponential(1), 'number'), cell('td', near ? 'near' : 'FAR', near ? 'good' : 'bad'),
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
