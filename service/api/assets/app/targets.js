/** Targets by workers: who compiles for what, how it is verified, and what nobody serves. */
import { html } from "./lib.js";
import { get } from "./api.js";
import { useQuery } from "./router.js";
import { Loading, Switch, Trouble, useLoaded, useTicks } from "./ui.js";
import { grouped } from "./compile.js";

const MOST_COLUMNS = 12;
const WAYS = { executed: ["good", "runs it"], emulated: ["good", "emulates it"] };

export function Targets({ route }) {
  const { data, error, again } = useLoaded((signal) => get("v1/targets", { signal }), []);
  const [given, setGiven] = useQuery(route, { text: "", served: "all" });
  const { served } = given;
  const text = given.text.trim();
  useTicks(again, 5000);
  if (error && !data) return html`<${Trouble} error=${error} again=${again} />`;
  if (!data) return html`<${Loading} what="Loading targets" />`;
  const workers = [...new Set(data.targets.flatMap((target) => target.workers))].sort();
  const fits = (target) =>
    (!text || `${target.name} ${target.arch} ${(target.isa || []).join(" ")}`.toLowerCase().includes(text.toLowerCase())) &&
    (served === "all" || (served === "yes") === target.workers.length > 0);
  const found = data.targets.filter(fits);
  const able = data.targets.filter((target) => target.workers.length).length;
  return html`
    <div class="head"><h1>Targets <span class="mono num" aria-hidden="true">[${data.targets.length}, ${workers.length}]</span></h1>
      <p class="soft">${workers.length ? `${workers.length === 1 ? "One worker compiles" : `${workers.length} workers compile`} for ${able} of ${data.targets.length} targets.` : html`No worker is running. Start one with <code>relaxd worker</code>.`}</p></div>
    <div class="row filters"><${Switch} label="Served" options=${[["all", "All"], ["yes", "Served"], ["no", "Not served"]]} value=${served} onChange=${(choice) => setGiven({ served: choice })} />
      <input class="field" type="search" placeholder="Name, architecture, instruction" aria-label="Find targets" value=${given.text} onInput=${(event) => setGiven({ text: event.target.value })} /></div>
    <section class="card matrix"><div class="scroll" tabindex="0" role="region" aria-label="Targets by workers"><table class="table">
      <thead><tr><th scope="col">Target</th><th scope="col">Instructions</th>
        ${workers.length <= MOST_COLUMNS ? workers.map((worker) => html`<th key=${worker} scope="col" class="mono">${worker}</th>`) : html`<th scope="col" class="right">Workers</th><th scope="col" class="right">that run it</th>`}
      </tr></thead>
      ${grouped(found).map(([group, targets]) => html`<tbody key=${group}><tr class="group"><th colspan=${2 + Math.max(2, workers.length)} scope="rowgroup">${group}</th></tr>
        ${targets.map((target) => html`<tr key=${target.name}><th scope="row">${target.name}${target.note && html`<small class="warn">no worker</small>`}</th>
          <td class="mono quiet isa" title=${(target.isa || []).join(" ")}>${told(target)}</td>
          ${workers.length <= MOST_COLUMNS ? workers.map((worker) => html`<${Cell} key=${worker} target=${target} worker=${worker} />`) : html`<td class="right num">${target.workers.length || ""}</td><td class="right num">${Object.keys(target.verified_by).length || ""}</td>`}</tr>`)}
      </tbody>`)}
    </table></div>${!found.length && html`<p class="soft">No target fits.</p>`}</section>`;
}

const told = (target) => {
  const isa = target.isa || [];
  return isa.length > 7 ? `${isa.slice(-6).join(" ")} and ${isa.length - 6} more` : isa.join(" ");
};

function Cell({ target, worker }) {
  if (!target.workers.includes(worker)) return html`<td class="quiet"><span aria-hidden="true">·</span><span class="unseen">does not compile for it</span></td>`;
  const [kind, word] = WAYS[target.verified_by[worker]] || ["warn", "compiles only"];
  const level = target.sandboxes?.[worker];
  return html`<td><span class=${`badge ${kind}`} title=${level ? `Sandbox: ${level}` : undefined}>${word}</span></td>`;
}
