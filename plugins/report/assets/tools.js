// Elements are only ever made with text, never with markup: whatever a name contains is shown as it is.
const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key === 'style') Object.assign(node.style, value);
    else node.setAttribute(key, value === true ? '' : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const sv = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

// Numbers as people read them; what is no number is shown as the text it is.
function show(value, digits = 4) {
  if (value === null || value === undefined || value === '') return '–';
  return isNumber(value) ? String(Number(value.toPrecision(digits))) : String(value);
}
const percent = (share) => (isNumber(share) ? `${Number((100 * share).toPrecision(3))} %` : '–');
const span = (low, high) => (percent(low) === percent(high) ? percent(low) : `${percent(low).slice(0, -2)} to ${percent(high)}`);
function seconds(value) {
  if (!isNumber(value)) return show(value);
  if (value < 60) return `${Number(value.toPrecision(value < 1 ? 2 : 3))} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 60) return `${minutes} min ${String(Math.round(value % 60)).padStart(2, '0')} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, '0')} min`;
}
const bytes = (value) => (value >= 2 ** 30 ? `${(value / 2 ** 30).toFixed(1)} GB` : `${Math.round(value / 2 ** 20)} MB`);
const clockTime = (when) => new Date(1000 * when).toLocaleTimeString();
const solid = (text) => text.replace(/ %/g, '\u00a0%');  // a number and its sign stay together
const plural = (n, one, many) => `${n} ${n === 1 ? one : many}`;

// Round steps of 1, 2 or 5; whole numbers where only they make sense.
function ticks(low, high, most, whole) {
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  let step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough * 0.999) || power;
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-6; k += 1) found.push(Number((k * step).toPrecision(12)));
  return found;
}

const COLUMN = { network: 0, data: 1, index: 2, status: 3, lower: 4, upper: 5, epsilon: 6, label: 7, predicted: 8, verifier: 9, seconds: 10, reused: 11, flags: 12, reason: 13, example: 14 };
const swatch = (colour) => el('span', { class: 'swatch', style: { background: colour } });
