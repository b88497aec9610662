/** Two builds beside each other: what changed, what became slower, what became less exact. */
import { html, useMemo, useState } from "./lib.js";
import { get } from "./api.js";
import { go } from "./router.js";
import { Digest, Loading, Status, Trouble, useLoaded } from "./ui.js";
import { ago, bytes, milliseconds, moment, number, point as named, range, short } from "./format.js";
import { describeOptions, loadOptions } from "./options.js";
import { value } from "./model.js";
import { Latency } from "./chart.js";
import { loadBuild } from "./build.js";
import { base } from "./base.js";

/** Relative changes below it are no news: two measurements of one library differ by as much. */
const NOISE = 0.03;

export function Diff({ route }) {
  const [first, second] = route.arguments;
  if (!second) return html`<${Pick} />`;
  return html`<${Loaded} first=${first} second=${second} />`;
}

function Loaded({ first, second }) {
  const { data, error, again } = useLoaded((signal) => load([first, second], signal), [first, second]);
  if (error) return html`<${Trouble} error=${error} again=${again} />`;
  if (!data) return html`<${Loading} what="Loading both builds" />`;
  return html`<${Comparison} digests=${[first, second]} ...${data} />`;
}

/** Both reports, the parts of their action keys where both are known, and the options that there are. */
async function load(digests, signal) {
  const [reports, known] = await Promise.all([Promise.all(digests.map((digest) => loadBuild(digest, signal))), loadOptions()]);
  const actions = reports.map((report) => (report.action_key ? get(`v1/actions/${report.action_key}`, { signal }).catch(unknown) : null));
  return { reports, parts: (await Promise.all(actions)).map((action) => action?.parts), known };
}

/** Of an action that is no longer in the store its report still says the most. */
function unknown(error) {
  if (error.status !== 404) throw error;
  return null;
}

function Pick() {
  const [chosen, name] = base.get();
  const [builds, setBuilds] = useState([chosen ? { digest: chosen, name } : null, null]);
  const set = (index, build) => setBuilds(builds.with(index, build));
  return html`<div class="head"><h1>Compare two builds</h1></div>
    <div class="two">
      <section class="card" aria-labelledby="base"><header><h2 id="base">Base</h2></header><${Picker} build=${builds[0]} onPick=${(build) => set(0, build)} /></section>
      <section class="card" aria-labelledby="other"><header><h2 id="other">Other</h2></header><${Picker} build=${builds[1]} onPick=${(build) => set(1, build)} /></section>
    </div>
    <p class="submit"><button type="button" class="button main" disabled=${!builds[0] || !builds[1]} onClick=${() => go(`#/diff/${builds[0].digest}/${builds[1].digest}`)}>Compare</button></p>`;
}

function Picker({ build, onPick }) {
  const [text, setText] = useState("");
  const [job, setJob] = useState(null);
  const { data, error } = useLoaded((signal) => get(`v1/overview?${new URLSearchParams({ limit: 30, ...(text ? { text } : {}) })}`, { signal }), [text]);
  const open = async (id) => setJob(await get(`v1/jobs/${id}`));
  if (build) return html`<p class="row"><b>${build.name}</b><${Digest} digest=${build.digest} /><button type="button" class="button small" onClick=${() => onPick(null)}>Another</button></p>`;
  if (job) {
    return html`<p class="row"><b>${job.name || short(job.model)}</b><button type="button" class="button small bare" onClick=${() => setJob(null)}>Other job</button></p>
      <ul class="picks">${job.builds.filter((one) => one.artifact).map((one) => html`<li key=${one.target}><button type="button" onClick=${() => onPick({ digest: one.artifact.digest, name: `${job.name || short(job.model)}, ${one.target}` })}><b>${one.target}</b><span class="quiet num">${bytes(one.artifact.size)}</span></button></li>`)}</ul>`;
  }
  return html`<input class="field full" type="search" placeholder="Name, job id or sha256:..." aria-label="Find a build" onInput=${(event) => {
      const value = event.target.value.trim();
      if (/^sha256:[0-9a-f]{64}$/.test(value)) onPick({ digest: value, name: short(value) });
      else setText(value);
    }} />
    ${error && html`<${Trouble} error=${error} />`}
    <ul class="picks">${(data?.jobs || []).filter((one) => one.builds.succeeded).map((one) => html`<li key=${one.id}><button type="button" onClick=${() => open(one.id)}><b>${one.name || short(one.model)}</b><span class="quiet" title=${moment(one.created_at)}>${ago(one.created_at)}, <span class="mono">${one.id}</span></span></button></li>`)}</ul>`;
}

