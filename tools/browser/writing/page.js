// Shows what a worker writes, each token as it comes.
import { at, facts, made, progress } from './display.js';

const show = {
  progress,
  facts: facts('writing'),
  prompt({ text }) {
    const line = made('p', '', 'text');
    line.append(made('b', text));
    at('texts').append(line);
  },
  token({ token, logit, text }) {
    const piece = made('span', text);
    Object.assign(piece.dataset, { token, logit });
    at('texts').lastElementChild.append(piece);
  },
  end({ verdict, error }) {
    at('verdict').textContent = error ?? verdict;
    at('verdict').className = error ? 'bad' : 'good';
    document.body.dataset.state = error ? 'wrong' : 'written';
  },
};
const report = (message) => show[message.kind](message);

const worker = new Worker('worker.js', { type: 'module' });
worker.onmessage = ({ data }) => report(data);
worker.onerror = () => report({ kind: 'end', error: 'the worker did not start' });
worker.postMessage(await (await fetch('plan.json')).json());
