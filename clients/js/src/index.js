// Runs models that relaxd compiled to WebAssembly.
export * from './errors.js';
export { targets } from './features.js';
export { loadGpu } from './gpu.js';
export { load } from './model.js';
export { pull } from './pull.js';
