/** One build: why it is as fast as it is, how far it was checked, and how to get it. */
import { html, useMemo, useState } from "./lib.js";
import { download, get, token } from "./api.js";
import { Command, Copy, Digest, Icon, Loading, Status, Switch, Trouble, useLoaded } from "./ui.js";
import { base, compareLink, setBase } from "./base.js";
import { bytes, milliseconds, number, percent, point as named, quoted, range, shape, short } from "./format.js";
import { Latency } from "./chart.js";
import { Kernels } from "./treemap.js";
import { HeatMap } from "./heatmap.js";

const path = (digest) => `v1/artifacts/${encodeURIComponent(digest)}`;

const tracePath = (digest, profile) => `${path(digest)}/trace${profile.digest ? `?profile=${encodeURIComponent(profile.digest)}` : ""}`;

export const loadBuild = (digest, signal) => get(`${path(digest)}/report`, { signal });

export function Build({ route }) {
  const [digest] = route.arguments;
  const { data, error, again } = useLoaded(
    (signal) => Promise.all([loadBuild(digest, signal), get(path(digest), { signal })]),
    [digest],
  );
  if (error) return html`<${Trouble} error=${error} again=${again} />`;
  if (!data) return html`<${Loading} what="Loading the build" />`;
  const [report, artifact] = data;
  return html`<${Report} digest=${digest} report=${report} artifact=${artifact} />`;
}

function Report({ digest, report, artifact }) {
  const measured = report.profiles.filter((profile) => profile.measured);
  const [which, setWhich] = useState(measured.length - 1);
  const profile = measured[which];
  return html`
    <p class="crumbs"><a href="./#/">Jobs</a> <span aria-hidden="true">/</span> <span>Build</span></p>
    <div class="head">
      <h1>${report.name || "Build"}</h1>
      <p class="row"><span class="tag">${report.target.name}</span><${Status} status=${report.numerics.status || report.target.status} /><${Digest} digest=${digest} what="bundle's digest" /></p>
      <div class="end"><${Choose} digest=${digest} report=${report} /></div>
    </div>
    <div class="stack">
      ${report.sentences.length > 0 && html`<div class="lede">${report.sentences.map((sentence) => html`<p key=${sentence}>${sentence}</p>`)}</div>`}
      <${Facts} report=${report} profile=${profile} />
      ${measured.length > 1 && html`<div class="row"><span class="soft">Measured on</span>
        <${Switch} label="Machine" options=${measured.map((one, index) => [index, one.machine?.processor || `machine ${index + 1}`])} value=${which} onChange=${setWhich} /></div>`}
      ${profile?.points.length > 0 && html`<section class="card" aria-labelledby="latency">
        <header><h2 id="latency">Latency</h2><p class="quiet">${machine(profile.machine)}</p></header>
        <${Latency} key=${which} series=${[{ name: "relaxd", kind: "own", points: profile.points }]} dims=${report.dims.map((dim) => dim.name)} cost=${profile.cost} />
        ${profile.left_out?.length > 0 && html`<p class="hint soft">Not measured: ${profile.left_out.map((one) => `${named(one.dims)} (${one.reason})`).join("; ")}</p>`}
      </section>`}
      ${!profile && html`<p class="note">No profile: ${report.profiles[0]?.reason || "the request did not ask for one"}.</p>`}
      ${profile?.operators?.rows.length > 0 && html`<section class="card" aria-labelledby="kernels">
        <header><h2 id="kernels">Where the time goes</h2><p class="quiet">at <span class="mono">${named(profile.operators.dims)}</span>${peaks(profile.machine)}</p>
          ${profile.operators.timeline?.length > 0 && html`<span class="end"><${Fetch} address=${tracePath(digest, profile)} name=${`${report.name || "build"}-${report.target.name}.trace.json`} word="Trace for Perfetto" /></span>`}</header>
        <${Kernels} key=${which} times=${profile.operators} /></section>`}
      <section class="card" aria-labelledby="numerics"><header><h2 id="numerics">Error</h2>
        ${report.numerics.reference && html`<p class="quiet">against ${report.numerics.reference}, in % of what is allowed</p>`}</header>
        <${HeatMap} numerics=${report.numerics} /></section>
      <div class="two">
        <section class="card" aria-labelledby="interface"><header><h2 id="interface">Interface</h2></header><${Interface} report=${report} /></section>
        <section class="card" aria-labelledby="get"><header><h2 id="get">Get it</h2></header><${Pull} digest=${digest} artifact=${artifact} /></section>
      </div>
      <section class="card" aria-labelledby="files"><header><h2 id="files">Files</h2><p class="quiet num">${bytes(artifact.size)}</p>
        <span class="end"><${Fetch} address=${path(digest)} name=${`${report.name || "bundle"}-${report.target.name}.tar`} accept="application/x-tar" word="All as a tar" /></span></header>
        <${Files} artifact=${artifact} /></section>
      <section class="card"><details><summary>What went in</summary><${Provenance} report=${report} /></details></section>
    </div>`;
}

