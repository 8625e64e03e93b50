"use strict";
const rows = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);

const colour = (strength) => `rgb(var(--for) / ${(75 * strength).toFixed(1)}%)`;

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function options(select, count, name, first) {
  const made = Array.from({ length: count }, (_, index) => new Option(name(index), index));
  select.replaceChildren(...first, ...made);
}

let row = rows[0];
let levels = null;
let chosen = 0;

// The attention of one layer and head, or means over all of them: [S, S].
function attention() {
  const size = row.texts.length;
  const all = (value, count) => (value === "mean" ? [...Array(count).keys()] : [Number(value)]);
  const heads = all(at("layer").value, row.layers).flatMap((layer) =>
    all(at("head").value, row.heads).map((head) => (layer * row.heads + head) * size * size));
  return Float64Array.from({ length: size * size }, (_, index) =>
    heads.reduce((sum, start) => sum + levels[start + index], 0) / heads.length / 255);
}

function drawMap(values) {
  const tokens = row.texts;
  const size = tokens.length;
  const cell = Math.max(3, Math.min(22, Math.floor(640 / size)));
  const labelled = cell >= 9;
  const room = labelled ? 8 + 8 * Math.min(14, Math.max(...tokens.map((token) => token.length))) : 0;
  const canvas = at("map");
  const ratio = window.devicePixelRatio || 1;
  canvas.width = canvas.height = (room + size * cell + 1) * ratio;
  canvas.style.width = canvas.style.height = `${canvas.width / ratio}px`;
  canvas.dataset.room = room;
  canvas.dataset.cell = cell;
  const style = getComputedStyle(document.documentElement);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.fillStyle = style.getPropertyValue("--ink");
  pen.font = `${Math.min(12, cell)}px system-ui, sans-serif`;
  pen.textBaseline = "middle";
  if (labelled) {
    tokens.forEach((token, index) => {
      const middle = room + (index + 0.5) * cell;
      const text = token.length > 14 ? `${token.slice(0, 13)}\u2026` : token;
      pen.textAlign = "right";
      pen.fillText(text, room - 4, middle);
      pen.save();
      pen.translate(middle, room - 4);
      pen.rotate(-Math.PI / 2);
      pen.textAlign = "left";
      pen.fillText(text, 0, 0);
      pen.restore();
    });
  }
  pen.strokeStyle = style.getPropertyValue("--line");
  pen.strokeRect(room + 0.5, room + 0.5, size * cell, size * cell);
  pen.fillStyle = `rgb(${style.getPropertyValue("--for")})`;
  const most = Math.max(...values) || 1;
  at("darkest").textContent = `A row for each attending token, a column for each attended token; the strongest color is ${most.toFixed(2)}.`;
  values.forEach((value, index) => {
    pen.globalAlpha = value / most;
    pen.fillRect(room + (index % size) * cell, room + Math.floor(index / size) * cell, cell, cell);
  });
}

function showAttention() {
  const values = attention();
  const size = row.texts.length;
  const own = values.slice(chosen * size, (chosen + 1) * size);
  const most = Math.max(...own) || 1;
  [...at("tokens").children].forEach((button, index) => {
    button.setAttribute("aria-pressed", index === chosen);
    button.style.background = colour(own[index] / most);
    button.title = own[index].toFixed(3);
  });
  const order = [...own.keys()].sort((a, b) => own[b] - own[a]).slice(0, 3);
  const named = order.map((index) => `${row.texts[index]} ${own[index].toFixed(2)}`).join(", ");
  at("looks").textContent = `${row.texts[chosen]} attends most to ${named}. Choose another token:`;
  drawMap(values);
}

async function showRow() {
  row = rows[Number(at("row").value)];
  levels = await unpacked(row.attention);
  chosen = 0;
  at("tokens").replaceChildren(...row.texts.map((token, index) => {
    const button = document.createElement("button");
    button.textContent = token;
    button.type = "button";
    button.addEventListener("click", () => { chosen = index; showAttention(); });
    return button;
  }));
  showAttention();
}

at("map").addEventListener("mousemove", (event) => {
  const { room, cell } = at("map").dataset;
  const [to, from] = [event.offsetX, event.offsetY].map((offset) => Math.floor((offset - room) / cell));
  const size = row.texts.length;
  const inside = levels && to >= 0 && from >= 0 && to < size && from < size;
  at("map").title = inside ? `${row.texts[from]} \u2192 ${row.texts[to]}: ${attention()[from * size + to].toFixed(3)}` : "";
});

options(at("row"), rows.length, (index) => `${index + 1}: ${rows[index].texts.slice(1, 6).join(" ")} \u2026`, []);
at("row-label").hidden = rows.length < 2;
options(at("layer"), row.layers, (index) => index + 1, [new Option("mean", "mean")]);
options(at("head"), row.heads, (index) => index + 1, [new Option("mean", "mean")]);
at("layer").value = row.layers - 1;
at("row").addEventListener("change", showRow);
for (const id of ["layer", "head"]) at(id).addEventListener("change", showAttention);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showAttention);
showRow();
