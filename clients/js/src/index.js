// Runs models that relaxd compiled to WebAssembly.
export * from './errors.js';
export { targets } from './features.js';
export { load } from './model.js';
export { pull } from './pull.js';

/** As `load`, for a bundle whose target is webgpu. Pages without such bundles need not fetch this module. */
export const loadGpu = async (...given) => (await import('./gpu.js')).loadGpu(...given);
