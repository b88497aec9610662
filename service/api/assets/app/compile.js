/** Drop a model, see what it is, declare its dims, choose targets, compile. */
import { html, useEffect, useMemo, useRef, useState } from "./lib.js";
import { get, may, post, upload } from "./api.js";
import { go } from "./router.js";
import { Command, Loading, Trouble, useLoaded } from "./ui.js";
import { bytes, count, percent, quoted, range, shape } from "./format.js";
import { Options, loadOptions, optionWords, optionsFor } from "./options.js";

const FRESH = { dims: {}, inputs: "", consts: "", shapes: "", targets: ["native"], options: {} };

export function Compile({ who }) {
  const [file, setFile] = useState(null);
  const [samples, setSamples] = useState(null);
  const [sent, setSent] = useState(null);
  const [report, setReport] = useState(null);
  const [trouble, setTrouble] = useState(null);
  const [form, setForm] = useState(FRESH);
  const known = useLoaded(loadOptions, []);
  const stop = useRef();
  useEffect(() => () => stop.current?.abort(), []);

  const inspect = async (chosen = file, declared = form, values = samples) => {
    stop.current?.abort();
    stop.current = new AbortController();
    setTrouble(null);
    setSent(0);
    try {
      const found = report?.model && chosen === file && (!values || values === samples)
        ? await post("v1/inspect?wait=600", { model: report.model, samples: (values && report.samples) || null, ...declarations(declared, report) }, { signal: stop.current.signal })
        : await send(chosen, values, declared, setSent, stop.current.signal);
      setReport(found);
      setForm({ ...declared, dims: { ...asTexts(found.dims), ...kept(declared.dims, found.dims) } });
    } catch (error) {
      if (error.name === "AbortError") return;
      setTrouble(error);
    }
    setSent(null);
  };
  const take = (chosen) => {
    setFile(chosen);
    setSamples(chosen.samples);
    setReport(null);
    inspect(chosen, { ...FRESH, targets: form.targets, options: form.options }, chosen.samples);
  };
  const takeSamples = (values) => {
    setSamples(values);
    inspect(file, form, values);
  };
  if (!may(who, "submit")) return html`<div class="card empty"><h2>Your token does not let you compile</h2><p>It needs the scope <code>submit</code>.</p></div>`;
  return html`
    <div class="head"><h1>Compile a model</h1></div>
    <div class="stack">
      <${Drop} file=${file} report=${report} sent=${sent} onFile=${take} />
      ${trouble && html`<${Trouble} error=${trouble} again=${() => inspect()} />`}
      ${known.error && html`<${Trouble} error=${known.error} again=${known.again} />`}
      ${report && known.data && html`<${Declare} file=${file} samples=${samples} takeSamples=${takeSamples} known=${known.data} report=${report} form=${form} setForm=${setForm} busy=${sent !== null} inspect=${() => inspect()} trouble=${trouble} />`}
      ${trouble && !report && html`<div class="card"><${More} form=${form} setForm=${setForm} open /></div>`}
    </div>`;
}

/** What was chosen: the model's name, the size of all, each file with its path, and an .npz of samples. */
function gather(chosen) {
  const samples = chosen.find(({ path }) => /\.npz$/i.test(path))?.file ?? null;
  const files = chosen.filter(({ file }) => file !== samples);
  const model = files.find(({ path }) => /\.onnx$/i.test(path));
  const configs = files.map(({ path }) => path.split("/")).filter((parts) => parts.at(-1) === "config.json");
  const folder = configs.sort((one, two) => one.length - two.length)[0]?.at(-2);
  const size = files.reduce((sum, { file }) => sum + file.size, 0);
  return { name: model?.file.name || folder || files[0]?.file.name, size, files, samples };
}

/** Files as a folder or a picker gives them, without hidden ones. */
const listed = (files) => [...files].map((file) => ({ file, path: file.webkitRelativePath || file.name })).filter(({ path }) => !/(^|\/)\./.test(path));

