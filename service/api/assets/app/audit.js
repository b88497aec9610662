/** The audit log: who changed what, and what was refused. */
import { html, useEffect, useState } from "./lib.js";
import { get } from "./api.js";
import { useQuery } from "./router.js";
import { Loading, Switch, Trouble } from "./ui.js";
import { ago, count, moment } from "./format.js";

const PAGE = 200;
const OUTCOMES = { done: ["good", "done"], refused: ["warn", "refused"], failed: ["bad", "failed"] };

export function Audit({ route }) {
  const [filter, setFilter] = useQuery(route, { text: "", outcome: "" });
  const [entries, setEntries] = useState(null);
  const [more, setMore] = useState(false);
  const [trouble, setTrouble] = useState(null);
  const load = async (before) => {
    setTrouble(null);
    try {
      const found = (await get(`v1/audit?${new URLSearchParams({ limit: PAGE, ...(before ? { before } : {}) })}`)).entries;
      setMore(found.length === PAGE);
      setEntries((old) => (before ? [...old, ...found] : found));
    } catch (error) {
      setTrouble(error);
    }
  };
  useEffect(() => void load(), []);
  const text = filter.text.trim().toLowerCase();
  const found = (entries || []).filter((entry) => (!filter.outcome || entry.outcome === filter.outcome) && (!text || [entry.principal, entry.action, entry.subject, entry.tenant].some((one) => one.toLowerCase().includes(text))));
  return html`<section class="card" aria-labelledby="audit"><header><h2 id="audit">Audit log</h2>
      ${entries && html`<p class="quiet num" role="status">${count(found.length)} of the ${more ? "newest " : ""}${count(entries.length)} entries</p>`}</header>
    <div class="row filters"><${Switch} label="Outcome" options=${[["", "All"], ["done", "Done"], ["refused", "Refused"], ["failed", "Failed"]]} value=${filter.outcome} onChange=${(outcome) => setFilter({ outcome })} />
      <input class="field" type="search" placeholder="Who, action or subject" aria-label="Find entries" value=${filter.text} onInput=${(event) => setFilter({ text: event.target.value })} /></div>
    ${trouble && html`<${Trouble} error=${trouble} again=${() => load()} />`}
    ${!entries && !trouble && html`<${Loading} what="Loading the log" />`}
    ${entries && !found.length && html`<p class="soft">${entries.length ? "No entry fits." : "Nothing has been changed yet."}</p>`}
    ${found.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Entries"><table class="table audit">
      <thead><tr><th scope="col">When</th><th scope="col">Who</th><th scope="col">Action</th><th scope="col">Subject</th><th scope="col">Outcome</th><th scope="col">Detail</th></tr></thead>
      <tbody>${found.map((entry) => html`<${Row} key=${entry.id} entry=${entry} />`)}</tbody></table></div>`}
    ${more && html`<p class="more"><button type="button" class="button small" onClick=${() => load(entries.at(-1).id)}>Show older entries</button></p>`}</section>`;
}

function spelled(value) {
  if (Array.isArray(value)) return value.join(" ");
  return value === null ? "none" : typeof value === "string" ? value : JSON.stringify(value);
}

function Row({ entry }) {
  const [kind, word] = OUTCOMES[entry.outcome] || ["", entry.outcome];
  const detail = Object.entries(entry.detail).filter(([name]) => name !== "status" && name !== "method").map(([name, value]) => `${name.replaceAll("_", " ")} ${spelled(value)}`);
  return html`<tr><td class="num nowrap"><span title=${moment(entry.time)}>${ago(entry.time)}</span></td><td class="wrap">${entry.principal}<small class="quiet">${entry.tenant}</small></td><th scope="row" class="mono nowrap">${entry.action}</th>
    <td class="mono wrap">${entry.subject}</td><td><span class=${`badge ${kind}`}>${word}</span></td><td class="wrap soft">${detail.join(", ")}<small class="mono quiet">${entry.request_id ? `request ${entry.request_id}` : ""}</small></td></tr>`;
}
