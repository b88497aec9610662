/** Registered models: names with their newest version, aliases, project and labels. */
import { html } from "./lib.js";
import { get, may } from "./api.js";
import { useQuery } from "./router.js";
import { Command, Loading, Trouble, useLoaded } from "./ui.js";
import { ago, moment } from "./format.js";

const MOST = 1000;

export function Models({ who, route }) {
  const [filter, setFilter] = useQuery(route, { text: "", project: "" });
  const { data, error, again } = useLoaded((signal) => get(`v1/models?limit=${MOST}`, { signal }), []);
  if (error) return html`<${Trouble} error=${error} again=${again} />`;
  if (!data) return html`<${Loading} what="Loading models" />`;
  const projects = [...new Set(data.models.map((model) => model.project).filter(Boolean))].sort();
  const found = data.models.filter((model) => (!filter.project || model.project === filter.project) && fits(model, filter.text.trim().toLowerCase()));
  return html`
    <div class="head"><h1>Models <span class="mono num" aria-hidden="true">[${found.length}]</span></h1>
      <p class="soft">Names for what was built, with versions and aliases that move.</p></div>
    ${data.models.length > 0 && html`<div class="row filters">
      ${projects.length > 0 && html`<select class="field" aria-label="Project" onChange=${(event) => setFilter({ project: event.target.value })}>
        ${["", ...projects].map((project) => html`<option key=${project} value=${project} selected=${project === filter.project}>${project || "All projects"}</option>`)}</select>`}
      <input class="field end" type="search" placeholder="Name, alias, label or note" aria-label="Find models" value=${filter.text} onInput=${(event) => setFilter({ text: event.target.value })} /></div>`}
    ${!data.models.length && html`<${Nothing} who=${who} />`}
    ${data.models.length > 0 && !found.length && html`<div class="card empty"><h2>No model fits</h2><p>Try another name or project.</p></div>`}
    ${found.length > 0 && html`<ul class="named" aria-label="Models by name">${found.map((model) => html`<${Row} key=${model.name} model=${model} />`)}</ul>`}`;
}

function fits(model, text) {
  const aliases = model.aliases.map((one) => one.alias);
  const labels = Object.entries(model.labels).map(([key, value]) => `${key}=${value}`);
  return !text || [model.name, model.notes, ...aliases, ...labels].some((one) => one.toLowerCase().includes(text));
}

const Row = ({ model }) => html`<li>
  <div class="what"><a href=${`./#/models/${model.name}`}>${model.name}</a>${model.notes && html`<span class="quiet clip">${model.notes}</span>`}</div>
  <p class="row">${model.aliases.map((one) => html`<${Alias} key=${one.alias} alias=${one} />`)}</p>
  <p class="row">${model.project && html`<span class="soft">${model.project}</span>`}<${Labels} labels=${model.labels} /></p>
  <p class="when num"><span>${model.last_version ? `version ${model.last_version}` : "no version"}</span><span class="quiet" title=${moment(model.created_at)}>named ${ago(model.created_at)}</span></p>
</li>`;

export const Alias = ({ alias }) => html`<span class="badge" title=${`${alias.alias} is version ${alias.version}`}>${alias.alias} <span class="num">${alias.version}</span></span>`;

export const Labels = ({ labels }) => Object.entries(labels).map(([key, value]) => html`<span key=${key} class="tag wrap">${key}=${value}</span>`);

const Nothing = ({ who }) => html`<div class="card empty">
  <h2>No model has a name yet</h2>
  <p>${may(who, "push") ? "Name what a job built on the job's page, or on the command line:" : "Whoever has the scope push names what a job built:"}</p>
  <div class="center"><${Command} what="command" text=${`relaxd models register minilm --job JOB --server ${location.origin}`} /></div>
</div>`;
