// Runs the check beside the page.
import { check } from './checking.js';

onmessage = async ({ data: plan }) => {
  try {
    await check(plan, postMessage);
  } catch (error) {
    postMessage({ kind: 'end', near: false, error: `${error.name}: ${error.message}` });
  }
};
