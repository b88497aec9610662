/** Compile options, as the API's description lists them: their names, values and help are the service's. */
import { html, useId } from "./lib.js";
import { get } from "./api.js";
import { spans } from "./reference.js";

const GROUPS = [
  ["Precision and weights", ["precision", "precision_error", "precision_over", "weights", "weights_error", "calibration"]],
  ["Checks and measurements", ["verify", "rtol", "atol", "profile", "grid", "seed", "dump"]],
  ["Language models", ["state", "cache", "cache_error", "logits", "lora_rank", "lora_targets"]],
  ["Library", ["flavour", "embed_weights"]],
];
const OTHERS = "More options";

/** What an option is for: elsewhere the service refuses it. */
const NEEDS = {
  rtol: (at) => at("verify"),
  atol: (at) => at("verify"),
  grid: (at) => at("profile"),
  precision: (at) => at("weights") === "float32",
  weights: (at) => at("precision") === "float32",
  precision_error: (at) => at("verify") && at("precision") !== "float32",
  precision_over: (at) => at("verify") && at("precision") !== "float32" && at("precision_error"),
  weights_error: (at) => at("verify") && at("weights") !== "float32",
  calibration: (at) => at("precision") === "int8" || ["int8", "int4"].includes(at("weights")),
  cache: (at) => at("state") === "lifted",
  lora_rank: (at) => at("state") === "lifted",
  lora_targets: (at) => at("state") === "lifted" && at("lora_rank"),
  cache_error: (at) => at("verify") && at("state") === "lifted" && at("cache") !== "float32",
};

const GRID = {
  title: "Sizes to measure",
  description: "`auto`, or values by dim as in `batch=1,4 seq=16,128`; then `relaxd estimate` knows the others.",
  type: "text",
  default: null,
};

/** The options of an OpenAPI document by name, each with its type and, of an enumeration, its values. */
function optionsOf(document) {
  const { schemas } = document.components;
  const whole = (schema) => (schema.$ref ? schemas[schema.$ref.split("/").at(-1)] : schema);
  const read = (schema) => {
    const parts = (schema.anyOf || [schema]).map(whole).filter((part) => part.type !== "null");
    // A title that is the name of an enumeration too stands there alone.
    return { title: schema.title || parts[0].title, description: schema.description, default: schema.default, type: parts[0].type, values: parts[0].enum };
  };
  const listed = Object.entries(schemas.OptionsIn.properties).map(([name, schema]) => [name, read(schema)]);
  return { ...Object.fromEntries(listed), grid: GRID };
}

let loading = null;

/** The options that the service has, asked for once; throws Problem. */
export function loadOptions() {
  loading ??= get("openapi.json").then(optionsOf);
  loading.catch(() => (loading = null));
  return loading;
}

/** The options of a build that are not as by default, each with its title and value for people. */
export const describeOptions = (known, options) =>
  Object.entries(options).filter(([name, value]) => known[name] && JSON.stringify(value) !== JSON.stringify(known[name].default)).map(([name, value]) => [known[name].title, value !== null && typeof value === "object" ? JSON.stringify(value) : String(spelled(value))]);

const reader = (known, chosen) => (name) => chosen[name] ?? known[name]?.default;

const isUsed = (known, chosen, name) => name in known && (NEEDS[name]?.(reader(known, chosen)) ?? true);

/** The chosen options that are not as by default, and that the others leave a use. */
function changed(known, chosen) {
  return Object.entries(chosen).filter(([name, value]) => value !== "" && value !== known[name]?.default && isUsed(known, chosen, name));
}

/** The member `options` of a request. */
export function optionsFor(known, chosen) {
  const entries = changed(known, chosen).map(([name, value]) => [name, valueOf(known[name], value)]);
  const { grid, ...options } = Object.fromEntries(entries);
  return grid ? { ...options, profile: { grid: gridOf(grid) } } : options;
}

/** A number where the text is one: what is none the service refuses by name. */
const valueOf = (option, text) => (/number|integer/.test(option.type) && Number.isFinite(Number(text)) ? Number(text) : text);

function gridOf(text) {
  if (text === "auto") return text;
  const values = (list) => list.split(",").map((one) => (/^\d+$/.test(one) ? Number(one) : one));
  return Object.fromEntries(gridParts(text).map((part) => [part.slice(0, part.lastIndexOf("=")), values(part.slice(part.lastIndexOf("=") + 1))]));
}

const gridParts = (text) => text.split(/[\s;]+/).filter(Boolean);

const FLAGS = ["precision", "precision_error", "precision_over", "weights", "weights_error", "flavour"];

/** The same for the command line. */
export function optionWords(known, chosen) {
  return changed(known, chosen).flatMap(([name, value]) => {
    if (name === "grid") return gridParts(value).map((part) => ["--grid", part]);
    return [FLAGS.includes(name) ? [`--${name.replaceAll("_", "-")}`, value] : ["--option", `${name}=${value}`]];
  });
}

export function Options({ known, chosen, faulty, onChange }) {
  const grouped = new Set(GROUPS.flatMap(([, names]) => names));
  const others = Object.keys(known).filter((name) => !grouped.has(name));
  const groups = others.length ? [...GROUPS, [OTHERS, others]] : GROUPS;
  const news = changed(known, chosen);
  return groups.map(([title, names], index) => {
    const own = news.filter(([name]) => names.includes(name));
    return html`<details key=${title} class="option-group" open=${index === 0 || names.some((name) => faulty === `options.${name}`)}>
      <summary>${title} <span class="quiet">${own.map(([name, value]) => `${known[name].title}: ${spelled(value)}`).join(", ") || "as by default"}</span></summary>
      <div class="options">${names.filter((name) => known[name]).map((name) => html`<${Option} key=${name} option=${known[name]} value=${chosen[name] ?? known[name].default}
        unused=${!isUsed(known, chosen, name)} faulty=${faulty === `options.${name}`} onChange=${(value) => onChange({ ...chosen, [name]: value })} />`)}</div>
    </details>`;
  });
}

const spelled = (value) => (value === true ? "yes" : value === false ? "no" : value);

function Option({ option, value, unused, faulty, onChange }) {
  const id = useId();
  const about = { id, disabled: unused, "aria-describedby": `${id}-about`, "aria-invalid": faulty ? "true" : undefined };
  const label = html`<label for=${id}>${option.title}</label>`;
  const help = html`<p class="quiet" id=${`${id}-about`}>${spans(option.description)}</p>`;
  if (option.type === "boolean" && option.default !== null) {
    return html`<div class="option check"><input type="checkbox" ...${about} checked=${value} onChange=${(event) => onChange(event.target.checked)} />${label}${help}</div>`;
  }
  const values = option.values || (option.type === "boolean" ? [true, false] : null);
  if (!values) {
    return html`<div class="option">${label}<input class="field mono" ...${about} inputmode=${option.type === "text" ? undefined : "decimal"} placeholder=${option.default ?? "by default"}
      value=${value ?? ""} onInput=${(event) => onChange(event.target.value.trim())} />${help}</div>`;
  }
  const choices = option.default === null ? [null, ...values] : values;
  return html`<div class="option">${label}<select class="field" ...${about} onChange=${(event) => onChange(choices[event.target.selectedIndex] ?? "")}>
    ${choices.map((one) => html`<option key=${String(one)} selected=${(value === "" ? null : value) === one}>${one === null ? "by default" : spelled(one)}</option>`)}</select>${help}</div>`;
}
