/** For administrators: tokens, tenants, pins, the collection of garbage, and the audit log. */
import { html, useState } from "./lib.js";
import { ask, get, may, post } from "./api.js";
import { useQuery } from "./router.js";
import { Audit } from "./audit.js";
import { Copy, Digest, Loading, Sure, Trouble, useLoaded } from "./ui.js";
import { ago, bytes, count, moment } from "./format.js";

const SCOPES = { submit: "submit models", read: "read jobs", pull: "pull builds", push: "push and name builds", admin: "everything" };
const PARTS = [
  ["tokens", "Tokens", Tokens, false],
  ["tenants", "Tenants", Tenants, true],
  ["pins", "Pins", Pins, false],
  ["collection", "Collection", Collection, true],
  ["audit", "Audit", Audit, false],
];

/** The operator's own tenant, whose administrators see all others. */
const operates = (who) => who.tenant === "default";

export function Admin({ who, route }) {
  if (!may(who, "admin")) return html`<div class="card empty"><h2>Your token does not let you administer</h2><p>It needs the scope <code>admin</code>.</p></div>`;
  const parts = PARTS.filter(([, , , home]) => !home || operates(who));
  const [, title, Part] = parts.find(([key]) => key === route.arguments[0]) || parts[0];
  return html`
    <div class="head"><h1>Administration</h1>${!operates(who) && html`<p class="soft">of the tenant ${who.tenant}</p>`}</div>
    <nav class="tabs" aria-label="Administration">${parts.map(([key, word]) => html`<a key=${key} href=${`./#/admin/${key}`} aria-current=${word === title ? "page" : undefined}>${word}</a>`)}</nav>
    <${Part} key=${title} who=${who} route=${route} />`;
}

/** What a list needs that one can change: its data, what was refused, and `act`, which loads it anew. */
function useList(load, inputs) {
  const { data, error, again } = useLoaded(load, inputs);
  const [refused, setRefused] = useState(null);
  const act = async (work) => {
    setRefused(null);
    try {
      const done = await work();
      again();
      return done;
    } catch (problem) {
      setRefused(problem);
      return undefined;
    }
  };
  const shown = error ? html`<${Trouble} error=${error} again=${again} />` : data ? null : html`<${Loading} />`;
  return { data, shown, act, refused: refused && html`<${Trouble} error=${refused} />` };
}

