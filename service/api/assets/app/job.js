/** One job: a row a target with the stage it is at, the log as it comes, and what became of each. */
import { html, useEffect, useMemo, useRef, useState } from "./lib.js";
import { ask, follow, get, may, post } from "./api.js";
import { useUpdates } from "./store.js";
import { Command, Digest, Loading, State, STATES, Status, Trouble, useLoaded, useTicks } from "./ui.js";
import { ago, between, bytes, duration, moment, range, remaining, short } from "./format.js";
import { base, compareLink, setBase } from "./base.js";
import { ordinal } from "./jobs.js";
import { Register } from "./model.js";
import { describeOptions, loadOptions } from "./options.js";

const STAGES = ["load", "import", "pass", "codegen", "link", "verify", "profile", "publish"];
const ENDED = ["succeeded", "failed", "cancelled", "timed_out"];
const LOG_LINES = 400;

export function Job({ who, route }) {
  const [id] = route.arguments;
  const [job, setJob] = useState(null);
  const [trouble, setTrouble] = useState(null);
  const [place, setPlace] = useState(null);
  const [log, setLog] = useState([]);
  const [news, setNews] = useState({});
  const [, redraw] = useState(0);
  const pending = useRef(null);

  const load = async () => {
    try {
      setJob(await get(`v1/jobs/${encodeURIComponent(id)}`));
      setTrouble(null);
    } catch (error) {
      setTrouble(error);
    }
  };
  const soon = () => {
    pending.current ??= setTimeout(() => ((pending.current = null), load()), 150);
  };
  useEffect(() => {
    const stop = new AbortController();
    load();
    listen(id, stop.signal, (event) => {
      if (event.type === "build.log") setLog((old) => [...old, event].slice(-LOG_LINES));
      else if (event.type === "build.stage") {
        setLog((old) => [...(supersedes(event, old.at(-1)) ? old.slice(0, -1) : old), event].slice(-LOG_LINES));
        setNews((old) => ({ ...old, [event.target]: { ...old[event.target], stage: event.data.stage, step: event.data } }));
      } else {
        if (event.type === "build.started") setNews((old) => ({ ...old, [event.target]: { expected: event.data.expected_seconds } }));
        soon();
      }
    });
    return () => (stop.abort(), clearTimeout(pending.current));
  }, [id]);
  useUpdates((type, data) => type === "queue" && setPlace(data.positions[id] ?? null));
  useTicks(() => redraw((old) => old + 1), 1000);

  if (trouble && !job) return html`<${Trouble} error=${trouble} again=${load} />`;
  if (!job) return html`<${Loading} what="Loading the job" />`;
  const live = !ENDED.includes(job.state);
  const done = job.builds.filter((build) => ENDED.includes(build.state)).length;
  return html`
    <p class="crumbs"><a href="./#/">Jobs</a> <span aria-hidden="true">/</span> <span class="mono">${job.id}</span></p>
    <div class="head">
      <h1>${job.name || short(job.model)}</h1>
      <p class="row" role="status"><${State} state=${job.state} named />
        <span>${STATES[job.state]}${live && job.builds.length > 1 ? `, ${done} of ${job.builds.length} targets done` : ""}${live && place ? `, ${place === 1 ? "next" : ordinal(place)} in the queue` : ""}</span>
        <span class="quiet" title=${moment(job.created_at)}>${ago(job.created_at)}</span>
        ${job.priority !== 0 && html`<span class="quiet">priority ${job.priority}</span>`}
        ${job.deadline && html`<span class="quiet">builds may begin until ${moment(job.deadline)}</span>`}</p>
      <div class="end">
        ${live && may(who, "submit") && html`<button type="button" class="button" onClick=${() => post(`v1/jobs/${id}:cancel`, {}).then(setJob, setTrouble)}>Cancel</button>`}
      </div>
    </div>
    <div class="stack">
      <section class="card builds" aria-label="Targets"><${Builds} job=${job} news=${news} place=${place} who=${who} /></section>
      ${job.builds.filter((build) => build.error).map((build) => html`<${Failure} key=${build.target} build=${build} several=${job.builds.length > 1} />`)}
      <div class="two">
        <section class="card" aria-labelledby="declared"><header><h2 id="declared">Declared</h2></header><${Declared} job=${job} /></section>
        ${!job.index && html`<${Log} log=${log} job=${job} />`}
        ${job.index && html`<section class="card" aria-labelledby="pull"><header><h2 id="pull">Pull</h2><p class="quiet">The best of them for the machine that asks</p></header>
          <${Command} what="command" text=${`relaxd pull ${job.id} --best -o out --server ${location.origin}`} />
          <${Command} what="Python" text=${`from relaxd.client import Client\nClient("${location.origin}").pull("${job.id}", "out", best=True)`} /></section>`}
      </div>
      ${job.index && may(who, "push") && html`<${Register} job=${job} />`}
      ${job.index && log.length > 0 && html`<${Log} log=${log} job=${job} />`}
    </div>`;
}

