/** Latency against a dim, beside the reference runtime's: lines over one dim, or bars over all points. */
import { html, useLayoutEffect, useMemo, useRef, useState } from "./lib.js";
import { Switch } from "./ui.js";
import { milliseconds, point as named } from "./format.js";

const HIGH = 320;
const EDGE = { left: 64, top: 18, bottom: 42 };
const NARROW = 480;

/** Milliseconds that the fitted cost gives at a point. */
export const predicted = (cost, dims) =>
  cost.terms.reduce(
    (sum, term) =>
      sum + term.ms * Object.entries(term.dims).reduce((part, [name, power]) => part * (dims[name] ?? 0) ** power, 1),
    0,
  );

/** The points along `dim` that share their other dims, the longest such row first. */
export function rowsAlong(points, dim) {
  const rows = new Map();
  for (const point of points) {
    if (!(dim in point.dims)) continue;
    const { [dim]: _, ...fixed } = point.dims;
    const key = named(fixed);
    if (!rows.has(key)) rows.set(key, { key, fixed, points: new Map() });
    rows.get(key).points.set(point.dims[dim], point);
  }
  return [...rows.values()]
    .map((row) => ({ ...row, points: [...row.points.values()].sort((a, b) => a.dims[dim] - b.dims[dim]) }))
    .sort((a, b) => b.points.length - a.points.length);
}

export function ticks(low, high, log) {
  const found = [];
  if (log) {
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const factor of [1, 2, 5]) found.push(factor * 10 ** power);
    }
    return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  }
  const rough = (high - low) / 5 || 1;
  const base = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * base >= rough) * base;
  for (let value = Math.ceil(low / step) * step; value <= high * 1.001; value += step) found.push(value);
  return found;
}

const scale = (low, high, from, to, log) => {
  const at = log ? Math.log : (value) => value;
  const span = at(high) - at(low) || 1;
  return (value) => from + ((at(value) - at(low)) / span) * (to - from);
};

/** `series`: `[{name, kind, points}]`, the first one's cost is drawn too. */
export function Latency({ series, dims, cost }) {
  const along = useMemo(
    () => {
      const reach = (dim) => rowsAlong(series[0].points, dim)[0]?.points.length || 0;
      return dims.filter((dim) => reach(dim) > 1).sort((a, b) => reach(b) - reach(a));
    },
    [series, dims],
  );
  const [view, setView] = useState(along[0] || "");
  const [fixed, setFixed] = useState("");
  const [table, setTable] = useState(false);
  const rows = view ? rowsAlong(series[0].points, view).filter((row) => row.points.length > 1) : [];
  const row = rows.find((one) => one.key === fixed) || rows[0];
  const options = [...along.map((dim) => [dim, `by ${dim}`]), ["", "all points"]];
  const engine = series[0].points.find((one) => one.reference)?.reference.engine;
  return html`
    <div class="row chart-tools">
      ${options.length > 1 && html`<${Switch} label="Horizontal axis" options=${options} value=${view} onChange=${setView} />`}
      ${rows.length > 1 && html`<label class="row soft small">at
        <select class="field mono" value=${row.key} onChange=${(event) => setFixed(event.target.value)}>
          ${rows.map((one) => html`<option key=${one.key} value=${one.key}>${one.key}</option>`)}
        </select></label>`}
      <span class="end"><${Switch} label="Form" options=${[[false, "Chart"], [true, "Table"]]} value=${table} onChange=${setTable} /></span>
    </div>
    ${table
      ? html`<${Figures} series=${series} engine=${engine} />`
      : row
        ? html`<${Lines} series=${series} dim=${view} row=${row} cost=${cost} engine=${engine} />`
        : html`<${Bars} series=${series} engine=${engine} />`}
  `;
}

function useWidth() {
  const box = useRef();
  const [width, setWidth] = useState(900);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(240, entry.contentRect.width)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return [box, width];
}

