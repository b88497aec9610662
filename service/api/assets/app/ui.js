/** Small parts of every page: state marks, badges, digests, commands, problems. */
import { html, useEffect, useRef, useState } from "./lib.js";
import { short } from "./format.js";

export const STATES = {
  queued: "queued",
  running: "running",
  succeeded: "succeeded",
  failed: "failed",
  cancelled: "cancelled",
  timed_out: "timed out",
};

const SHAPES = {
  queued: html`<circle cx="8" cy="8" r="5.6" fill="none" stroke="currentColor" stroke-width="1.8" stroke-dasharray="2.2 2.2" />`,
  running: html`<g class="turn" fill="none" stroke="currentColor" stroke-width="2.2">
    <circle cx="8" cy="8" r="5.6" opacity=".25" /><path d="M8 2.400a5.600 5.600 0 0 1 5.600 5.600" stroke-linecap="round" />
  </g>`,
  succeeded: html`<path d="M2.600 8.600l3.500 3.600 7.300-8" fill="none" stroke="currentColor" stroke-width="2.200" />`,
  failed: html`<path d="M3.500 3.500l9 9m0-9l-9 9" fill="none" stroke="currentColor" stroke-width="2.200" />`,
  cancelled: html`<path d="M3 8h10" fill="none" stroke="currentColor" stroke-width="2.200" />`,
  timed_out: html`<g fill="none" stroke="currentColor" stroke-width="1.800"><circle cx="8" cy="8" r="5.800" /><path d="M8 4.600V8l2.400 1.800" /></g>`,
};

/** The state as a mark; its word is there for screen readers unless `named` beside it. */
export const State = ({ state, named }) => html`
  <svg class="state ${state}" viewBox="0 0 16 16" role=${named ? undefined : "img"}
    aria-hidden=${named ? "true" : undefined} aria-label=${named ? undefined : STATES[state]}>${SHAPES[state]}</svg>`;

const STATUS = {
  executed: ["good", "executed", "The library was run on such a processor and agreed with the reference."],
  emulated: ["good", "emulated", "The library was run under an emulator and agreed with the reference."],
  compiled_only: ["warn", "compiled only", "The library was not run: nothing at the worker can run it."],
  unverified: ["warn", "unverified", "The library was not run: the request has verify off."],
};

export function Status({ status }) {
  if (!status) return null;
  const [kind, word, meaning] = STATUS[status] || ["", status, ""];
  return html`<span class="badge ${kind}" title=${meaning}>${word}</span>`;
}

const ICON = {
  copy: html`<path d="M5.500 5.500V3h7.500v8h-2.500M3 5.500h7.500v8H3z" />`,
  done: html`<path d="M3 8.500l3.500 3.500L13 4.500" />`,
  sun: html`<circle cx="8" cy="8" r="3" /><path d="M8 1v2M8 13v2M1 8h2M13 8h2M3 3l1.400 1.400M11.600 11.600L13 13M13 3l-1.400 1.400M4.400 11.600L3 13" />`,
  moon: html`<path d="M13 9.500A5.500 5.500 0 0 1 6.500 3a5.500 5.500 0 1 0 6.500 6.500z" />`,
  leave: html`<path d="M6 3H3v10h3M7 8h7M11 5l3 3-3 3" />`,
  down: html`<path d="M8 2v8M4.500 7L8 10.500 11.500 7M3 13.500h10" />`,
};

export const Icon = ({ name }) => html`
  <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.400">${ICON[name]}</svg>`;

export function Copy({ text, what }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await toClipboard(text);
    setDone(true);
    setTimeout(() => setDone(false), 1600);
  };
  return html`<button type="button" class="copy" onClick=${copy} aria-label=${done ? "Copied" : `Copy ${what}`} title=${`Copy ${what}`}>
    <${Icon} name=${done ? "done" : "copy"} />
  </button>`;
}

/** Pages that come without TLS have no clipboard but that of a selection. */
async function toClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  return undefined;
}

export const Digest = ({ digest, what = "digest" }) => html`
  <span class="digest" title=${digest}>${short(digest)}<${Copy} text=${digest} what=${what} /></span>`;

export const Command = ({ text, what }) => html`
  <div class="command"><pre tabindex="0" role="group" aria-label=${what}>${text}</pre><${Copy} text=${text} what=${what} /></div>`;

/** A problem as the service words it, with what to change. */
export const Trouble = ({ error, again }) => html`
  <div class="note bad" role="alert">
    <div class="body">
      <p><strong>${error.message}</strong></p>
      ${error.hint && html`<p>${error.hint}</p>`}
      ${error.code && html`<p class="mono quiet">${error.code}${error.document?.request_id ? `, request ${error.document.request_id}` : ""}</p>`}
    </div>
    ${again && html`<button type="button" class="button small" onClick=${again}>Try again</button>`}
  </div>`;

export const Loading = ({ what = "Loading" }) => html`
  <div class="loading" role="status"><span class="unseen">${what}</span><i></i><i></i><i></i></div>`;

export const Switch = ({ label, options, value, onChange }) => html`
  <div class="switch" role="group" aria-label=${label}>
    ${options.map(([key, word]) => html`<button type="button" key=${key} aria-pressed=${String(value === key)} onClick=${() => onChange(key)}>${word}</button>`)}
  </div>`;

/** A button for what cannot be undone: it is asked once more. */
export function Sure({ word, sure, onSure }) {
  const [asked, setAsked] = useState(false);
  const yes = useRef();
  const opener = useRef();
  const first = useRef(true);
  useEffect(() => {
    // Whoever types finds the question, and then the button again.
    if (!first.current) (asked ? yes : opener).current?.focus();
    first.current = false;
  }, [asked]);
  if (!asked) return html`<button type="button" class="button small bare" ref=${opener} aria-label=${sure.startsWith(word) ? sure : undefined} onClick=${() => setAsked(true)}>${word}</button>`;
  const answer = (given) => (setAsked(false), given && onSure());
  return html`<span class="row sure" role="group" aria-label=${`${sure}?`} onKeyDown=${(event) => event.key === "Escape" && answer(false)}>
    <button type="button" class="button small danger" ref=${yes} onClick=${() => answer(true)}>${sure}</button>
    <button type="button" class="button small bare" onClick=${() => answer(false)}>Keep</button></span>`;
}

/** What a promise gives: `{data, error, again}`, asked for anew when one of `inputs` changes. */
export function useLoaded(load, inputs) {
  const [state, setState] = useState({});
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    setState((old) => (turn ? old : {}));
    load(stop.signal)
      .then((data) => setState({ data }))
      .catch((error) => error.name !== "AbortError" && setState({ error }));
    return () => stop.abort();
  }, [...inputs, turn]);
  return { ...state, again: () => setTurn((old) => old + 1) };
}

/** Calls `tick` every so many milliseconds while the page is seen. */
export function useTicks(tick, pause) {
  const latest = useRef(tick);
  latest.current = tick;
  useEffect(() => {
    const timer = setInterval(() => document.hidden || latest.current(), pause);
    return () => clearInterval(timer);
  }, [pause]);
}

/** Kinds of kernels that share a colour, by the family that made them. */
const COLOURS = [
  [/winograd|conv/, "conv"],
  [/attention/, "attention"],
  [/int8/, "int8"],
  [/matmul/, "matmul"],
  [/recurrent|linear_attention/, "recurrent"],
  [/pool/, "pool"],
  [/copy|transpose/, "move"],
];

export const colour = (family) => COLOURS.find(([known]) => known.test(family || ""))?.[1] || "generic";
