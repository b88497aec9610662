/** A registered model: its aliases, its builds over time, and what changed from version to version. */
import { html, useState } from "./lib.js";
import { ask, get, may, post } from "./api.js";
import { go, useQuery } from "./router.js";
import { Digest, Loading, Status, Sure, Switch, Trouble, useLoaded } from "./ui.js";
import { ago, bytes, milliseconds, moment, percent, point as named, short } from "./format.js";
import { Lines } from "./chart.js";
import { Alias, Labels } from "./models.js";
import { base, compareLink, setBase } from "./base.js";

const PAGE = 20;
const MOST_BUILDS = 50;
const MOST_CHANGES = 4;
const MEASURES = {
  latency: ["Latency", (build) => build.latency_ms, milliseconds],
  size: ["Size", (build) => build.size, bytes],
  error: ["Error", (build) => build.error, (share) => percent(share, share < 0.1 ? 2 : 0)],
};

const path = (name) => `v1/models/${encodeURIComponent(name)}`;

export function Model({ who, route }) {
  const [name] = route.arguments;
  const [limit, setLimit] = useState(PAGE);
  const { data, error, again } = useLoaded(
    (signal) => Promise.all([get(`${path(name)}?limit=${limit}`, { signal }), get(`${path(name)}/builds?limit=${Math.min(MOST_BUILDS, limit)}`, { signal })]),
    [name, limit],
  );
  const [refused, setRefused] = useState(null);
  const act = async (work) => {
    setRefused(null);
    try {
      await work();
      again();
    } catch (problem) {
      setRefused(problem);
    }
  };
  if (error) return html`<${Trouble} error=${error} again=${again} />`;
  if (!data) return html`<${Loading} what="Loading the model" />`;
  const [model, { builds }] = data;
  return html`
    <p class="crumbs"><a href="./#/models">Models</a> <span aria-hidden="true">/</span> <span>${name}</span></p>
    <div class="head"><h1>${name}</h1>
      <p class="row">${model.project && html`<span class="soft">project ${model.project}</span>`}<${Labels} labels=${model.labels} /></p>
      <div class="end">${may(who, "admin") && html`<${Sure} word="Remove" sure=${`Remove ${name} with its versions and aliases`} onSure=${() => act(async () => { await ask(path(name), { method: "DELETE" }); go("#/models"); })} />`}</div></div>
    <div class="stack">
      ${refused && html`<${Trouble} error=${refused} />`}
      ${model.notes && html`<p class="lede prewrap">${model.notes}</p>`}
      <${Aliases} model=${model} who=${who} act=${act} />
      ${builds.some((build) => build.size != null) && html`<${History} builds=${builds} route=${route} />`}
      <section class="card" aria-labelledby="versions"><header><h2 id="versions">Versions</h2><p class="quiet">the newest first</p></header>
        ${model.versions.length ? html`<ol class="versions">${model.versions.map((version) => html`<${Version} key=${version.version} version=${version} model=${model} builds=${builds.filter((one) => one.version === version.version)} who=${who} act=${act} />`)}</ol>` : html`<p class="soft">There is no version.</p>`}
        ${limit > MOST_BUILDS && html`<p class="hint quiet">Builds are shown of the newest ${MOST_BUILDS} versions.</p>`}
        ${model.versions.length === limit && html`<p class="more"><button type="button" class="button small" onClick=${() => setLimit(limit + PAGE)}>Show older versions</button></p>`}</section>
      ${may(who, "push") && html`<${Describe} model=${model} act=${act} />`}
    </div>`;
}

