/** The HTTP API as its OpenAPI document describes it. */
import { html, useMemo, useState } from "./lib.js";
import { get, token } from "./api.js";
import { Command, Loading, Trouble, useLoaded } from "./ui.js";

const METHODS = ["get", "post", "put", "patch", "delete", "head"];

export function Reference() {
  const { data, error, again } = useLoaded((signal) => get("openapi.json", { signal }), []);
  if (error) return html`<${Trouble} error=${error} again=${again} />`;
  if (!data) return html`<${Loading} what="Loading the API's description" />`;
  return html`<${Whole} document=${data} />`;
}

function Whole({ document }) {
  const [text, setText] = useState("");
  const groups = useMemo(() => byTag(document), [document]);
  const fits = (one) => !text || `${one.method} ${one.path} ${one.operation.summary}`.toLowerCase().includes(text.toLowerCase());
  return html`
    <div class="head"><h1>HTTP API</h1><div class="end"><a class="button" href="openapi.json" download="relaxd.openapi.json">OpenAPI document</a></div></div>
    <div class="lede">${paragraphs(document.info.description)}</div>
    <div class="reference">
      <nav aria-label="Endpoints"><input class="field full" type="search" placeholder="Find an endpoint" aria-label="Find an endpoint" onInput=${(event) => setText(event.target.value.trim())} />
        ${groups.map((group) => html`<div key=${group.name}><p class="quiet">${group.name}</p>
          <ul>${group.operations.filter(fits).map((one) => html`<li key=${one.id}><a href=${`#${one.id}`} onClick=${(event) => (event.preventDefault(), globalThis.document.getElementById(one.id).scrollIntoView())}><code class=${`method ${one.method}`}>${one.method}</code>${one.operation.summary}</a></li>`)}</ul></div>`)}
      </nav>
      <div class="stack">${groups.map((group, number) => html`<section key=${group.name} aria-labelledby=${`tag-${number}`}>
        <h2 id=${`tag-${number}`} class="tag-title">${group.name}</h2>
        ${group.description && html`<div class="soft prose">${paragraphs(group.description)}</div>`}
        <div class="stack">${group.operations.filter(fits).map((one) => html`<${Operation} key=${one.id} one=${one} document=${document} />`)}</div></section>`)}</div>
    </div>`;
}

/** Operations by tag, in the document's order. */
function byTag(document) {
  const groups = new Map((document.tags || []).map((tag) => [tag.name, { ...tag, operations: [] }]));
  for (const [path, item] of Object.entries(document.paths)) {
    for (const method of METHODS) {
      const operation = item[method];
      if (!operation) continue;
      const tag = operation.tags?.[0] || "other";
      if (!groups.has(tag)) groups.set(tag, { name: tag, operations: [] });
      groups.get(tag).operations.push({ method, path, operation, id: `${method}-${path.replace(/\W+/g, "-")}` });
    }
  }
  return [...groups.values()];
}

/** Paragraphs, lists and `code` of a description: as much of Markdown as ours have. */
export const paragraphs = (text = "") =>
  text.split(/\n{2,}/).map((part, index) =>
    /^[-*] /.test(part)
      ? html`<ul key=${index}>${part.split(/\n(?=[-*] )/).map((item) => html`<li key=${item}>${spans(item.slice(2))}</li>`)}</ul>`
      : html`<p key=${index}>${spans(part)}</p>`,
  );

export const spans = (text) => text.split(/(`[^`]+`)/).map((part, index) => (part.startsWith("`") ? html`<code key=${index}>${part.slice(1, -1)}</code>` : part));

function Operation({ one, document }) {
  const { method, path, operation } = one;
  const parameters = operation.parameters || [];
  const bodies = Object.entries(operation.requestBody?.content || {});
  return html`<article class="card operation" id=${one.id}>
    <header><h3>${operation.summary}</h3></header>
    <p class="address"><code class=${`method ${method}`}>${method}</code><code>${path}</code></p>
    ${operation.description && html`<div class="soft prose">${paragraphs(operation.description)}</div>`}
    ${parameters.length > 0 && html`<h4>Parameters</h4><dl class="members">${parameters.map((parameter) => html`<div key=${parameter.in + parameter.name}>
      <dt><code>${parameter.name}</code> <span class="quiet">${parameter.in}${parameter.required ? ", required" : ""}</span></dt>
      <dd><code class="type">${typed(parameter.schema, document)}</code> ${spans(parameter.description || "")}</dd></div>`)}</dl>`}
    ${bodies.map(([kind, body]) => html`<div key=${kind}><h4>Body <code class="quiet">${kind}</code></h4><${Schema} schema=${body.schema} document=${document} example=${example(body)} /></div>`)}
    <h4>Try it</h4><${Command} what="command" text=${curl(one)} />
    <h4>Answers</h4>
    <dl class="members">${Object.entries(operation.responses).map(([status, response]) => html`<${Answer} key=${status} status=${status} response=${resolved(response, document)} document=${document} />`)}</dl>
  </article>`;
}

function Answer({ status, response, document }) {
  const [first] = Object.entries(response.content || {});
  return html`<div><dt><code class=${/^2/.test(status) ? "good" : "bad"}>${status}</code></dt><dd>
    <p>${spans(response.description)}</p>
    ${first && first[1].schema && html`<details><summary><code>${first[0]}</code></summary><${Schema} schema=${first[1].schema} document=${document} example=${example(first[1])} /></details>`}</dd></div>`;
}

const example = (content) => content.example ?? Object.values(content.examples || {})[0]?.value;

const resolved = (item, document) =>
  item?.$ref ? item.$ref.slice(2).split("/").reduce((part, key) => part[key], document) : item;

function Schema({ schema, document, example: shown }) {
  const whole = resolved(schema, document);
  const members = Object.entries(whole.properties || {});
  return html`
    ${whole.description && html`<p class="soft">${spans(whole.description)}</p>`}
    ${members.length > 0 && html`<dl class="members">${members.map(([name, member]) => html`<div key=${name}><dt><code>${name}</code>${whole.required?.includes(name) ? "" : html` <span class="quiet">optional</span>`}</dt>
      <dd><code class="type">${typed(member, document)}</code> ${spans(member.description || "")}</dd></div>`)}</dl>`}
    ${!members.length && html`<p><code class="type">${typed(whole, document)}</code></p>`}
    ${shown !== undefined && html`<${Command} what="example" text=${typeof shown === "string" ? shown : JSON.stringify(shown, null, 2)} />`}`;
}

/** A schema in a line: `array of string`, `JobOut or null`. */
function typed(schema, document) {
  if (!schema) return "anything";
  if (schema.$ref) {
    const target = resolved(schema, document);
    return target.enum ? target.enum.join(" | ") : schema.$ref.split("/").at(-1);
  }
  const several = schema.anyOf || schema.oneOf || schema.allOf;
  if (several) return several.map((one) => typed(one, document)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.type === "array") return `array of ${typed(schema.items, document)}`;
  if (schema.type === "object" && schema.additionalProperties) return `object of ${typed(schema.additionalProperties === true ? null : schema.additionalProperties, document)}`;
  const limits = [schema.minimum != null && `from ${schema.minimum}`, schema.maximum != null && `to ${schema.maximum}`, schema.default !== undefined && schema.default !== null && `by default ${JSON.stringify(schema.default)}`].filter(Boolean);
  return [schema.format === "binary" ? "file" : schema.type || "anything", ...limits].join(", ");
}

function curl({ method, path, operation }) {
  const words = ["curl"];
  if (method !== "get") words.push(`-X ${method.toUpperCase()}`);
  if (token.get()) words.push('-H "Authorization: Bearer $RELAXD_TOKEN"');
  const content = operation.requestBody?.content || {};
  if (content["multipart/form-data"]) words.push("-F model=@m.onnx", `-F 'request=${JSON.stringify(example(content["multipart/form-data"])?.request ?? {})}'`);
  else if (content["application/json"]) words.push("-H 'Content-Type: application/json'", `-d '${JSON.stringify(example(content["application/json"]) ?? {})}'`);
  const filled = path.replace(/\{(\w+)\}/g, (_, name) => name.replace("_id", "").toUpperCase());
  return `${words.join(" ")} '${location.origin}${filled}'`;
}