function Comparison({ digests, reports, parts, known }) {
  const [older, newer] = reports;
  const profiles = reports.map((report) => report.profiles.findLast((profile) => profile.measured));
  const same = digests[0] === digests[1];
  return html`
    <p class="crumbs"><a href="./#/diff">Compare</a></p>
    <div class="head"><h1>${older.name === newer.name ? older.name : `${older.name} and ${newer.name}`}</h1>
      <div class="end"><a class="button" href=${`./#/diff/${digests[1]}/${digests[0]}`}>Swap</a></div></div>
    <div class="stack">
      <div class="two sides">${reports.map((report, index) => html`<a key=${index} class=${`card side ${index ? "second" : "first"}`} href=${`./#/builds/${digests[index]}`}>
        <span class="quiet">${index ? "Other" : "Base"}</span><b>${report.name}</b>
        <span class="row"><span class="tag">${report.target.name}</span><${Status} status=${report.numerics.status} /><code class="quiet">${short(digests[index])}</code></span>
        <span class="soft small">${describeOptions(known, report.options).map((pair) => pair.join(": ")).join(", ") || "options as by default"}</span>
        ${profiles[index]?.measured_at && html`<span class="quiet small" title=${moment(profiles[index].measured_at)}>measured ${ago(profiles[index].measured_at)}${profiles[index].machine?.processor ? ` on ${profiles[index].machine.processor}` : ""}</span>`}</a>`)}</div>
      ${same && html`<p class="note">Both are the same build.</p>`}
      <${Verdict} reports=${reports} profiles=${profiles} />
      ${profiles[0] && profiles[1] && html`<section class="card" aria-labelledby="latency"><header><h2 id="latency">Latency</h2>
        <p class="quiet">${machines(profiles)}</p></header>
        <${Latency} series=${[{ name: "Other", kind: "own", points: bare(profiles[1].points) }, { name: "Base", kind: "base", points: bare(profiles[0].points) }]} dims=${newer.dims.map((dim) => dim.name)} /></section>`}
      ${profiles[0]?.operators && profiles[1]?.operators && html`<section class="card" aria-labelledby="kernels"><header><h2 id="kernels">Kernels</h2>
        <p class="quiet">${named(profiles[0].operators.dims) === named(profiles[1].operators.dims) ? `at ${named(profiles[1].operators.dims)}` : `Base at ${named(profiles[0].operators.dims)}, other at ${named(profiles[1].operators.dims)}`}</p></header>
        <${KernelChanges} rows=${profiles.map((profile) => profile.operators.rows)} /></section>`}
      <section class="card" aria-labelledby="changes"><header><h2 id="changes">What went in</h2></header><${Changes} reports=${reports} parts=${parts} /></section>
    </div>`;
}

/** Without the reference's timings, which two builds share. */
const bare = (points) => points.map(({ reference, ...point }) => point);

const machines = (profiles) => {
  const [older, newer] = profiles.map((profile) => profile.machine?.processor || "an unnamed machine");
  return older === newer ? `both on ${newer}` : `base on ${older}, other on ${newer}: not comparable`;
};

function Verdict({ reports, profiles }) {
  const [older, newer] = reports;
  const pairs = profiles[0] && profiles[1] ? common(profiles[0].points, profiles[1].points) : [];
  const ratios = pairs.map(([before, after]) => after.median_ms / before.median_ms);
  const middle = ratios.length ? Math.exp(ratios.reduce((sum, ratio) => sum + Math.log(ratio), 0) / ratios.length) : null;
  const worst = reports.map((report) => Math.max(0, ...report.numerics.outputs.map((output) => output.max_abs ?? 0)));
  const facts = [
    middle && ["Latency", change(middle - 1), `geometric mean of ${pairs.length} ${pairs.length === 1 ? "point" : "points"}`, tone(middle - 1)],
    ["Size", change(newer.sizes.total / older.sizes.total - 1), `${bytes(older.sizes.total)} to ${bytes(newer.sizes.total)}`, tone(newer.sizes.total / older.sizes.total - 1, 0.002)],
    worst[0] && ["Largest error", change(worst[1] / worst[0] - 1), `${number(worst[0])} to ${number(worst[1])}`, tone(worst[1] / worst[0] - 1, 0.5)],
    older.memory.planned_bytes && newer.memory.planned_bytes && ["Buffers", change(newer.memory.planned_bytes / older.memory.planned_bytes - 1), `${bytes(older.memory.planned_bytes)} to ${bytes(newer.memory.planned_bytes)}`, tone(newer.memory.planned_bytes / older.memory.planned_bytes - 1, 0.002)],
  ].filter(Boolean);
  return html`<dl class="figures">${facts.map(([name, value, note, kind]) => html`<div key=${name}><dt>${name}</dt><dd><b class=${`num ${kind}`}>${value}</b><span class="quiet">${note}</span></dd></div>`)}</dl>`;
}

export function common(before, after) {
  const known = new Map(before.map((one) => [named(one.dims), one]));
  return after.filter((one) => known.has(named(one.dims))).map((one) => [known.get(named(one.dims)), one]);
}

const change = (part) => (Math.abs(part) < 0.0005 ? "unchanged" : `${part > 0 ? "+" : "\u2212"}${Math.abs(part * 100).toFixed(Math.abs(part) < 0.1 ? 1 : 0)} %`);
const tone = (part, noise = NOISE) => (Math.abs(part) < noise ? "" : part > 0 ? "bad" : "good");

function KernelChanges({ rows }) {
  const found = useMemo(() => kernelChanges(...rows), [rows]);
  const [all, setAll] = useState(false);
  const most = Math.max(...found.map((one) => Math.max(one.before ?? 0, one.after ?? 0)));
  const shown = all ? found : found.slice(0, 15);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Kernels of both builds"><table class="table num">
    <thead><tr><th scope="col">Kernel</th><th scope="col">Nodes</th><th scope="col" class="right">Base</th><th scope="col" class="right">Other</th><th scope="col">Time</th><th scope="col" class="right">Change</th></tr></thead>
    <tbody>${shown.map((one) => html`<tr key=${one.name}><th scope="row" class="mono wrap">${one.name}</th>
      <td class="mono wrap soft">${one.nodes.slice(0, 3).join(" ")}${one.nodes.length > 3 ? ` +${one.nodes.length - 3}` : ""}</td>
      <td class="right">${milliseconds(one.before)}</td><td class="right">${milliseconds(one.after)}</td>
      <td class="pair" aria-hidden="true"><i class="base" style=${{ width: `${((one.before ?? 0) / most) * 100}%` }}></i><i class="own" style=${{ width: `${((one.after ?? 0) / most) * 100}%` }}></i></td>
      <td class="right">${one.before == null ? html`<span class="badge">added</span>` : one.after == null ? html`<span class="badge">removed</span>` : html`<span class=${tone(one.after / one.before - 1, 0.1)}>${change(one.after / one.before - 1)}</span>`}</td></tr>`)}</tbody>
  </table></div>
  ${found.length > shown.length && html`<p class="more"><button type="button" class="button small" onClick=${() => setAll(true)}>All ${found.length} kernels</button></p>`}`;
}

/** Kernels by what they gained or lost, the most milliseconds first. */
export function kernelChanges(before, after) {
  const all = new Map();
  for (const row of before) all.set(row.name, { name: row.name, nodes: row.nodes || [], before: row.ms });
  for (const row of after) all.set(row.name, { ...all.get(row.name), name: row.name, nodes: row.nodes || [], after: row.ms });
  const moved = (one) => Math.abs((one.after ?? 0) - (one.before ?? 0));
  return [...all.values()].sort((a, b) => moved(b) - moved(a) || (b.after ?? 0) - (a.after ?? 0));
}

function Changes({ reports, parts }) {
  const tables = parts[0] && parts[1] ? parts.map((one) => flat(one)) : reports.map(ingredients);
  const names = [...new Set(tables.flatMap((table) => Object.keys(table)))];
  const differing = names.filter((name) => tables[0][name] !== tables[1][name]);
  if (!differing.length) return html`<p class="soft">Nothing: model, target, dims, options and toolchain are the same.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="What differs"><table class="table"><thead><tr><th scope="col"><span class="unseen">Part</span></th><th scope="col">Base</th><th scope="col">Other</th></tr></thead>
    <tbody>${differing.map((name) => html`<tr key=${name}><th scope="row">${name}</th>${tables.map((table, index) => html`<td key=${index} class="mono wrap">${table[name] ?? html`<span class="quiet">none</span>`}</td>`)}</tr>`)}</tbody></table></div>`;
}

const DIMS = "request.dims.";

/** The parts of an action key by their dotted names; of a dim its range. */
function flat(parts, prefix = "") {
  if (prefix === DIMS) return Object.fromEntries(Object.entries(parts).map(([name, dim]) => [`dim ${name}`, range(dim)]));
  const entries = Object.entries(parts).flatMap(([name, part]) =>
    part && typeof part === "object" && !Array.isArray(part) ? Object.entries(flat(part, `${prefix}${name}.`)) : [[prefix + name, value(part)]],
  );
  return Object.fromEntries(entries);
}

const ingredients = (report) => ({
  model: short(report.model, 16),
  target: report.target.name,
  instructions: report.target.isa.join(" "),
  ...Object.fromEntries(report.dims.map((dim) => [`dim ${dim.name}`, range(dim)])),
  ...Object.fromEntries(Object.entries(report.options).map(([name, value]) => [`option ${name}`, JSON.stringify(value)])),
  ...report.toolchain,
});
