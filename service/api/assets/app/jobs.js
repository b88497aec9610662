/** All jobs, as they change. */
import { html, useEffect, useMemo, useRef, useState } from "./lib.js";
import { get, may } from "./api.js";
import { useQuery } from "./router.js";
import { useUpdates } from "./store.js";
import { Loading, State, STATES, Switch, Trouble, useTicks } from "./ui.js";
import { ago, between, capital, count, duration, moment, short } from "./format.js";

const PAGE = 100;
const FILTERS = [["", "All"], ...["running", "queued", "succeeded", "failed", "timed_out", "cancelled"].map((state) => [state, html`<${State} state=${state} named /> ${capital(STATES[state])}`])];
const ORDER = ["succeeded", "running", "queued", "failed", "timed_out", "cancelled"];

export function Jobs({ who, route }) {
  const [given, setFilter] = useQuery(route, { state: "", text: "" });
  const filter = useMemo(() => ({ state: given.state, text: given.text.trim() }), [given.state, given.text.trim()]);
  const [jobs, setJobs] = useState(null);
  const [more, setMore] = useState(false);
  const [trouble, setTrouble] = useState(null);
  const [, redraw] = useState(0);
  const latest = useRef(filter);
  latest.current = filter;

  const load = async (before) => {
    const asked = latest.current;
    const query = new URLSearchParams({ limit: PAGE });
    if (asked.state) query.set("state", asked.state);
    if (asked.text) query.set("text", asked.text);
    if (before) query.set("before", before);
    try {
      const found = await get(`v1/overview?${query}`);
      if (asked !== latest.current) return;
      setTrouble(null);
      setMore(found.jobs.length === PAGE);
      setJobs((old) => (before ? merged(old, found.jobs) : found.jobs));
    } catch (error) {
      setTrouble(error);
    }
  };
  useEffect(() => {
    const timer = setTimeout(load, filter.text ? 200 : 0);
    return () => clearTimeout(timer);
  }, [filter]);
  useUpdates((type, data) => {
    if (type === "again") load();
    if (type === "job") setJobs((old) => old && placed(old, data, latest.current));
    if (type === "queue") setJobs((old) => old && old.map((job) => moved(job, data.positions)));
  });
  useTicks(() => redraw((old) => old + 1), 5000);

  return html`
    <div class="head">
      <h1>Jobs${jobs && html` <span class="mono num" aria-hidden="true">[${count(jobs.length)}${more ? "+" : ""}]</span>`}</h1>
      <div class="end">
        ${may(who, "submit") && html`<a class="button main" href="./#/compile">Compile a model</a>`}
      </div>
    </div>
    <div class="row filters">
      <${Switch} label="State" options=${FILTERS} value=${filter.state} onChange=${(state) => setFilter({ state })} />
      <input class="field" type="search" placeholder="Name or job id" aria-label="Find jobs by name or id" value=${given.text}
        onInput=${(event) => setFilter({ text: event.target.value })} />
    </div>
    ${trouble && html`<${Trouble} error=${trouble} again=${() => load()} />`}
    ${!jobs && !trouble && html`<${Loading} what="Loading jobs" />`}
    ${jobs && !jobs.length && html`<${Nothing} filter=${filter} who=${who} />`}
    ${jobs?.length > 0 && html`<ol class="jobs" aria-label="Jobs, the newest first">
      ${jobs.map((job) => html`<${Row} key=${job.id} job=${job} />`)}
    </ol>`}
    ${more && html`<p class="more"><button type="button" class="button" onClick=${() => load(jobs.at(-1).id)}>Show older jobs</button></p>`}
  `;
}

function Nothing({ filter, who }) {
  if (filter.state || filter.text) return html`<div class="card empty"><h2>No job fits</h2><p>Choose another state, or search for another name.</p></div>`;
  return html`<div class="card empty">
    <h2>No jobs yet</h2>
    <p>Drop a model (ONNX, .pt2, TorchScript, TFLite, GGUF, or a tar of a Hugging Face folder) and get one library per target, for every size of its dims.</p>
    ${may(who, "submit") && html`<a class="button main" href="./#/compile">Compile a model</a>`}
  </div>`;
}

function Row({ job }) {
  const total = Object.values(job.builds).reduce((sum, builds) => sum + builds, 0);
  return html`<li class="job">
    <${State} state=${job.state} />
    <div class="what">
      <a href=${`./#/jobs/${job.id}`}>${job.name || short(job.model)}</a>
      <span class="mono quiet">${job.id}</span>
    </div>
    <${Share} builds=${job.builds} total=${total} />
    <p class="now">${now(job, total)}</p>
    <p class="when num"><span title=${moment(job.created_at)}>${ago(job.created_at)}</span><span class="quiet">${took(job)}</span></p>
  </li>`;
}

/** The builds by state, as shares of one line. */
function Share({ builds, total }) {
  const parts = ORDER.filter((state) => builds[state]);
  const text = parts.map((state) => `${builds[state]} ${STATES[state]}`).join(", ");
  return html`<div class="share" role="img" aria-label=${text} title=${text}>
    <span class="track" aria-hidden="true">
      ${total <= 24
        ? parts.flatMap((state) => Array.from({ length: builds[state] }, (_, index) => html`<i key=${state + index} class=${state}></i>`))
        : parts.map((state) => html`<i key=${state} class=${state} style=${{ flexGrow: builds[state] }}></i>`)}
    </span>
    <span class="num quiet" aria-hidden="true">${total > 1 ? `${builds.succeeded || 0}/${total}` : ""}</span>
  </div>`;
}

function now(job, total) {
  const [first] = job.running;
  if (first) {
    const others = (job.builds.running || 0) - 1;
    return html`<span class="mono">${first.target}</span> <span class="accent">${first.stage || "starting"}</span>${others > 0 && html` <span class="quiet">and ${others} more</span>`}`;
  }
  if (job.position) return html`<span class="quiet">${job.position === 1 ? "next in the queue" : `${ordinal(job.position)} in the queue`}</span>`;
  if (job.state === "failed") return html`<span class="bad">${total > 1 ? `${job.builds.failed} of ${total} failed` : "failed"}</span>`;
  if (job.state === "timed_out" || job.state === "cancelled") return html`<span class="quiet">${STATES[job.state]}</span>`;
  return job.cached === total ? html`<span class="quiet">from the cache</span>` : null;
}

export function ordinal(value) {
  const ending = value % 100 > 10 && value % 100 < 14 ? "th" : { 1: "st", 2: "nd", 3: "rd" }[value % 10] || "th";
  return `${count(value)}${ending}`;
}

const took = (job) => (job.finished_at || job.state === "running" ? duration(between(job.created_at, job.finished_at)) : "");

const moved = (job, positions) =>
  job.position === (positions[job.id] ?? null) ? job : { ...job, position: positions[job.id] ?? null };

/** The list with a job that changed, in its place if it is there, else on top if the filter lets it. */
export function placed(jobs, job, filter) {
  const index = jobs.findIndex((known) => known.id === job.id);
  if (index >= 0) return jobs.with(index, job);
  const fits =
    (!filter.state || filter.state === job.state) &&
    (!filter.text || job.id.startsWith(filter.text) || (job.name || "").toLowerCase().includes(filter.text.toLowerCase()));
  const newest = !jobs.length || job.created_at >= jobs[0].created_at;
  return fits && newest ? [job, ...jobs] : jobs;
}

function merged(old, older) {
  const known = new Set(old.map((job) => job.id));
  return [...old, ...older.filter((job) => !known.has(job.id))];
}