/** The files that were dropped, those of folders by their paths. */
async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.());
  if (!entries.some((entry) => entry?.isDirectory)) return listed(transfer.files);
  return (await Promise.all(entries.filter(Boolean).map((entry) => within(entry, "")))).flat();
}

async function within(entry, folder) {
  const path = folder + entry.name;
  if (entry.name.startsWith(".")) return [];
  if (entry.isFile) return [{ file: await new Promise((done, failed) => entry.file(done, failed)), path }];
  const reader = entry.createReader();
  const entries = [];
  for (let some; some === undefined || some.length; entries.push(...some)) some = await new Promise((done, failed) => reader.readEntries(done, failed));
  return (await Promise.all(entries.map((one) => within(one, `${path}/`)))).flat();
}

function send(model, samples, declared, onProgress, signal) {
  const form = new FormData();
  for (const { file, path } of model.files) form.append("model", file, path);
  if (samples) form.set("samples", samples);
  form.set("request", JSON.stringify(declarations(declared, null)));
  return upload("v1/inspect?wait=600", form, (done, total) => onProgress(done / total), signal);
}

function Drop({ file, report, sent, onFile }) {
  const [over, setOver] = useState(false);
  const give = (files) => {
    const chosen = gather(files);
    if (chosen.files.length) onFile(chosen);
  };
  const pick = (event) => give(listed(event.target.files));
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    dropped(event.dataTransfer).then(give);
  };
  return html`<label class=${`drop${over ? " over" : ""}${file ? " has" : ""}`} onDragOver=${(event) => (event.preventDefault(), setOver(true))}
    onDragLeave=${() => setOver(false)} onDrop=${drop}>
    <input type="file" multiple class="unseen" onChange=${pick} />
    ${file
      ? html`<span class="name">${file.name}</span><span class="quiet num">${file.files.length > 1 ? `${count(file.files.length)} files, ` : ""}${bytes(file.size)}</span>
        <span class="end">${sent === null ? html`<span class="button small">Another model</span>` : html`<${Sending} sent=${sent} known=${Boolean(report)} />`}</span>`
      : html`<span class="glyph mono" aria-hidden="true">[<i>n</i>, <i>seq</i>, 768]</span>
        <span class="title">Drop a model here</span>
        <span class="soft">or <u>choose files</u>: ONNX with its data beside it, .pt2, TorchScript, TFLite, GGUF, a Hugging Face folder, or a tar. It stays on your service.</span>`}
  </label>
  ${!file && html`<label class="folder soft"><u>Choose a folder</u><input type="file" webkitdirectory class="unseen" onChange=${pick} /></label>`}`;
}

function Sending({ sent, known }) {
  const word = known || sent >= 1 ? "Reading the model" : `Uploading, ${percent(sent)}`;
  return html`<span class="sending" role="status"><span>${word}</span><progress max="1" value=${known || sent >= 1 ? undefined : sent} aria-label=${word}></progress></span>`;
}

