/** Where the time goes: one tile a kernel, as large as its share, with the model's nodes it computes. */
import { html, useMemo, useState } from "./lib.js";
import { colour } from "./ui.js";
import { bytes, large, milliseconds, number, percent } from "./format.js";

const LEAST = 0.004;
const MOST = 40;
const WIDE = 100;
const HIGH = 42;

/** Squarified tiles in a box of `wide` by `high`: rows are closed once they would get less square. */
export function squarified(weights, wide, high) {
  const total = weights.reduce((sum, weight) => sum + weight, 0) || 1;
  const areas = weights.map((weight) => (weight / total) * wide * high);
  const tiles = [];
  let box = { x: 0, y: 0, w: wide, h: high };
  let row = [];
  for (const area of areas) {
    const side = Math.min(box.w, box.h);
    if (row.length && worst([...row, area], side) > worst(row, side)) {
      box = closed(row, box, tiles);
      row = [];
    }
    row.push(area);
  }
  if (row.length) closed(row, box, tiles);
  return tiles;
}

function worst(row, side) {
  const sum = row.reduce((total, area) => total + area, 0);
  return Math.max(...row.map((area) => Math.max((side * side * area) / (sum * sum), (sum * sum) / (side * side * area))));
}

function closed(row, box, tiles) {
  const sum = row.reduce((total, area) => total + area, 0);
  const tall = box.w >= box.h;
  const depth = sum / (tall ? box.h : box.w);
  let along = tall ? box.y : box.x;
  for (const area of row) {
    const length = area / depth;
    tiles.push(tall ? { x: box.x, y: along, w: depth, h: length } : { x: along, y: box.y, w: length, h: depth });
    along += length;
  }
  return tall
    ? { x: box.x + depth, y: box.y, w: box.w - depth, h: box.h }
    : { x: box.x, y: box.y + depth, w: box.w, h: box.h - depth };
}

export function Kernels({ times }) {
  const [chosen, setChosen] = useState(0);
  const [all, setAll] = useState(false);
  const [text, setText] = useState("");
  const rows = useMemo(() => gathered(times.rows), [times]);
  const tiles = useMemo(() => squarified(rows.map((row) => row.share), WIDE, HIGH), [rows]);
  const fits = (row) => !text || [row.name, row.family, ...(row.nodes || [])].some((word) => (word || "").toLowerCase().includes(text.toLowerCase()));
  const families = [...new Set(rows.map((row) => row.family).filter(Boolean))];
  const row = rows[Math.min(chosen, rows.length - 1)];
  return html`
    <div class="row chart-tools">
      <ul class="legend" aria-label="Families of kernels">${families.map((family) => html`<li key=${family}><i class=${`k-${colour(family)}`}></i>${family}</li>`)}</ul>
      <input class="field end" type="search" placeholder="Node or kernel" aria-label="Find kernels by node or name" onInput=${(event) => setText(event.target.value.trim())} />
    </div>
    <div class="treemap" role="group" aria-label="Kernels by their share of the time">
      ${rows.map((one, index) => {
        const { x, y, w, h } = tiles[index];
        return html`<button type="button" key=${one.name} class=${`tile k-${colour(one.family)}${fits(one) ? "" : " dim"}${w * h < 60 ? " small" : ""}${w < 4.5 || h < 5 ? " tiny" : ""}`}
          aria-pressed=${String(index === chosen)} aria-label=${`${one.name}, ${percent(one.share, 1)}`} title=${`${one.name}: ${percent(one.share, 1)}`}
          onClick=${() => setChosen(index)} onMouseEnter=${() => setChosen(index)} onFocus=${() => setChosen(index)}
          style=${{ left: `${x}%`, top: `${(y / HIGH) * 100}%`, width: `${w}%`, height: `${(h / HIGH) * 100}%` }}>
          <span><b>${title(one)}</b><span class="num">${percent(one.share, one.share < 0.1 ? 1 : 0)}</span><em class="mono">${one.family}${one.tile ? ` ${one.tile}` : ""}</em></span>
        </button>`;
      })}
    </div>
    ${row && html`<${Detail} row=${row} />`}
    <details class="more-rows" open=${all} onToggle=${(event) => setAll(event.currentTarget.open)}>
      <summary>All ${times.rows.length} kernels as a table</summary>
      ${all && html`<${Table} rows=${times.rows.filter(fits)} />`}
    </details>
  `;
}

