/** What the stream of all jobs has told: the queue, and each job that changed. */
import { useEffect, useState } from "./lib.js";
import { follow } from "./api.js";

const LONGEST_PAUSE = 15_000;

let queue = null;
const listeners = new Set();

const tell = (type, data) => {
  for (const listener of listeners) listener(type, data);
};

/** Follows the stream until the function that comes back is called; after a gap, `again` is told. */
export function watch() {
  const stop = new AbortController();
  run(stop.signal);
  return () => stop.abort();
}

async function run(signal) {
  let pause = 1000;
  for (let turn = 0; !signal.aborted; turn += 1) {
    try {
      await follow("v1/overview/events", (type, data) => {
        pause = 1000;
        if (type === "queue") queue = data;
        tell(type, data);
        if (turn && type === "queue") {
          turn = 0;
          tell("again", null);
        }
      }, { signal });
    } catch (error) {
      if (error.name === "AbortError") return;
    }
    tell("away", null);
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(LONGEST_PAUSE, pause * 2);
  }
}

/** Calls `on(type, data)` for what the stream tells while the component is shown. */
export function useUpdates(on) {
  useEffect(() => {
    listeners.add(on);
    return () => listeners.delete(on);
  }, []);
}

export function useQueue() {
  const [found, setFound] = useState(queue);
  useUpdates((type, data) => type === "queue" && setFound(data));
  return found;
}