function Declare({ file, samples, takeSamples, known, report, form, setForm, busy, inspect, trouble }) {
  const [refused, setRefused] = useState(null);
  const [sending, setSending] = useState(false);
  const set = (change) => setForm({ ...form, ...change });
  const submit = async () => {
    setSending(true);
    setRefused(null);
    try {
      const request = { model: report.model, samples: report.samples || null, ...declarations(form, report), targets: form.targets, options: optionsFor(known, form.options) };
      const job = await post(`v1/jobs?${new URLSearchParams({ name: file.name })}`, request);
      go(`#/jobs/${job.id}`);
    } catch (error) {
      setRefused(error);
      setSending(false);
    }
  };
  const faulty = trouble?.document?.field || refused?.document?.field || "";
  return html`
    <${Findings} report=${report} />
    <section class="card" aria-labelledby="dims">
      <header><h2 id="dims">Dims</h2><p class="quiet">One library serves every size in these ranges.</p>
        <span class="end"><button type="button" class="button small" disabled=${busy} onClick=${inspect}>Check again</button></span></header>
      <${Dims} dims=${report.dims} texts=${form.dims} faulty=${faulty} onChange=${(dims) => set({ dims })} />
      <${More} form=${form} setForm=${setForm} />
    </section>
    <${Choice} chosen=${form.targets} onChange=${(targets) => set({ targets })} />
    <section class="card" aria-labelledby="options">
      <header><h2 id="options">Options</h2></header>
      <${Samples} samples=${samples} busy=${busy} onFile=${takeSamples} />
      <${Options} known=${known} chosen=${form.options} faulty=${faulty} onChange=${(options) => set({ options })} />
    </section>
    ${refused && html`<${Trouble} error=${refused} />`}
    <div class="submit">
      <button type="button" class="button main" disabled=${sending || !form.targets.length || !report.supported} onClick=${submit}>
        Compile for ${form.targets.length === 1 ? form.targets[0] : `${form.targets.length} targets`}</button>
      ${!report.supported && html`<p class="bad">${lacks(report)}</p>`}
    </div>
    <details><summary>The same on the command line</summary><${Command} what="command" text=${command(file, samples, known, form, report)} /></details>
  `;
}

/** What keeps the model from being compiled: its nodes, or what is declared of it. */
const lacks = (report) =>
  report.nodes?.some((node) => !node.supported) ? "The model has nodes that cannot be compiled." : "The model cannot be compiled as it is declared: see the message above, then check again.";

function Findings({ report }) {
  const lacking = report.nodes?.filter((node) => !node.supported) || [];
  const kinds = Object.entries(report.operators || {}).sort((a, b) => b[1] - a[1]);
  const nodes = kinds.reduce((sum, [, calls]) => sum + calls, 0);
  return html`<section class="card" aria-labelledby="found">
    <header><h2 id="found">Model</h2>
      <span class=${`badge ${report.supported ? "good" : "bad"}`}>${report.supported ? "every operator can be compiled" : lacking.length ? `${count(lacking.length)} of ${count(nodes)} nodes cannot be compiled` : "cannot be compiled as declared"}</span></header>
    <div class="two">
      ${["inputs", "outputs"].map((side) => html`<div key=${side}><h3 class="quiet">${side === "inputs" ? "Inputs" : "Outputs"}</h3>
        <ul class="tensors">${(report[side] || []).map((tensor) => html`<li key=${tensor.name || tensor}><b>${tensor.name || tensor}</b> ${tensor.dtype && html`<code>${shape(tensor)}</code>`}</li>`)}</ul></div>`)}
    </div>
    ${report.error && html`<div class="note bad"><div class="body"><p><strong>${report.error.message}</strong></p>${report.error.hint && html`<p>${report.error.hint}</p>`}</div></div>`}
    ${lacking.length > 0 && html`<ul class="lacking">${lacking.slice(0, 20).map((node) => html`<li key=${node.node}><code>${node.op}</code> <b>${node.node}</b> <span class="soft">${node.why}</span></li>`)}</ul>`}
    <details><summary>${count(nodes)} ${nodes === 1 ? "node" : "nodes"} of ${kinds.length} ${kinds.length === 1 ? "operator" : "operators"}</summary>
      <ul class="operators">${kinds.map(([op, calls]) => html`<li key=${op}><code>${op}</code> <span class="num quiet">${count(calls)}</span></li>`)}</ul></details>
  </section>`;
}