function Choose({ digest, report }) {
  const [chosen, name] = base.get();
  const [marked, setMarked] = useState(chosen === digest);
  const mark = () => (setBase(digest, `${report.name}, ${report.target.name}`), setMarked(true));
  return html`${chosen && chosen !== digest && !marked && html`<a class="button main" href=${compareLink(digest)}>Compare with ${name}</a>`}
    <button type="button" class="button" aria-pressed=${String(marked)} onClick=${mark}>${marked ? "Base of comparisons" : "Set as base"}</button>`;
}

const peaks = (one) =>
  one?.peak_gflops && one.peak_gb_s ? `; this machine's peaks: ${number(one.peak_gflops)} GFLOP/s, ${number(one.peak_gb_s)} GB/s from memory` : "";

const machine = (one) =>
  one
    ? [one.processor, one.threads && `${one.threads} threads`, one.load_average?.length && `load ${number(one.load_average[0])}`, one.governor].filter(Boolean).join(", ")
    : "";

function Facts({ report, profile }) {
  const opt = profile?.points.find((one) => one.label === "opt") || profile?.points[0];
  const parts = report.numerics.outputs.flatMap((output) => output.points.map((one) => one.of_tolerance)).filter((part) => part != null);
  const worst = Math.max(...parts);
  const largest = Math.max(...report.numerics.outputs.map((output) => output.max_abs ?? 0));
  const ratio = opt?.reference && opt.reference.median_ms / opt.median_ms;
  const facts = [
    opt && ["Latency", milliseconds(opt.median_ms), `at ${named(opt.dims)}`],
    ratio && ["ONNX Runtime", milliseconds(opt.reference.median_ms), ratio >= 1 ? `${ratio.toFixed(2)}× as long` : `${(1 / ratio).toFixed(2)}× as fast`],
    report.numerics.outputs.length > 0 && (parts.length ? ["Worst error", percent(worst, worst < 0.1 ? 2 : 0), "of what is allowed"] : ["Largest error", number(largest), "of any output"]),
    ["Size", bytes(report.sizes.total), `${bytes(report.sizes.weights)} of weights`],
    profile?.load_ms && ["Load", milliseconds(profile.load_ms), profile.peak_rss_bytes ? `${bytes(profile.peak_rss_bytes)} of memory at most` : ""],
    report.memory.planned_bytes != null && ["Buffers of a run", bytes(report.memory.planned_bytes), report.memory.unplanned_bytes > report.memory.planned_bytes ? `${bytes(report.memory.unplanned_bytes)} without the plan` : "every dim at its maximum"],
  ].filter(Boolean);
  return html`<dl class="figures">${facts.map(([name, value, note, kind]) => html`<div key=${name}><dt>${name}</dt><dd><b class=${`num ${kind || ""}`}>${value}</b><span class="quiet">${note}</span></dd></div>`)}</dl>`;
}

