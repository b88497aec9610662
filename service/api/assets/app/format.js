/** Numbers, times and digests as people read them. */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(count) {
  if (count == null) return "";
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

/** Three significant digits, without a trailing exponent where plain digits do. */
export function number(value) {
  if (value == null || Number.isNaN(value)) return "";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(1).replace("e+", "e").replace("e-", "e\u2212");
  if (size >= 100) return Math.round(value).toLocaleString("en-US").replaceAll(",", "\u202f");
  return String(Number(value.toPrecision(3)));
}

export function milliseconds(value) {
  if (value == null) return "";
  if (value === 0) return "0";
  if (value >= 1000) return `${number(value / 1000)} s`;
  if (value < 0.1) return `${number(value * 1000)} µs`;
  return `${number(value)} ms`;
}

export function count(value) {
  return value.toLocaleString("en-US").replaceAll(",", "\u202f");
}

export function large(value) {
  for (const [limit, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= limit) return `${number(value / limit)} ${unit}`;
  }
  return number(value);
}

export const percent = (share, digits = 0) => `${(share * 100).toFixed(digits)} %`;

export function duration(seconds) {
  if (seconds == null) return "";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 6000) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

/** What remains, as precisely as an estimate is: a second at the least. */
export function remaining(seconds) {
  if (!(seconds > 0)) return "";
  return `about ${seconds < 100 ? `${Math.max(1, Math.round(seconds))} s` : `${Math.round(seconds / 60)} min`} left`;
}

export const between = (began, ended) =>
  began ? Math.max(0, ((ended ? new Date(ended) : new Date()) - new Date(began)) / 1000) : null;

export function ago(time) {
  const seconds = Math.max(0, (Date.now() - new Date(time)) / 1000);
  if (seconds < 45) return "just now";
  if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  if (seconds < 86400 * 14) return `${Math.round(seconds / 86400)} d ago`;
  return new Date(time).toISOString().slice(0, 10);
}

export const moment = (time) => new Date(time).toLocaleString();

export const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** The first digits of a digest, without the algorithm. */
export const short = (digest, digits = 12) => (digest || "").replace(/^sha256:/, "").slice(0, digits);

/** The name of a dim as axis expressions have it: in quotes unless it is a plain identifier. */
const named = (name) => (/^[A-Za-z_]\w*$/.test(name) ? name : `"${name.replace(/["\\]/g, "\\$&")}"`);

export const point = (dims) =>
  Object.entries(dims).map(([name, value]) => `${named(name)}=${value}`).join(" ") || "no dims";

export const shape = (tensor) => `${tensor.dtype}[${tensor.shape.join(", ")}]`;

/** A dim's range in the command line's spelling: `1:512%8@128`. */
export function range({ min = 1, max, multiple = 1, opt }) {
  const limits = max == null ? `${min}:` : min === max ? `${min}` : `${min}:${max}`;
  return limits + (multiple > 1 ? `%${multiple}` : "") + (opt != null ? `@${opt}` : "");
}

/** A word for a shell, quoted where it has to be. */
export const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