/** The last of the node's path says most; a kernel of no node keeps its own name. */
export function title(row) {
  const nodes = row.nodes || [];
  if (!nodes.length) return row.name;
  const last = nodes[0].split("/").filter(Boolean).slice(-2).join("/");
  return nodes.length > 1 ? `${last} +${nodes.length - 1}` : last;
}

/** The longest rows; as one each: the rest, too small to be seen, and what the virtual machine does by itself. */
function gathered(rows) {
  const machine = rows.filter((row) => row.name.startsWith("vm."));
  const own = rows.filter((row) => !row.name.startsWith("vm."));
  const all = [...own, ...summed(machine, "virtual machine")].sort((a, b) => b.share - a.share);
  const shown = all.filter((row, index) => row.share >= LEAST && index < MOST);
  const rest = all.slice(shown.length);
  return [...shown, ...summed(rest, `${rest.length} smaller kernels`)];
}

/** Several rows as one, and none as none. */
function summed(rows, name) {
  const sum = (key) => rows.reduce((total, row) => total + row[key], 0);
  if (sum("share") <= 0) return [];
  return [{ name, share: sum("share"), ms: sum("ms"), calls: sum("calls"), family: "", tile: "", nodes: [] }];
}

function Detail({ row }) {
  const facts = [
    ["Time", `${milliseconds(row.ms)}${row.calls > 1 ? ` in ${row.calls} calls` : ""}`],
    ["Work", row.flops ? `${large(row.flops)}FLOP` : ""],
    ["Traffic", row.bytes ? bytes(row.bytes) : ""],
    ["Rate", [row.gflops && `${number(row.gflops)} GFLOP/s`, row.gb_s && `${number(row.gb_s)} GB/s`].filter(Boolean).join(", ")],
    ["Of the machine's peak", roof(row)],
  ].filter(([, value]) => value);
  return html`<div class="detail" aria-live="polite">
    <p><i class=${`k-${colour(row.family)}`}></i><b class="mono">${row.name}</b> <span class="quiet">${[row.family, row.tile].filter(Boolean).join(", ")}</span></p>
    <dl>${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd class="num">${value}</dd></div>`)}</dl>
    ${row.nodes?.length > 0 && html`<p class="nodes">${row.nodes.slice(0, 24).map((node) => html`<span key=${node} class="tag">${node}</span>`)}${row.nodes.length > 24 && html`<span class="quiet">and ${row.nodes.length - 24} more</span>`}</p>`}
  </div>`;
}

const BOUNDS = { compute: "bound by computing", memory: "bound by memory", cache: "its data was in the caches" };

const roof = (row) => [row.percent_of_peak != null && `${number(row.percent_of_peak)} %`, BOUNDS[row.bound]].filter(Boolean).join(", ");

const Table = ({ rows }) => html`<div class="scroll" tabindex="0" role="region" aria-label="All kernels"><table class="table num">
  <thead><tr><th scope="col">Kernel</th><th scope="col">Nodes</th><th scope="col">Family</th><th scope="col">Tile</th>
    <th scope="col" class="right">Calls</th><th scope="col" class="right">Time</th><th scope="col" class="right">Share</th>
    <th scope="col" class="right">Work</th><th scope="col" class="right">Traffic</th><th scope="col" class="right">Of peak</th></tr></thead>
  <tbody>${rows.map((row) => html`<tr key=${row.name}>
    <th scope="row" class="mono wrap">${row.name}</th><td class="mono wrap soft">${(row.nodes || []).slice(0, 6).join(" ")}${row.nodes?.length > 6 ? ` +${row.nodes.length - 6}` : ""}</td>
    <td>${row.family}</td><td class="mono">${row.tile}</td><td class="right">${row.calls}</td><td class="right">${milliseconds(row.ms)}</td>
    <td class="right">${percent(row.share, 1)}</td>
    <td class="right">${row.flops ? `${large(row.flops)}FLOP` : ""}</td><td class="right">${row.bytes ? bytes(row.bytes) : ""}</td>
    <td class="right">${row.percent_of_peak != null ? `${number(row.percent_of_peak)} %` : ""}</td>
  </tr>`)}</tbody>
</table></div>`;