/** `format` spells a value of the vertical axis. */
export function Lines({ series, dim, row, cost, engine, format = milliseconds }) {
  const [box, width] = useWidth();
  const [near, setNear] = useState(null);
  // Beside the lines stand their names.
  const right = width < NARROW ? 106 : 152;
  const drawn = lines(series, dim, row, engine);
  const values = drawn.flatMap((line) => line.points);
  const lowX = Math.min(...values.map((one) => one.x));
  const highX = Math.max(...values.map((one) => one.x));
  const topY = Math.max(...values.map((one) => one.high)) * 1.08;
  const log = highX / Math.max(1, lowX) >= 32;
  const lowY = log ? Math.min(...values.map((one) => one.low)) * 0.8 : 0;
  const x = scale(Math.max(log ? 1 : 0, lowX), highX, EDGE.left, width - right, log);
  const y = scale(lowY, topY, HIGH - EDGE.bottom, EDGE.top, log);
  const marks = thinned([...new Set(values.map((one) => one.x))].sort((a, b) => a - b), x, 38);
  const fit = cost && fitted(cost, dim, row.fixed, lowX, highX, log);
  const labels = apart(drawn.map((line) => ({ line, at: y(line.points.at(-1).y) })));
  const seek = (event) => {
    const place = event.clientX - event.currentTarget.getBoundingClientRect().left;
    setNear(values.reduce((best, one) => (Math.abs(x(one.x) - place) < Math.abs(x(best) - place) ? one.x : best), values[0].x));
  };
  return html`<figure class="chart" ref=${box}>
    <svg width=${width} height=${HIGH} role="img" aria-label=${summary(drawn, dim, format)} onMouseMove=${seek} onMouseLeave=${() => setNear(null)}>
      ${ticks(Math.max(lowY, log ? 1e-6 : 0), topY, log).map((value) => html`<g key=${value} class="grid">
        <line x1=${EDGE.left} x2=${width - right} y1=${y(value)} y2=${y(value)} />
        <text x=${EDGE.left - 10} y=${y(value) + 4} text-anchor="end">${format(value)}</text></g>`)}
      ${marks.map((value) => html`<text key=${value} class="tick" x=${x(value)} y=${HIGH - EDGE.bottom + 20} text-anchor="middle">${value}</text>`)}
      <text class="tick axis" x=${width - right} y=${HIGH - 4} text-anchor="end">${dim}${log ? ", logarithmic" : ""}</text>
      ${near != null && html`<line class="cursor" x1=${x(near)} x2=${x(near)} y1=${EDGE.top} y2=${HIGH - EDGE.bottom} />`}
      ${fit && html`<path class="fit" d=${path(fit.map((one) => [x(one.x), y(Math.max(one.y, lowY || 0))]))} />`}
      ${drawn.map((line) => html`<g key=${line.name} class=${`line ${line.kind}`}>
        <path class="band" d=${band(line.points, x, y)} />
        <path class="stroke" d=${path(line.points.map((one) => [x(one.x), y(one.y)]))} />
        ${line.points.map((one) => html`<circle key=${one.x} cx=${x(one.x)} cy=${y(one.y)} r=${one.x === near ? 5 : 3.2} />`)}
      </g>`)}
      ${labels.map(({ line, at }) => html`<text key=${line.name} class=${`label ${line.kind}`} x=${width - right + 12} y=${at + 4}>${width < NARROW ? line.name.replace(/ [\d.]+$/, "") : line.name}</text>`)}
    </svg>
    ${near != null && html`<div class="tip" style=${{ left: `${Math.min(x(near) + 14, width - 190)}px` }}>
      <p class="mono">${dim}=${near}</p>
      ${drawn.map((line) => {
        const found = line.points.find((one) => one.x === near);
        return found && html`<p key=${line.name} class=${line.kind}><b>${format(found.y)}</b> ${line.name}</p>`;
      })}
    </div>`}
    ${fit && html`<figcaption class="quiet">Dotted: the fitted cost, off by ${(cost.error_median * 100).toFixed(0)} % at the median and ${(cost.error_max * 100).toFixed(0)} % at most. Bands: the middle half of the runs.</figcaption>`}
  </figure>`;
}

/** One line for each series, and one for the reference beside the first. */
function lines(series, dim, row, engine) {
  const at = (points) => rowsAlong(points, dim).find((one) => one.key === row.key)?.points || [];
  const drawn = series.map((one) => ({ name: one.name, kind: one.kind, points: at(one.points).map((point) => marked(point.dims[dim], point)) }));
  if (engine) {
    const points = row.points.filter((one) => one.reference).map((one) => marked(one.dims[dim], one.reference));
    drawn.push({ name: engine.replace("onnxruntime", "ONNX Runtime"), kind: "other", points });
  }
  return drawn.filter((line) => line.points.length);
}