async function listen(id, signal, on) {
  let last = 0;
  while (!signal.aborted) {
    try {
      await follow(`v1/jobs/${encodeURIComponent(id)}/events`, (type, event) => ((last = event.seq), on(event)), { signal, after: last });
      return;
    } catch (error) {
      if (error.name === "AbortError" || (error.status >= 400 && error.status < 500)) return;
      await new Promise((done) => setTimeout(done, 2000));
    }
  }
}

/** A later count of the same work takes the place of the one before it in the log. */
const supersedes = (event, last) =>
  last?.data.total != null && event.data.total != null && last.target === event.target && last.data.stage === event.data.stage;

/** news: by target what the events say of a build that runs: the stage, its step, and what the last build took. */
function Builds({ job, news, place, who }) {
  const [first] = base.get();
  const builds = job.builds.map((build) => (build.state === "running" ? { ...build, ...news[build.target] } : build));
  return html`<ol class="build-list">
    ${builds.map((build, index) => html`<li key=${build.target} class="build-row">
      <${State} state=${build.state} />
      <div class="what">${build.artifact && may(who, "pull")
        ? html`<a href=${`./#/builds/${build.artifact.digest}`}>${build.target}</a>`
        : html`<b>${build.target}</b>`}</div>
      <${Track} build=${build} />
      <p class="now">${progress(build, index, place)}</p>
      <p class="num quiet">${build.artifact ? bytes(build.artifact.size) : ""}</p>
      <p class="num quiet">${build.cached ? "from the cache" : build.started_at ? elapsed(build) : ""}</p>
      <p class="acts">${build.artifact && may(who, "pull") && html`<${Compare} build=${build} job=${job} first=${first} />`}</p>
    </li>`)}
  </ol>`;
}

function elapsed(build) {
  const taken = duration(between(build.started_at, build.finished_at));
  return build.expected ? html`<span title="The last build of this model took so long">${taken} of about ${duration(build.expected)}</span>` : taken;
}

function Compare({ build, job, first }) {
  const [, redraw] = useState(0);
  const digest = build.artifact.digest;
  const [chosen, name] = base.get();
  if (chosen && chosen !== digest) return html`<a class="button small bare" href=${compareLink(digest)} title=${`Compare with ${name}`}>Compare</a>`;
  const mark = () => (setBase(digest, `${job.name || short(job.model)}, ${build.target}`), redraw((old) => old + 1));
  return html`<button type="button" class="button small bare" aria-pressed=${String(chosen === digest)} onClick=${mark}>${chosen === digest ? "Base" : "Set as base"}</button>`;
}

/** The stages as one line of eight parts. */
function Track({ build }) {
  const at = build.state === "succeeded" ? STAGES.length : STAGES.indexOf(build.stage);
  const running = build.state === "running";
  const word = running && build.stage ? `at ${build.stage}` : STATES[build.state];
  const part = running && build.step?.total ? build.step.done / build.step.total : 1;
  return html`<div class=${`stages ${build.state}`} role="img" aria-label=${word} title=${word}>
    ${STAGES.map((stage, index) => html`<i key=${stage} class=${index < at ? "done" : index === at ? "here" : ""} style=${index === at ? { "--part": part } : {}}></i>`)}</div>`;
}

