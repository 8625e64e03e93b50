// How an answer is shown, by the names of the outputs.
//
// VIEWS is the one place that knows these names: the first whose `fits` is
// true shows the answer. `outputs` is the answer for one row, `inputs` what
// was asked.

export function element(tag, content, className) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  const parts = Array.isArray(content) ? content : [content ?? ""];
  made.append(...parts.map((part) => (part instanceof Node ? part : String(part))));
  return made;
}

function percent(value) {
  return `${(100 * value).toFixed(1)} %`;
}

function number(value) {
  return typeof value === "number" ? String(Number(value.toPrecision(4))) : String(value);
}

// A table of names with their shares of 1 as bars.
function bars(caption, names, values, best) {
  const rows = values.map((value, index) => {
    const fill = element("div", "", "fill");
    fill.style.width = `${Math.max(0, Math.min(1, value)) * 100}%`;
    const track = element("div", [fill], "track");
    track.setAttribute("aria-hidden", "true");
    const name = element("th", names[index] ?? index);
    name.scope = "row";
    const row = element("tr", [name, element("td", [track], "bar"), element("td", percent(value), "number")]);
    if (index === best) row.className = "best";
    return row;
  });
  return element("table", [element("caption", caption, "hint"), element("tbody", rows)]);
}

function largest(values) {
  return values.indexOf(Math.max(...values));
}

// Text with stretches marked; starts and ends count characters, of which
// some take two places in a JavaScript string.
function marked(text, stretches) {
  const characters = Array.from(text);
  const parts = [];
  let done = 0;
  for (const { start, end, className, label } of [...stretches].sort((a, b) => a.start - b.start)) {
    if (start < done || end > characters.length || end <= start) continue;
    parts.push(characters.slice(done, start).join(""));
    const mark = element("mark", characters.slice(start, end).join(""), className);
    if (label) mark.append(" ", element("span", label, "label"));
    parts.push(mark);
    done = end;
  }
  parts.push(characters.slice(done).join(""));
  return element("div", parts, "text");
}

function list(caption, rows) {
  const body = rows.map((cells) => element("tr", cells.map((cell) => element("td", cell))));
  return element("table", [element("caption", caption, "hint"), element("tbody", body)]);
}

function showSpan(outputs, inputs) {
  const parts = [];
  parts.push(element("p", outputs.answer === "" ? "No answer in this context." : outputs.answer, "big"));
  if (outputs.answer !== "" && inputs.context !== undefined) {
    parts.push(marked(inputs.context, [{ start: Number(outputs.start), end: Number(outputs.end) }]));
  }
  if (outputs.no_answer_probability !== undefined) {
    parts.push(element("p", `Probability that there is no answer: ${percent(outputs.no_answer_probability)}`));
  }
  const best = outputs.n_best_answers ?? outputs.answers;
  const scores = outputs.n_best_scores ?? outputs.n_best_probabilities ?? outputs.scores;
  if (Array.isArray(best)) {
    const rows = best.map((answer, index) => [answer, scores ? number(scores[index]) : ""]);
    parts.push(list("Best answers", rows.filter(([answer]) => answer !== "")));
  }
  return parts;
}

function showTags(outputs, inputs) {
  const count = outputs.count === undefined ? outputs.entities.length : Number(outputs.count);
  const kinds = [...new Set(outputs.labels.slice(0, count))].sort();
  const stretches = outputs.entities.slice(0, count).map((entity, index) => ({
    start: Number(outputs.starts[index]),
    end: Number(outputs.ends[index]),
    label: outputs.labels[index],
    className: `tag-${kinds.indexOf(outputs.labels[index]) % 6}`,
  }));
  const found = outputs.entities.slice(0, count).map((entity, index) => [
    entity, outputs.labels[index], outputs.scores ? number(outputs.scores[index]) : "",
  ]);
  return [
    element("p", count === 1 ? "1 entity" : `${count} entities`),
    marked(inputs.text, stretches),
    list("Entities", found),
  ];
}

function showMasks(outputs, inputs) {
  const masks = outputs.tokens.filter((tokens) => tokens.length && tokens[0] !== "");
  const pieces = inputs.text.split("[MASK]");
  const filled = pieces.flatMap((piece, index) => {
    if (index === pieces.length - 1) return [piece];
    return [piece, masks[index] ? element("mark", masks[index][0]) : "[MASK]"];
  });
  const tables = masks.map((tokens, index) => {
    const scores = outputs.scores[index];
    return bars(`Mask ${index + 1}`, tokens, scores, largest(scores));
  });
  return [element("div", filled, "text"), ...tables];
}

function showChoice(outputs, inputs) {
  const choices = inputs.choices ?? [];
  const best = largest(outputs.probabilities);
  return [element("p", choices[best] ?? outputs.choice, "big"), bars("Choices", choices, outputs.probabilities, best)];
}

function showLabels(outputs) {
  const values = outputs.probabilities ?? outputs.scores;
  const names = outputs.labels ?? outputs.classes ?? [];
  let best = largest(values);
  const parts = [];
  if (outputs.label !== undefined) {
    parts.push(element("p", outputs.label, "big"));
    if (names.includes(outputs.label)) best = names.indexOf(outputs.label);
  }
  return [...parts, bars("Labels", names, values, best)];
}

function showVectors(outputs) {
  return VECTORS.filter((name) => Array.isArray(outputs[name])).map((name) => {
    const vector = outputs[name];
    const length = Math.hypot(...vector);
    const first = vector.slice(0, 5).map(number).join(", ");
    return element("p", `${name}: ${vector.length} dimensions, length ${number(length)}; ${first}, ...`);
  });
}

const VECTORS = ["cls", "mean", "embedding", "pooled_output"];

function has(outputs, ...names) {
  return names.every((name) => outputs[name] !== undefined);
}

export const VIEWS = [
  { name: "span", fits: (o) => has(o, "answer", "start", "end"), show: showSpan },
  { name: "tags", fits: (o) => has(o, "entities", "labels", "starts", "ends"), show: showTags },
  { name: "masks", fits: (o) => has(o, "tokens", "scores"), show: showMasks },
  { name: "choice", fits: (o) => has(o, "choice", "probabilities"), show: showChoice },
  { name: "labels", fits: (o) => Array.isArray(o.probabilities) || (Array.isArray(o.scores) && (has(o, "labels") || has(o, "classes"))), show: showLabels },
  { name: "score", fits: (o) => typeof o.score === "number", show: (o) => [element("p", number(o.score), "big")] },
  { name: "vectors", fits: (o) => VECTORS.some((name) => Array.isArray(o[name])), show: showVectors },
  { name: "other", fits: () => true, show: () => [element("p", "These outputs have no view of their own; see the JSON.")] },
];

export function view(outputs) {
  return VIEWS.find((one) => one.fits(outputs));
}