const marked = (x, timing) => ({
  x,
  y: timing.median_ms,
  low: timing.p25_ms ?? timing.median_ms,
  high: timing.p75_ms ?? timing.median_ms,
});

function fitted(cost, dim, fixed, low, high, log) {
  const from = Math.max(low, cost.low[dim] ?? low);
  const to = Math.min(high, cost.high[dim] ?? high);
  if (!(to > from)) return null;
  return Array.from({ length: 60 }, (_, index) => {
    const part = index / 59;
    const x = log ? from * (to / from) ** part : from + (to - from) * part;
    return { x, y: predicted(cost, { ...fixed, [dim]: x }) };
  });
}

const path = (places) => places.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function band(points, x, y) {
  const upper = points.map((one) => [x(one.x), y(one.high)]);
  const lower = points.map((one) => [x(one.x), y(one.low)]).reverse();
  return `${path([...upper, ...lower])}Z`;
}

function thinned(values, x, room) {
  const kept = [];
  for (const value of values) if (!kept.length || x(value) - x(kept.at(-1)) >= room) kept.push(value);
  return kept;
}

/** Labels far enough from each other to be read. */
function apart(labels) {
  const sorted = [...labels].sort((a, b) => a.at - b.at);
  for (let index = 1; index < sorted.length; index += 1) {
    sorted[index] = { ...sorted[index], at: Math.max(sorted[index].at, sorted[index - 1].at + 17) };
  }
  return sorted;
}

const summary = (drawn, dim, format) =>
  drawn
    .map((line) => `${line.name}: ${format(line.points[0].y)} at ${dim} ${line.points[0].x} to ${format(line.points.at(-1).y)} at ${line.points.at(-1).x}`)
    .join("; ");

function Bars({ series, engine }) {
  const all = series[0].points.map((point) => ({
    name: named(point.dims),
    label: point.label,
    bars: [
      ...series.map((one) => {
        const same = one.points.find((other) => named(other.dims) === named(point.dims));
        return same && { kind: one.kind, name: one.name, ms: same.median_ms };
      }),
      point.reference && { kind: "other", name: engine.replace("onnxruntime", "ONNX Runtime"), ms: point.reference.median_ms },
    ].filter(Boolean),
  }));
  const most = Math.max(...all.flatMap((one) => one.bars.map((bar) => bar.ms)));
  return html`<ul class="bars" aria-label="Median latency at each point">
    ${all.map((one) => html`<li key=${one.name + one.label}>
      <p><span class="mono">${one.name}</span> <span class="quiet">${one.label}</span></p>
      <div>${one.bars.map((bar) => html`<p key=${bar.name} class=${`bar ${bar.kind}`}>
        <span class="track"><i style=${{ width: `${Math.max(0.4, (bar.ms / most) * 100)}%` }}></i></span>
        <span class="num">${milliseconds(bar.ms)}</span><span class="quiet">${bar.name}</span></p>`)}</div>
    </li>`)}
  </ul>`;
}

function Figures({ series, engine }) {
  const [one] = series;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Latency at each point"><table class="table num">
    <thead><tr><th scope="col">Point</th><th scope="col" class="right">Median</th><th scope="col" class="right">Fastest</th>
      <th scope="col" class="right">Middle half</th><th scope="col" class="right">95th percentile</th><th scope="col" class="right">Runs</th>
      ${engine && html`<th scope="col" class="right">${engine}</th><th scope="col" class="right">Ratio</th>`}</tr></thead>
    <tbody>${one.points.map((point) => html`<tr key=${named(point.dims) + point.label}>
      <th scope="row"><span class="mono">${named(point.dims)}</span> <span class="quiet">${point.label}</span>${point.stable === false && html` <span class="badge warn">not stable</span>`}</th>
      <td class="right">${milliseconds(point.median_ms)}</td><td class="right">${milliseconds(point.min_ms)}</td>
      <td class="right">${point.p25_ms != null ? `${milliseconds(point.p25_ms)} to ${milliseconds(point.p75_ms)}` : ""}</td>
      <td class="right">${milliseconds(point.p95_ms)}</td><td class="right">${point.runs}</td>
      ${engine && html`<td class="right">${milliseconds(point.reference?.median_ms)}</td>
        <td class="right">${point.reference ? `${(point.reference.median_ms / point.median_ms).toFixed(2)}×` : ""}</td>`}
    </tr>`)}</tbody>
  </table></div>`;
}