const Table = ({ label, titles, rows, none }) => rows.length
  ? html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table class="table"><thead><tr>${titles.map((title, index) => html`<th key=${index} scope="col">${title || html`<span class="unseen">Actions</span>`}</th>`)}</tr></thead><tbody>${rows}</tbody></table></div>`
  : html`<p class="soft">${none}</p>`;

const Time = ({ time, none }) => (time ? html`<span class="nowrap" title=${moment(time)}>${new Date(time) > new Date() ? new Date(time).toISOString().slice(0, 10) : ago(time)}</span>` : html`<span class="quiet">${none}</span>`);

/** A number that was typed, null for none. */
const amount = (text) => (text.trim() === "" ? null : Number(text));

function Tokens({ who, route }) {
  const [{ tenant }, setQuery] = useQuery(route, { tenant: who.tenant });
  const tenants = useLoaded((signal) => (operates(who) ? get("v1/tenants", { signal }) : Promise.resolve({ tenants: [] })), []);
  const of = `?${new URLSearchParams({ tenant })}`;
  const { data, shown, act, refused } = useList((signal) => get(`v1/tokens${of}`, { signal }), [tenant]);
  const [issued, setIssued] = useState(null);
  const names = [...new Set([who.tenant, tenant, ...(tenants.data?.tenants || []).map((one) => one.name)])];
  const make = async (event) => {
    event.preventDefault();
    const { target } = event;
    const form = new FormData(target);
    const made = await act(() => post("v1/tokens", { name: form.get("name").trim(), scopes: form.getAll("scope"), days: amount(form.get("days")), tenant }));
    setIssued(made);
    if (made) target.reset();
  };
  return html`<div class="stack">
    ${operates(who) && html`<label class="row">Tenant <select class="field" onChange=${(event) => (setIssued(null), setQuery({ tenant: event.target.value }))}>${names.map((name) => html`<option key=${name} value=${name} selected=${name === tenant}>${name}</option>`)}</select></label>`}
    ${refused}
    ${issued && html`<div class="note warn" role="status"><div class="body"><p><strong>Copy the token of ${issued.name} now: it is not shown again.</strong></p><p class="row"><code class="wrap">${issued.token}</code><${Copy} text=${issued.token} what="token" /></p></div></div>`}
    <section class="card" aria-labelledby="tokens"><header><h2 id="tokens">Tokens</h2></header>
      ${shown || html`<${Table} label="All tokens" none="There is no token." titles=${["Name", "Scopes", "Made", "Last used", "Ends", ""]}
        rows=${data.tokens.toReversed().map((token) => html`<tr key=${token.id}><th scope="row" class="wrap">${token.name}<small class="mono quiet">${token.id}</small></th>
          <td><span class="row">${token.scopes.map((scope) => html`<span key=${scope} class="tag">${scope}</span>`)}</span></td>
          <td><${Time} time=${token.created_at} /></td><td><${Time} time=${token.last_used_at} none="never" /></td>
          <td>${token.revoked_at ? html`<span class="quiet" title=${moment(token.revoked_at)}>revoked</span>` : token.expires_at && new Date(token.expires_at) < new Date() ? html`<span class="quiet" title=${moment(token.expires_at)}>expired</span>` : html`<${Time} time=${token.expires_at} none="never" />`}</td>
          <td class="right">${!token.revoked_at && html`<span class="row acts">
            <${Sure} word="Rotate" sure=${`Rotate ${token.name}`} onSure=${async () => setIssued(await act(() => post(`v1/tokens/${token.id}:rotate${of}`, { overlap_hours: 24 })))} />
            <${Sure} word="Revoke" sure=${`Revoke ${token.name}`} onSure=${() => act(() => ask(`v1/tokens/${token.id}${of}`, { method: "DELETE" }))} /></span>`}</td></tr>`)} />
        <p class="hint quiet">A rotated token stays valid for 24 hours, beside its successor.</p>`}
    </section>
    <section class="card" aria-labelledby="new-token"><header><h2 id="new-token">Make a token</h2></header>
      <form onSubmit=${make}><div class="three">
        <label class="block"><span>Name, for the audit log</span><input class="field" name="name" required maxlength="200" placeholder="nightly" /></label>
        <label class="block"><span>Days until it expires; empty for never</span><input class="field num" name="days" inputmode="numeric" pattern="[0-9]+" placeholder="90" /></label></div>
        <fieldset class="scopes"><legend>Scopes</legend>${Object.entries(SCOPES).map(([scope, meaning]) => html`<label key=${scope} class="tick"><input type="checkbox" name="scope" value=${scope} defaultChecked=${scope === "read"} /> <b>${scope}</b> <span class="soft">${meaning}</span></label>`)}</fieldset>
        <p class="submit"><button type="submit" class="button main">Make it${operates(who) && tenant !== who.tenant ? ` for ${tenant}` : ""}</button></p></form></section></div>`;
}

const LIMITS = [
  ["stored_bytes", "Stored bytes", "numeric"],
  ["running", "Running builds", "numeric"],
  ["queued", "Queued builds", "numeric"],
  ["requests", "Requests a second", "decimal"],
];
const limit = (value, spell = count) => (value == null ? html`<span class="quiet">no limit</span>` : spell(value));

function Tenants() {
  const { data, shown, act, refused } = useList((signal) => get("v1/tenants", { signal }), []);
  const [edited, setEdited] = useState(null);
  const make = async (event) => {
    event.preventDefault();
    const { target } = event;
    if (await act(() => post("v1/tenants", { name: new FormData(target).get("name").trim() }))) target.reset();
  };
  const save = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const json = { ...Object.fromEntries(LIMITS.map(([name]) => [name, amount(form.get(name))])), weight: Number(form.get("weight")), shares_cache: form.has("shares_cache") };
    if (await act(() => ask(`v1/tenants/${encodeURIComponent(edited.name)}`, { method: "PATCH", json }))) setEdited(null);
  };
  return html`<div class="stack">${refused}
    <section class="card" aria-labelledby="tenants"><header><h2 id="tenants">Tenants</h2><p class="quiet">Each has its own jobs, models, tokens and limits.</p></header>
      ${shown || html`<${Table} label="All tenants" none="There is no tenant beside the operator's." titles=${["Name", "Stored", "Running", "Queued", "Requests", "Weight", "Cache", ""]}
        rows=${data.tenants.map((tenant) => html`<tr key=${tenant.name}><th scope="row" class="wrap">${tenant.name}</th>
          <td class="num">${bytes(tenant.stores_bytes)}<small class="quiet">${tenant.stored_bytes == null ? "no limit" : `of ${bytes(tenant.stored_bytes)}`}</small></td><td class="num">${limit(tenant.running)}</td><td class="num">${limit(tenant.queued)}</td>
          <td class="num">${limit(tenant.requests, (value) => `${value}/s`)}</td><td class="num">${tenant.weight}</td><td>${tenant.shares_cache ? "shared" : "its own"}</td>
          <td class="right"><span class="row acts"><button type="button" class="button small bare" aria-label=${`Change ${tenant.name}`} onClick=${() => setEdited(tenant)}>Change</button>
            ${tenant.name !== "default" && html`<${Sure} word="Delete" sure=${`Delete ${tenant.name} with its jobs and tokens`} onSure=${() => act(() => ask(`v1/tenants/${encodeURIComponent(tenant.name)}`, { method: "DELETE" }))} />`}</span></td></tr>`)} />`}
    </section>
    ${edited && html`<section class="card" aria-labelledby="edited"><header><h2 id="edited">Limits of ${edited.name}</h2><p class="quiet">An empty field is no limit.</p></header>
      <form key=${edited.name} onSubmit=${save}><div class="three">
        ${LIMITS.map(([name, word, mode]) => html`<label key=${name} class="block"><span>${word}</span><input class="field num" name=${name} inputmode=${mode} pattern="[0-9.]*" placeholder="no limit" defaultValue=${edited[name] ?? ""} /></label>`)}
        <label class="block"><span>Weight: its share of the workers, relative to other tenants</span><input class="field num" name="weight" inputmode="decimal" required pattern="[0-9.]+" defaultValue=${edited.weight} /></label></div>
        <p class="gap"><label class="tick"><input type="checkbox" name="shares_cache" defaultChecked=${edited.shares_cache} /> Share cached results with other tenants that share theirs</label></p>
        <p class="submit"><button type="submit" class="button main">Save</button><button type="button" class="button" onClick=${() => setEdited(null)}>Cancel</button></p></form></section>`}
    <section class="card" aria-labelledby="new-tenant"><header><h2 id="new-tenant">Make a tenant</h2></header>
      <form class="row" onSubmit=${make}><label class="row">Name <input class="field mono" name="name" required maxlength="40" pattern="[a-z0-9\\-]+" title="small letters, digits and -" placeholder="vision" /></label><button type="submit" class="button main">Make it</button></form></section></div>`;
}

function Pins({ who }) {
  const { data, shown, act, refused } = useList((signal) => get("v1/pins", { signal }), []);
  const make = async (event) => {
    event.preventDefault();
    const { target } = event;
    const form = new FormData(target);
    const json = { who: who.name, why: form.get("why").trim(), days: amount(form.get("days")) };
    if (await act(() => ask(`v1/pins/${encodeURIComponent(form.get("digest").trim())}`, { method: "PUT", json }))) target.reset();
  };
  return html`<div class="stack">${refused}
    <section class="card" aria-labelledby="pins"><header><h2 id="pins">Pins</h2><p class="quiet">Garbage collection keeps what is pinned, and all that it refers to.</p></header>
      ${shown || html`<${Table} label="All pins" none="Nothing is pinned. Registered models need no pin." titles=${["Digest", "Why", "By", "Pinned", "Ends", ""]}
        rows=${data.pins.map((pin) => html`<tr key=${pin.digest}><th scope="row"><${Digest} digest=${pin.digest} /></th><td class="wrap">${pin.why || html`<span class="quiet">no reason given</span>`}</td><td class="wrap">${pin.who}</td>
          <td><${Time} time=${pin.created_at} /></td><td><${Time} time=${pin.expires_at} none="never" /></td>
          <td class="right"><${Sure} word="Unpin" sure=${`Unpin ${pin.digest.slice(7, 15)}`} onSure=${() => act(() => ask(`v1/pins/${pin.digest}`, { method: "DELETE" }))} /></td></tr>`)} />`}
    </section>
    <section class="card" aria-labelledby="new-pin"><header><h2 id="new-pin">Pin a digest</h2></header>
      <form onSubmit=${make}><div class="three">
        <label class="block"><span>Digest of a build, an index or a model</span><input class="field mono" name="digest" required pattern="sha256:[0-9a-f]{64}" title="sha256: and 64 hexadecimal digits" placeholder="sha256:..." /></label>
        <label class="block"><span>Why</span><input class="field" name="why" maxlength="2000" placeholder="serves the search" /></label>
        <label class="block"><span>Days until it expires; empty for never</span><input class="field num" name="days" inputmode="numeric" pattern="[0-9]+" placeholder="30" /></label></div>
        <p class="submit"><button type="submit" class="button main">Pin it</button></p></form></section></div>`;
}

function Collection() {
  const [found, setFound] = useState(null);
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState(null);
  const run = async (dry) => {
    setBusy(true);
    setTrouble(null);
    try {
      setFound(await post(`v1/gc${dry ? "?dry_run=true" : ""}`));
    } catch (error) {
      setTrouble(error);
    }
    setBusy(false);
  };
  return html`<section class="card" aria-labelledby="collection"><header><h2 id="collection">Garbage collection</h2><p class="quiet">Removes what no job, model name, tag or pin refers to. The service also does so by itself.</p></header>
    <p class="row"><button type="button" class="button" disabled=${busy} onClick=${() => run(true)}>See what it would remove</button><${Sure} word="Collect now" sure="Remove it" onSure=${() => run(false)} /></p>
    ${busy && html`<${Loading} what="Looking at the store" />`}
    ${trouble && html`<div class="gap"><${Trouble} error=${trouble} again=${() => run(true)} /></div>`}
    ${found && !busy && html`<div class="gap" role="status"><${Found} found=${found} /></div>`}</section>`;
}

function Found({ found }) {
  const facts = [
    ["In the store", bytes(found.bytes), `${count(found.blobs)} blobs`],
    [found.dry_run ? "Would be removed" : "Removed", bytes(found.removed_bytes), `${count(found.removed_blobs)} blobs`],
    ["Records", count(found.removed_records), `and ${count(found.removed_tags)} tags`],
    ["Expired jobs", count(found.expired_jobs), `and ${count(found.expired_uploads)} uploads`],
  ];
  return html`<dl class="figures">${facts.map(([name, value, note]) => html`<div key=${name}><dt>${name}</dt><dd><b class="num">${value}</b><span class="quiet">${note}</span></dd></div>`)}</dl>
    ${found.removed.length > 0 && html`<details class="gap"><summary>${count(found.removed.length)} digests</summary><pre class="log" tabindex="0" role="group" aria-label="Digests">${found.removed.join("\n")}</pre></details>`}`;
}