function Aliases({ model, who, act }) {
  const move = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const address = `${path(model.name)}/aliases/${encodeURIComponent(form.get("alias").trim())}`;
    act(() => ask(address, { method: "PUT", json: { version: form.get("version") } }));
  };
  return html`<section class="card" aria-labelledby="aliases"><header><h2 id="aliases">Aliases</h2><p class="quiet">Whoever pulls <span class="mono">${model.name}@prod</span> gets the version that prod names.</p></header>
    ${model.aliases.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="All aliases"><table class="table">
      <thead><tr><th scope="col">Alias</th><th scope="col">Version</th><th scope="col">Before</th><th scope="col">Moved</th><th scope="col">By</th><th scope="col"><span class="unseen">Remove</span></th></tr></thead>
      <tbody>${model.aliases.map((one) => html`<tr key=${one.alias}><th scope="row"><${Alias} alias=${one} /></th><td class="num">${one.version}</td><td class="num quiet">${one.previous ?? "none"}</td>
        <td title=${moment(one.moved_at)}>${ago(one.moved_at)}</td><td class="wrap">${one.moved_by}</td>
        <td class="right">${may(who, "push") && html`<${Sure} word="Remove" sure=${`Remove ${one.alias}`} onSure=${() => act(() => ask(`${path(model.name)}/aliases/${one.alias}`, { method: "DELETE" }))} />`}</td></tr>`)}</tbody></table></div>`}
    ${!model.aliases.length && html`<p class="soft">No alias names a version yet.</p>`}
    ${may(who, "push") && model.versions.length > 0 && html`<form class="row gap" onSubmit=${move}>
      <label class="row">Point <input class="field mono short" name="alias" required placeholder="prod" pattern="[a-z][a-z0-9._\\-]*" maxlength="60" title="small letters, digits, . _ -" /></label>
      <label class="row">at version <select class="field" name="version">${model.versions.map((one) => html`<option key=${one.version}>${one.version}</option>`)}</select></label>
      <button type="submit" class="button">Move the alias</button></form>`}
  </section>`;
}

/** One measure of one target over the versions; only those at the sizes that the newest was measured at. */
function History({ builds, route }) {
  const targets = [...new Set(builds.map((build) => build.target))];
  const [chosen, setChosen] = useQuery(route, { target: targets[0], measure: "latency" });
  const [word, valueOf, format] = MEASURES[chosen.measure] || MEASURES.latency;
  const all = builds.filter((build) => build.target === chosen.target && valueOf(build) != null);
  const sizes = all[0]?.dims && chosen.measure === "latency" ? named(all[0].dims) : null;
  const shown = all.filter((build) => !sizes || named(build.dims) === sizes).reverse();
  const processors = [...new Set(shown.map((build) => build.processor).filter(Boolean))];
  const points = shown.map((build) => ({ dims: { version: build.version }, median_ms: valueOf(build), ...(sizes && build.reference_ms ? { reference: { median_ms: build.reference_ms } } : {}) }));
  return html`<section class="card" aria-labelledby="history"><header><h2 id="history">Over time</h2><p class="quiet">${sizes ? html`at <span class="mono">${sizes}</span>` : ""}${sizes && processors.length === 1 ? `, on ${processors[0]}` : ""}</p></header>
    <div class="row chart-tools"><${Switch} label="Measure" options=${Object.entries(MEASURES).map(([key, [title]]) => [key, title])} value=${chosen.measure} onChange=${(measure) => setChosen({ measure })} />
      ${targets.length > 1 && html`<select class="field end" aria-label="Target" onChange=${(event) => setChosen({ target: event.target.value })}>${targets.map((target) => html`<option key=${target} value=${target} selected=${target === chosen.target}>${target}</option>`)}</select>`}</div>
    ${sizes && processors.length > 1 && html`<p class="note warn">Measured on different machines, which are not comparable: ${processors.join("; ")}.</p>`}
    ${points.length > 1
      ? html`<${Lines} series=${[{ name: sizes ? "relaxd" : word, kind: "own", points }]} dim="version" row=${{ key: "no dims", fixed: {}, points }} engine=${points.some((one) => one.reference) ? "onnxruntime" : ""} format=${format} />`
      : html`<p class="soft">${points.length ? `Version ${shown[0].version} has ${format(valueOf(shown[0]))}. A line needs two versions.` : `No version has a ${word.toLowerCase()} for this target.`}</p>`}
    ${all.length > shown.length && html`<p class="hint quiet">Not shown: ${all.length - shown.length} measured at other sizes.</p>`}
  </section>`;
}

function Version({ version, model, builds, who, act }) {
  const aliases = model.aliases.filter((one) => one.version === version.version);
  return html`<li>
    <div class="row"><h3>Version ${version.version}</h3>${aliases.map((one) => html`<span key=${one.alias} class="badge">${one.alias}</span>`)}<${Labels} labels=${version.labels} />
      <span class="quiet" title=${moment(version.created_at)}>${ago(version.created_at)} by ${version.submitter}${version.job_id && may(who, "read") ? html`, <a href=${`./#/jobs/${version.job_id}`}>job</a>` : ""}</span>
      <span class="end row"><${Digest} digest=${version.digest} what=${`digest of version ${version.version}`} />
      ${may(who, "admin") && !aliases.length && html`<${Sure} word="Remove" sure=${`Remove version ${version.version}`} onSure=${() => act(() => ask(`${path(model.name)}/versions/${version.version}`, { method: "DELETE" }))} />`}</span></div>
    ${version.notes && html`<p class="soft prewrap">${version.notes}</p>`}
    ${builds.map((build) => html`<${Built} key=${build.digest} build=${build} name=${`${model.name}@${version.version}`} who=${who} />`)}
  </li>`;
}

function Built({ build, name, who }) {
  if (build.problem) return html`<p class="note bad">${build.target ? `${build.target}: ` : ""}${build.problem}</p>`;
  const faster = build.reference_ms && build.reference_ms / build.latency_ms;
  return html`<div class="built">
    <p>${may(who, "pull") ? html`<a href=${`./#/builds/${build.digest}`}>${build.target}</a>` : html`<b>${build.target}</b>`} <${Status} status=${build.status} /></p>
    <dl class="num"><div><dt>Latency</dt><dd>${build.latency_ms == null ? html`<span class="quiet">not measured</span>` : html`<span title=${named(build.dims)}>${milliseconds(build.latency_ms)}</span>`}${faster && html` <span class="quiet">${faster.toFixed(2)}× ONNX Runtime's speed</span>`}</dd></div>
      <div><dt>Size</dt><dd>${bytes(build.size)}</dd></div>
      <div><dt>Error</dt><dd>${build.error == null ? html`<span class="quiet">not compared</span>` : `${MEASURES.error[2](build.error)} of what is allowed`}</dd></div></dl>
    <${Changes} changed=${build.changed} />
    ${may(who, "pull") && html`<${Compare} digest=${build.digest} name=${`${name}, ${build.target}`} />`}
  </div>`;
}

function Changes({ changed }) {
  if (!changed) return html`<p class="quiet">the first for this target</p>`;
  if (!changed.length) return html`<p class="quiet">nothing changed: the same action key</p>`;
  const rest = changed.length - MOST_CHANGES;
  return html`<ul class="changes" aria-label="Changed since the version before">${changed.slice(0, MOST_CHANGES).map((one) => html`<li key=${one.part}><b class="mono">${one.part}</b> <span class="soft wrap">${value(one.before)} → ${value(one.after)}</span></li>`)}
    ${rest > 0 && html`<li><details><summary>${rest} more</summary><ul>${changed.slice(MOST_CHANGES).map((one) => html`<li key=${one.part}><b class="mono">${one.part}</b> <span class="soft wrap">${value(one.before)} → ${value(one.after)}</span></li>`)}</ul></details></li>`}</ul>`;
}

/** A part of an action key in a few words. */
export function value(part) {
  if (part == null) return "none";
  if (typeof part === "string") return /^sha256:/.test(part) ? short(part) : part;
  return JSON.stringify(part);
}

function Compare({ digest, name }) {
  const [, redraw] = useState(0);
  const [chosen, other] = base.get();
  if (chosen && chosen !== digest) return html`<p class="acts"><a class="button small bare" href=${compareLink(digest)} title=${`Compare with ${other}`}>Compare</a></p>`;
  return html`<p class="acts"><button type="button" class="button small bare" aria-pressed=${String(chosen === digest)} onClick=${() => (setBase(digest, name), redraw((old) => old + 1))}>${chosen === digest ? "Base" : "Set as base"}</button></p>`;
}

const asLines = (labels) => Object.entries(labels).map(([key, text]) => `${key}=${text}`).join("\n");

/** Labels as one has typed them, one a line. */
export const asLabels = (text) => Object.fromEntries(text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => (line.includes("=") ? [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()] : [line, ""])));

function Describe({ model, act }) {
  const save = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    act(() => ask(path(model.name), { method: "PATCH", json: { project: form.get("project").trim(), labels: asLabels(form.get("labels")), notes: form.get("notes").trim() } }));
  };
  return html`<section class="card"><details><summary>Project, labels and notes</summary>
    <form onSubmit=${save}><div class="three">
      <label class="block"><span>Project</span><input class="field" name="project" defaultValue=${model.project} maxlength="100" pattern="[a-z0-9]+([._\\-][a-z0-9]+)*" title="small letters and digits, with . _ - between them" /></label>
      <label class="block"><span>Labels, KEY=VALUE, one per line</span><textarea class="field mono" rows="3" name="labels" defaultValue=${asLines(model.labels)}></textarea></label>
      <label class="block"><span>Notes</span><textarea class="field" rows="3" name="notes" maxlength="2000" defaultValue=${model.notes}></textarea></label></div>
      <p class="submit"><button type="submit" class="button">Save</button></p></form></details></section>`;
}

/** Names what a job built: the next version of a name, which an alias may then point at. */
export function Register({ job }) {
  const [trouble, setTrouble] = useState(null);
  const send = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const name = form.get("name").trim();
    const alias = form.get("alias").trim();
    try {
      const version = await post(`${path(name)}/versions`, { job: job.id, notes: form.get("notes").trim(), labels: asLabels(form.get("labels")) });
      if (alias) await ask(`${path(name)}/aliases/${encodeURIComponent(alias)}`, { method: "PUT", json: { version: String(version.version) } });
      go(`#/models/${name}`);
    } catch (error) {
      setTrouble(error);
    }
  };
  return html`<section class="card"><details><summary>Name it</summary>
    <form onSubmit=${send}><p class="hint soft">The next version of a name keeps these bundles in the store.</p><div class="three">
      <label class="block"><span>Name</span><input class="field mono" name="name" required maxlength="100" placeholder="minilm" pattern="[a-z0-9]+([._\\-][a-z0-9]+)*" title="small letters and digits, with . _ - between them" /></label>
      <label class="block"><span>Alias to point at it, if any</span><input class="field mono" name="alias" maxlength="60" placeholder="staging" pattern="[a-z][a-z0-9._\\-]*" title="small letters, digits, . _ -" /></label>
      <label class="block"><span>Labels, KEY=VALUE, one per line</span><textarea class="field mono" rows="2" name="labels" placeholder="commit=1d0f2c"></textarea></label>
      <label class="block"><span>Notes</span><textarea class="field" rows="2" name="notes" maxlength="2000"></textarea></label></div>
      ${trouble && html`<${Trouble} error=${trouble} />`}
      <p class="submit"><button type="submit" class="button">Register</button></p></form></details></section>`;
}