const Interface = ({ report }) => html`
  <table class="table"><thead><tr><th scope="col">Dim</th><th scope="col">Range</th><th scope="col" class="right">Verified to</th><th scope="col" class="right">Measured to</th></tr></thead>
    <tbody>${report.dims.map((dim) => html`<tr key=${dim.name}><th scope="row" class="mono">${dim.name}</th><td class="mono">${range(dim)}</td>
      <td class="right num">${reached(dim.verified_up_to, dim.max)}</td><td class="right num">${reached(dim.measured_up_to, dim.max)}</td></tr>`)}
      ${!report.dims.length && html`<tr><td colspan="4" class="soft">Every shape is fixed.</td></tr>`}</tbody></table>
  ${["inputs", "outputs"].map((side) => html`<div key=${side}><h3 class="quiet side">${side === "inputs" ? "Inputs" : "Outputs"}</h3>
    <ul class="tensors">${report[side].map((tensor) => html`<li key=${tensor.name}><b>${tensor.name}</b> <code>${shape(tensor)}</code></li>`)}</ul></div>`)}`;

const reached = (value, max) =>
  value == null ? html`<span class="warn">not</span>` : html`<span class=${max == null || value < max ? "warn" : "good"}>${value}</span>`;

function Pull({ digest, artifact }) {
  const [way, setWay] = useState("relaxd");
  const repository = artifact.ref.split("@")[0];
  const login = token.get() ? "# token as RELAXD_TOKEN\n" : "";
  const secure = location.protocol === "https:";
  const ways = {
    relaxd: `${login}relaxd pull ${digest} -o out --server ${location.origin}`,
    python: `import relaxd\nfrom relaxd.client import Client\n\nClient("${location.origin}").pull("${digest}", "out")\nmodel = relaxd.load("out")`,
    oras: `oras pull ${secure ? "" : "--plain-http "}${location.host}/${repository}@${digest} -o out`,
    skopeo: `skopeo copy ${secure ? "" : "--src-tls-verify=false "}docker://${location.host}/${repository}@${digest} dir:out`,
    curl: `curl -sH ${quoted("Accept: application/x-tar")}${token.get() ? ' -H "Authorization: Bearer $RELAXD_TOKEN"' : ""} \\\n  ${location.origin}/v1/artifacts/${digest} | tar x`,
  };
  return html`<${Switch} label="Way to get it" options=${Object.keys(ways).map((name) => [name, name === "python" ? "Python" : name])} value=${way} onChange=${setWay} />
    <div class="gap"><${Command} what="pull command" text=${ways[way]} /></div>`;
}

function Fetch({ address, name, accept, word }) {
  const [part, setPart] = useState(null);
  const [trouble, setTrouble] = useState(null);
  const start = async () => {
    setTrouble(null);
    setPart(0);
    try {
      await download(address, name, { accept, onProgress: (done, total) => setPart(total ? done / total : null) });
    } catch (error) {
      setTrouble(error);
    }
    setPart(null);
  };
  return html`${trouble && html`<span class="bad" role="alert">${trouble.message}</span>`}
    <button type="button" class="button small" disabled=${part !== null} onClick=${start} aria-label=${`Download ${name}`}>
      <${Icon} name="down" />${part === null ? word : percent(part)}</button>`;
}

const Files = ({ artifact }) => html`<div class="scroll" tabindex="0" role="region" aria-label="Files of the bundle"><table class="table">
  <thead><tr><th scope="col">Name</th><th scope="col">Digest</th><th scope="col" class="right">Size</th><th scope="col"><span class="unseen">Download</span></th></tr></thead>
  <tbody>${artifact.files.map((file) => html`<tr key=${file.name}><th scope="row" class="mono">${file.name}</th>
    <td><span class="digest">${short(file.digest)}<${Copy} text=${file.digest} what=${`digest of ${file.name}`} /></span></td>
    <td class="right num">${bytes(file.size)}</td><td class="right"><${Fetch} address=${file.url.replace(/^\//, "")} name=${file.name.split("/").at(-1)} word="Download" /></td></tr>`)}</tbody>
</table></div>`;

function Provenance({ report }) {
  const rows = useMemo(
    () => [
      ["model", report.model],
      ["action key", report.action_key],
      ["sandbox", report.sandbox],
      ...Object.entries(report.options).map(([name, value]) => [`option ${name}`, JSON.stringify(value)]),
      ...Object.entries(report.toolchain),
      ["instructions", report.target.isa.join(" ")],
    ].filter(([, value]) => value),
    [report],
  );
  return html`<dl class="facts wide">${rows.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd class="mono wrap">${value}</dd></div>`)}</dl>`;
}