function Dims({ dims, texts, faulty, onChange }) {
  const names = Object.keys(dims);
  if (!names.length) return html`<p class="soft">The model has no symbolic dims: its shapes are fixed. Name axes of its inputs below to make them so.</p>`;
  return html`<div class="dims" role="table" aria-label="Dims">
    <div role="row" class="dim titles"><span role="columnheader">Name</span><span role="columnheader">Least</span><span role="columnheader">Greatest</span>
      <span role="columnheader">Multiple of</span><span role="columnheader">Favoured</span><span role="columnheader">Declared as</span></div>
    ${names.map((name) => {
      const dim = texts[name] || {};
      const wrong = faulty.startsWith(`dims.${name}`) || mistake(dim);
      const field = (key, label, placeholder) => html`<span role="cell"><small class="quiet" aria-hidden="true">${label}</small><input class="field mono" inputmode="numeric" pattern="[0-9]*" aria-label=${`${label} ${name}`}
        placeholder=${placeholder} value=${dim[key] ?? ""} aria-invalid=${wrong ? "true" : undefined}
        onInput=${(event) => onChange({ ...texts, [name]: { ...dim, [key]: event.target.value.trim() } })} /></span>`;
      return html`<div role="row" class="dim" key=${name}><b role="rowheader" class="mono">${name}</b>
        ${field("min", "Least", "1")}${field("max", "Greatest", "no maximum")}${field("multiple", "Multiple of", "1")}${field("opt", "Favoured", "none")}
        <span role="cell"><code class=${wrong ? "bad" : "quiet"}>${typeof wrong === "string" && wrong ? wrong : range(values(dim))}</code></span></div>`;
    })}
  </div>
  ${names.some((name) => !texts[name]?.max) && html`<p class="hint soft">A dim without a maximum is verified as far as time allows. Declare one if you know it: memory and kernels are planned for it.</p>`}`;
}

/** Why a dim's fields make no range, or an empty text. */
export function mistake(dim) {
  for (const key of ["min", "max", "multiple", "opt"]) if (dim[key] && !/^\d+$/.test(dim[key])) return "whole numbers only";
  const { min, max, multiple, opt } = values(dim);
  if (max != null && min > max) return "least is above greatest";
  if (multiple < 1) return "a multiple is 1 at least";
  if (opt != null && (opt < min || (max != null && opt > max) || opt % multiple)) return "favoured is not in the range";
  return "";
}

const values = (dim) => ({
  min: dim.min ? Number(dim.min) : 1,
  max: dim.max ? Number(dim.max) : undefined,
  multiple: dim.multiple ? Number(dim.multiple) : 1,
  opt: dim.opt ? Number(dim.opt) : undefined,
});

const asTexts = (dims) =>
  Object.fromEntries(Object.entries(dims).map(([name, dim]) => [name, Object.fromEntries(Object.entries(dim).map(([key, value]) => [key, String(value)]))]));

const kept = (texts, dims) => Object.fromEntries(Object.entries(texts).filter(([name]) => name in dims));

function Samples({ samples, busy, onFile }) {
  return html`<p class="row samples"><b>Samples</b>
    ${samples ? html`<span class="mono wrap">${samples.name}</span><span class="quiet num">${bytes(samples.size)}</span>` : html`<span class="soft">Without samples, inputs are random. An .npz of real inputs, one array per input, makes checks and calibration more meaningful.</span>`}
    <label class="button small pick">${samples ? "Another .npz" : "Choose an .npz"}<input type="file" accept=".npz" class="unseen" disabled=${busy} onChange=${(event) => event.target.files[0] && onFile(event.target.files[0])} /></label>
    ${samples && html`<button type="button" class="button small bare" disabled=${busy} onClick=${() => onFile(null)}>Remove</button>`}</p>`;
}

function More({ form, setForm, open }) {
  const set = (change) => setForm({ ...form, ...change });
  return html`<details class="declarations" open=${open}><summary>Inputs, constants and shapes</summary><div class="three">
    <label class="block"><span>Declarations of inputs, one per line</span>
      <textarea class="field mono" rows="3" placeholder="ids=int64[batch,seq]" value=${form.inputs} onInput=${(event) => set({ inputs: event.target.value })}></textarea></label>
    <label class="block"><span>Inputs fixed to a value, one per line</span>
      <textarea class="field mono" rows="3" placeholder="sr=16000" value=${form.consts} onInput=${(event) => set({ consts: event.target.value })}></textarea></label>
    <label class="block"><span>Names for data-dependent shapes, one per line</span>
      <textarea class="field mono" rows="3" placeholder="boxes=[n,4]" value=${form.shapes} onInput=${(event) => set({ shapes: event.target.value })}></textarea></label>
  </div></details>`;
}