function progress(build, index, place) {
  if (build.state === "running") {
    const step = [build.step?.message, remaining(build.step?.seconds_left)].filter(Boolean).join(", ");
    return html`<span class="accent">${build.stage || "starting"}</span>${step && html` <span class="quiet">${step}</span>`}`;
  }
  if (build.state === "queued") return html`<span class="quiet">${build.note || (build.position ? `${build.position === 1 ? "next" : ordinal(build.position)} in the queue` : index === 0 && place ? `${ordinal(place)} in the queue` : "queued")}</span>`;
  if (build.error) return html`<span class="bad">${build.error.stage ? `failed at ${build.error.stage}` : STATES[build.state]}</span>`;
  return build.status ? html`<${Status} status=${build.status} />` : STATES[build.state];
}

function Failure({ build, several }) {
  const { error } = build;
  const where = [["node", error.node], ["operator", error.op], ["pass", error.pass], ["field", error.field]].filter(([, value]) => value);
  return html`<div class="note bad" role="alert"><div class="body">
    <p><strong>${several ? `${build.target}: ` : ""}${error.message}</strong></p>
    ${error.hint && html`<p>${error.hint}</p>`}
    <p class="row">${where.map(([name, value]) => html`<span key=${name} class="soft">${name} <code>${value}</code></span>`)}<code class="quiet">${error.code}</code></p>
  </div></div>`;
}

function Declared({ job }) {
  const known = useLoaded(loadOptions, []);
  const { dims, inputs, consts, shapes, samples, options } = job.request;
  const chosen = known.data && describeOptions(known.data, options);
  const rows = [
    ...Object.entries(dims).map(([name, dim]) => [`dim ${name}`, range(dim)]),
    ...Object.entries(inputs).map(([name, spec]) => [`input ${name}`, spec]),
    ...Object.entries(consts).map(([name, value]) => [`const ${name}`, String(value)]),
    ...Object.entries(shapes).map(([name, axes]) => [`shape ${name}`, `[${axes.join(", ")}]`]),
    ...(chosen || []),
    ...(chosen && !chosen.length ? [["options", "as by default"]] : []),
  ];
  return html`<dl class="facts">
    <div><dt>model</dt><dd><${Digest} digest=${job.model} what="model's digest" /></dd></div>
    ${samples && html`<div><dt>samples</dt><dd><${Digest} digest=${samples} what="samples' digest" /></dd></div>`}
    ${rows.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd class="mono wrap">${value}</dd></div>`)}
    ${known.error && html`<div><dt>options</dt><dd class="bad">${known.error.message}</dd></div>`}
  </dl>`;
}

function Log({ log, job }) {
  const several = job.builds.length > 1;
  const box = useRef();
  const [whole, setWhole] = useState(null);
  const text = useMemo(() => log.map((event) => line(event, several)).join("\n"), [log]);
  useEffect(() => {
    const area = box.current;
    if (area && area.scrollHeight - area.scrollTop - area.clientHeight < 80) area.scrollTop = area.scrollHeight;
  }, [text]);
  const load = async () => setWhole(await (await ask(`v1/jobs/${job.id}/logs`)).text());
  return html`<section class="card" aria-labelledby="log"><header><h2 id="log">Log</h2>
    <span class="end"><button type="button" class="button small" onClick=${load}>Whole log</button></span></header>
    <pre class="log" ref=${box} tabindex="0" role="log" aria-label="Log">${whole ?? (text || (job.state === "queued" ? "waiting for a worker" : "nothing yet"))}</pre></section>`;
}

const line = ({ time, target, data }, several) =>
  `${new Date(time).toTimeString().slice(0, 8)}  ${several ? `${target}  ` : ""}${data.line !== undefined ? data.line : `${data.stage}${data.message ? `: ${data.message}` : ""}`}`;
