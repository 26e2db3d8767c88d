// Curves as numbers: read from EPT, thinned, and put on common return periods. No page is known here.
import { readRecords } from "./records.js";

export const TYPES = { 1: "OEP", 3: "AEP", 2: "OEP TVaR", 4: "AEP TVaR" };
const STEP = 0.0125; // of the logarithm of return periods: some 1,100 points for six decades
const MANY = 2000;
const MOST = 256 << 20;
export const STANDARD = [2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2500, 5000, 10000, 50000, 100000];

// Reads the curves of summaries: {"<summary>/<calculation>/<type>": {periods, losses, points}} with
// return periods descending. Points that lie closer than a pixel could show are left out, but for
// those on both sides of usual return periods, so that tables have exactly what the service computes.
export async function readCurves(path, options) {
  const curves = {};
  const names = ["SummaryId", "EPCalc", "EPType", "ReturnPeriod", "Loss"];
  let curve = null;
  let [of, by, kind] = [0, 0, 0];
  await readRecords(path, names, ([summary, calculation, type, period, loss]) => {
    if (type !== kind || calculation !== by || summary !== of) {
      if (curve) keepLast(curve);
      [of, by, kind] = [summary, calculation, type];
      curve = curves[`${of}/${by}/${kind}`] = { periods: [], losses: [], points: 0, last: null, usual: STANDARD.length - 1 };
    }
    curve.points += 1;
    if (period > 0) take(curve, period, loss);
  }, { ...options, most: MOST });
  if (curve) keepLast(curve);
  return curves;
}

function take(curve, period, loss) {
  let isBesideUsual = false;
  while (STANDARD[curve.usual] >= period) { isBesideUsual = true; curve.usual -= 1; }
  if (isBesideUsual) keepLast(curve);
  curve.last = [period, loss];
  if (isBesideUsual || !curve.periods.length || Math.log(curve.periods.at(-1) / period) >= STEP) keepLast(curve);
}

function keepLast(curve) {
  if (!curve.last) return;
  curve.periods.push(curve.last[0]);
  curve.losses.push(curve.last[1]);
  curve.last = null;
}

// Losses of a curve at ascending return periods; between two points linear in the return period, and
// null beyond the curve; below one with every point no period has a loss.
export function lossesAt(curve, periods) {
  let k = curve.periods.length - 1;
  return Array.from(periods, (period) => {
    while (k >= 0 && curve.periods[k] < period) k -= 1;
    if (k < 0) return null;
    const [high, above] = [curve.periods[k], curve.losses[k]];
    if (high === period) return above;
    if (k + 1 >= curve.periods.length) return curve.isWhole ? 0 : null;
    const [low, below] = [curve.periods[k + 1], curve.losses[k + 1]];
    return below + (above - below) * (period - low) / (high - low);
  });
}

// The return periods of curves, ascending; of several that are one on any screen, one.
export function union(curves) {
  const all = Float64Array.from(new Set(curves.flatMap((curve) => curve.periods))).sort();
  if (all.length < MANY) return all;
  let last = 0;
  return all.filter((each, k) => {
    const kept = k === all.length - 1 || each > last * (1 + STEP / 2);
    if (kept) last = each;
    return kept;
  });
}

// Whether curves have points at a return period, or losses there are between two of them.
export function isPointOf(curves) {
  const known = curves.map(({ periods, isWhole }) => [new Set(periods), isWhole ? periods.at(-1) : 0]);
  return (period) => known.every(([points, first]) => points.has(period) || period < first);
}

// Return periods for a table: those of the curves where they are few, else usual ones.
export function tabled(periods) {
  if (periods.length <= 40) return [...periods];
  return STANDARD.filter((each) => each >= periods[0] && each <= periods.at(-1));
}