function Choice({ chosen, onChange }) {
  const { data, error } = useLoaded((signal) => get("v1/targets", { signal }), []);
  const [text, setText] = useState("");
  const groups = useMemo(() => grouped(data?.targets || []), [data]);
  const turn = (name) => onChange(chosen.includes(name) ? chosen.filter((one) => one !== name) : [...chosen, name]);
  const fits = (target) => !text || `${target.name} ${target.arch}`.toLowerCase().includes(text.toLowerCase());
  return html`<section class="card" aria-labelledby="targets">
    <header><h2 id="targets">Targets</h2><p class="quiet num">${chosen.length} chosen</p>
      <input class="field end" type="search" placeholder="Find a target" aria-label="Find a target" onInput=${(event) => setText(event.target.value.trim())} /></header>
    ${error && html`<${Trouble} error=${error} />`}
    ${!data && !error && html`<${Loading} what="Loading targets" />`}
    <div class="choice">${groups.map(([arch, targets]) => [arch, targets.filter(fits)]).filter(([, targets]) => targets.length).map(
      ([arch, targets]) => html`<fieldset key=${arch}><legend class="quiet">${arch}</legend>
        ${targets.map((target) => html`<label key=${target.name} class=${target.workers.length ? "" : "idle"} title=${target.note || `${target.workers.length} workers compile for it`}>
          <input type="checkbox" checked=${chosen.includes(target.name)} onChange=${() => turn(target.name)} /><span>${target.name}</span>
          ${!target.workers.length && html`<small class="warn">no worker</small>`}</label>`)}</fieldset>`,
    )}</div>
  </section>`;
}

export function grouped(targets) {
  const groups = new Map();
  for (const target of targets) {
    const name = target.name === "native" ? "the worker's own" : target.device?.kind || (target.kind === "llvm" ? target.arch : target.kind);
    groups.set(name, [...(groups.get(name) || []), target]);
  }
  return [...groups];
}

const pairs = (text) =>
  text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()]);

function scalar(text) {
  if (text === "true" || text === "false") return text === "true";
  return text !== "" && !Number.isNaN(Number(text)) ? Number(text) : text;
}

function declarations(form, report) {
  const known = report ? Object.keys(report.dims) : Object.keys(form.dims);
  const dims = Object.fromEntries(known.filter((name) => form.dims[name]).map((name) => [name, values(form.dims[name])]));
  return {
    dims: JSON.parse(JSON.stringify(dims)),
    inputs: Object.fromEntries(pairs(form.inputs)),
    consts: Object.fromEntries(pairs(form.consts).map(([name, value]) => [name, scalar(value)])),
    shapes: Object.fromEntries(pairs(form.shapes)),
  };
}

function command(file, samples, known, form, report) {
  const words = [`relaxd compile ${quoted(file.name)}`];
  for (const name of Object.keys(report.dims)) if (form.dims[name]) words.push(`--dim ${quoted(`${name}=${range(values(form.dims[name]))}`)}`);
  for (const [name, spec] of pairs(form.inputs)) words.push(`--input ${quoted(`${name}=${spec}`)}`);
  for (const [name, value] of pairs(form.consts)) words.push(`--const ${quoted(`${name}=${value}`)}`);
  for (const target of form.targets) words.push(`--target ${quoted(target)}`);
  for (const [name, spec] of pairs(form.shapes)) words.push(`--shape ${quoted(`${name}=${spec}`)}`);
  for (const [flag, value] of optionWords(known, form.options)) words.push(`${flag} ${quoted(String(value))}`);
  if (samples) words.push(`--samples ${quoted(samples.name)}`);
  words.push(`--server ${location.origin}`);
  return words.join(" ");
}
