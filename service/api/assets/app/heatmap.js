/** How far each output was from the reference at each point, as a part of what is allowed. */
import { html } from "./lib.js";
import { number, percent, point as named } from "./format.js";

const LEAST = 1e-5;

/** What the verdicts mean that are neither passed nor failed. */
const VERDICTS = {
  reference_inexact: "It deviates from the reference, but it is closer to float64 than the reference is.",
  statistical: "It is too sensitive to rounding to compare element by element; its overall error is as large as rounding explains.",
  tolerated: "It deviates by more than 10 % of its spread, which the requested tolerance allows.",
  inconclusive: "The comparison proves nothing: tiny changes of the inputs move the reference as far as its values differ.",
};

/** 0 for an error that is next to none, 1 at the tolerance. */
export const heat = (part) => (part <= LEAST ? 0 : Math.min(1, 1 - Math.log10(part) / Math.log10(LEAST)));

export function HeatMap({ numerics }) {
  if (!numerics.outputs.length) return html`<p class="soft">Nothing was compared${numerics.reason ? `: ${numerics.reason}` : ""}.</p>`;
  const points = numerics.outputs[0].points;
  return html`
    ${numerics.warnings.map((warning) => html`<p key=${warning} class="note warn">${warning}</p>`)}
    <div class="scroll" tabindex="0" role="region" aria-label="Error of each output at each point"><table class="heat num">
      <thead><tr><th scope="col">Output</th>${points.map((one, index) => html`<th key=${index} scope="col"><span class="mono">${Object.entries(one.dims).map(([name, value]) => html`<span key=${name}>${name}=${value}</span>`)}</span><small>${one.label}</small></th>`)}
        <th scope="col" class="right">Largest error</th><th scope="col" class="right">Tolerance</th></tr></thead>
      <tbody>${numerics.outputs.map((output) => html`<tr key=${output.name}>
        <th scope="row">${output.name}<small class="mono quiet">${output.dtype}</small>${VERDICTS[output.verdict] && html`<small title=${VERDICTS[output.verdict]}>${output.verdict.replace("_", " ")}</small>`}</th>
        ${output.points.map((one, index) => html`<${Cell} key=${index} point=${one} />`)}
        <td class="right">${number(output.max_abs)}<small class="quiet">of ${number(output.range)}</small></td>
        <td class="right">${number(output.atol)}<small class="quiet">+ ${number(output.rtol)} × size</small></td></tr>`)}</tbody>
    </table></div>
    ${points.length > 0 && html`<p class="scale" aria-hidden="true"><span>none</span>${[0, 0.2, 0.4, 0.6, 0.8, 1].map((step) => html`<i key=${step} style=${{ "--heat": step }}></i>`)}<span>all that is allowed</span></p>`}
    ${numerics.left_out.length > 0 && html`<p class="hint soft">Not compared: ${numerics.left_out.map((one) => `${named(one.dims)} (${one.reason})`).join("; ")}</p>`}`;
}

function Cell({ point }) {
  const part = point.of_tolerance;
  if (part == null) return html`<td class="cell none" title=${named(point.dims)}><span class="quiet">${point.verdict?.replace("_", " ") || "not"}</span></td>`;
  const word = part === 0 ? "exact" : part < 1e-4 ? "<0.01 %" : percent(part, part < 0.1 ? 2 : 0);
  return html`<td class="cell" style=${{ "--heat": heat(part) }} title=${`${named(point.dims)}: differs by ${number(point.max_abs)} at most`}>${word}</td>`;
}
