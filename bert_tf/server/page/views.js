// Shows the outputs of a model, by their names.
//
// Only VIEWS knows these names: the first view whose `fits` is true shows the
// outputs. `outputs` and `inputs` are those of a row, `model` is the description
// of the model.

import { cosine, element, marked, number, probability, shares, table, wholeWords } from "/format.js";

const CANDIDATES = 5;
const SHOWN_LABELS = 10;

function largest(values) {
  return values.indexOf(Math.max(...values));
}

function showSpan(outputs, inputs, model) {
  const characters = Array.from(inputs.context);
  const whole = (start, end) => {
    const found = wholeWords(characters, Number(start), Number(end));
    return { ...found, text: characters.slice(found.start, found.end).join("").replace(/\s+/g, " ") };
  };
  if (outputs.answer === "") {
    return [
      element("p", "No answer in this context.", "big"),
      ...showThreshold(outputs, model),
      ...showCandidates("Best answers other than none", outputs, whole),
    ];
  }
  const best = whole(outputs.start, outputs.end);
  const parts = [element("p", best.text, "big")];
  if (best.text !== outputs.answer) {
    parts.push(element("p", `The model's span is \u201c${outputs.answer}\u201d, extended to whole words here.`, "hint"));
  }
  return [
    ...parts,
    marked(inputs.context, [best]),
    ...showThreshold(outputs, model),
    ...showCandidates("Best answers", outputs, whole),
  ];
}

function relative(value) {
  return `${number(Math.abs(value))} ${value < 0 ? "below" : "above"}`;
}

// Compares the score of no answer with the threshold.
function showThreshold(outputs, model) {
  const none = outputs.no_answer_probability;
  if (none === undefined) return [];
  const { threshold } = model;
  if (threshold === undefined) {
    if (model.task) return [element("p", "This model always gives an answer.", "hint")];
    return [element("p", `Probability of no answer: ${probability(none)}.`)];
  }
  const parts = [`Probability of no answer: ${probability(none)}.`];
  const best = outputs.n_best_scores?.[0];
  // The difference of the logits, since both probabilities are of one softmax.
  const difference = Math.log(none / best);
  if (Number.isFinite(difference)) {
    parts.push(`\u201cNo answer\u201d scores ${relative(difference)} the best answer.`);
  }
  parts.push(`The threshold is ${relative(threshold)} the best answer; above it the model returns no answer.`);
  return [element("p", parts.join(" "), "hint")];
}

function showCandidates(caption, outputs, whole) {
  const texts = outputs.n_best_answers;
  const scores = outputs.n_best_scores;
  if (!Array.isArray(texts) || !Array.isArray(scores)) return [];
  const starts = outputs.n_best_starts;
  const found = new Map();
  texts.forEach((text, index) => {
    if (text === "" || found.size === CANDIDATES) return;
    const shown = starts ? whole(starts[index], outputs.n_best_ends[index]).text : text;
    // Spans in the same words are shown once, with their best score.
    if (!found.has(shown)) found.set(shown, scores[index]);
  });
  if (!found.size) return [];
  const best = outputs.answer === "" ? -1 : 0;
  return [shares(caption, "Answer", [...found.keys()], [...found.values()], best)];
}

function showTags(outputs, inputs) {
  const count = outputs.count === undefined ? outputs.entities.length : Number(outputs.count);
  const entities = outputs.entities.slice(0, count);
  const kinds = [...new Set(outputs.labels.slice(0, count))].sort();
  const spans = entities.map((entity, index) => ({
    start: Number(outputs.starts[index]),
    end: Number(outputs.ends[index]),
    label: outputs.labels[index],
    className: `tag-${kinds.indexOf(outputs.labels[index]) % 6}`,
  }));
  const parts = [
    element("p", count === 1 ? "1 entity" : `${count || "No"} entities`, "big"),
    marked(inputs.text, spans),
  ];
  if (!count) return parts;
  const columns = [{ title: "Entity", kind: "name" }, { title: "Label", kind: "word" }, { title: "Characters", kind: "number" }];
  if (outputs.scores) columns.push({ title: "Probability", kind: "number" });
  const rows = spans.map(({ start, end, label }, index) => {
    const cells = [entities[index], label, `${start}\u2013${end}`];
    return outputs.scores ? [...cells, probability(outputs.scores[index])] : cells;
  });
  return [...parts, table("", columns, rows)];
}

// The byte of each letter of byte-level BPE (GPT-2's encoder.py): what prints
// stands for itself.
const BYTES = new Map();
for (let byte = 0, other = 256; byte < 256; byte += 1) {
  const prints = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  BYTES.set(String.fromCharCode(prints ? byte : other), byte);
  other += !prints;
}

// The text of a token, with the blank before it that a subword tokenizer marks.
function textOf(token, model) {
  const letters = Array.from(token);
  if (model.tokenizer !== "byte-level BPE" || !letters.every((letter) => BYTES.has(letter))) {
    return token.replace(/^[\u0120\u2581]/, " ");
  }
  return new TextDecoder().decode(Uint8Array.from(letters, (letter) => BYTES.get(letter)));
}

// The text of a token after other text.
function shown(token, before, model) {
  const text = textOf(token, model);
  return /(^|\s)$/.test(before) ? text.replace(/^ /, "") : text;
}

// The mask token of a model.
export function maskOf(model) {
  return model.mask_token ?? "[MASK]";
}

function showMasks(outputs, inputs, model) {
  const masks = outputs.tokens.filter((tokens) => tokens.length && tokens[0] !== "");
  const pieces = inputs.text.split(maskOf(model));
  const filled = pieces.flatMap((piece, index) => {
    if (index === pieces.length - 1) return [piece];
    return [piece, masks[index] ? element("mark", shown(masks[index][0], piece, model)) : maskOf(model)];
  });
  const tables = masks.map((tokens, index) => {
    const caption = masks.length === 1 ? "Tokens for the mask" : `Tokens for mask ${index + 1}`;
    const texts = tokens.map((token) => textOf(token, model).trim() || token);
    return shares(caption, "Token", texts, outputs.scores[index], 0);
  });
  return [element("div", filled, "text"), ...tables];
}

function showChoice(outputs, inputs) {
  const choices = inputs.choices ?? [];
  const values = outputs.probabilities.slice(0, choices.length);
  const best = largest(values);
  return [
    element("p", choices[best] ?? outputs.choice, "big"),
    shares("", "Choice", choices, values, best),
  ];
}

// Labels in the order of their scores, the first ten at once.
function showLabels(outputs) {
  const values = outputs.probabilities ?? outputs.scores;
  const names = outputs.labels ?? outputs.classes ?? values.map((value, index) => index);
  const order = names.map((name, index) => index).sort((a, b) => values[b] - values[a]);
  const rows = (from, to, best) => {
    const chosen = order.slice(from, to);
    return shares("", "Label", chosen.map((index) => names[index]), chosen.map((index) => values[index]), best);
  };
  const parts = [element("p", outputs.label ?? names[order[0]], "big")];
  parts.push(rows(0, SHOWN_LABELS, 0));
  if (names.length > SHOWN_LABELS) {
    const rest = rows(SHOWN_LABELS, names.length, -1);
    parts.push(element("details", [element("summary", `${names.length - SHOWN_LABELS} more`), rest]));
  }
  return parts;
}

// Labels of a multi-label model.
function showSeveral(outputs, inputs, model) {
  const order = outputs.labels.map((label, index) => index).sort((a, b) => outputs.scores[b] - outputs.scores[a]);
  const holding = order.filter((index) => outputs.holds[index]).map((index) => outputs.labels[index]);
  const columns = [
    { title: "Label", kind: "name" },
    { title: "Holds", kind: "word" },
    { title: "Probability", kind: "number" },
    { kind: "bar" },
  ];
  const rows = order.map((index) => [
    outputs.labels[index], outputs.holds[index] ? "yes" : "no",
    probability(outputs.scores[index]), outputs.scores[index],
  ]);
  const parts = [element("p", holding.length ? holding.join(", ") : "No label", "big"), table("", columns, rows)];
  if (model.threshold !== undefined) {
    parts.push(element("p", `A label holds if its probability is above ${probability(model.threshold)}.`, "hint"));
  }
  return parts;
}

// The lines of a search, sorted by their similarity to the text.
function showLines(vector, lines, vectors) {
  const similarity = vectors.map((other) => cosine(vector, other));
  const order = lines.map((line, index) => index).sort((a, b) => similarity[b] - similarity[a]);
  const columns = [{ title: "Line", kind: "name" }, { title: "Similarity", kind: "number" }, { kind: "bar" }];
  const rounded = (value) => number(Math.round(1000 * value) / 1000);
  const cells = order.map((index) => [lines[index], rounded(similarity[index]), similarity[index]]);
  return table("Lines by their cosine similarity to the text", columns, cells, 0);
}

// The vectors of a text, or their similarity to those of a second text and of lines.
function showVectors(outputs, inputs, model, others, lines) {
  const names = VECTORS.filter((name) => Array.isArray(outputs[name]));
  const main = names.includes("mean") ? "mean" : names[0];
  const size = (vector) => number(Math.hypot(...vector));
  const found = lines.length
    ? [showLines(outputs[main], inputs.lines, lines.map((line) => line[main]))]
    : [];
  if (!others && found.length) return found;
  if (!others) {
    const columns = [
      { title: "Vector", kind: "name" }, { title: "Dimensions", kind: "number" },
      { title: "Length", kind: "number" }, { title: "First values", kind: "number" },
    ];
    const rows = names.map((name) => [
      name, outputs[name].length, size(outputs[name]), `${outputs[name].slice(0, 3).map(number).join(", ")}, \u2026`,
    ]);
    return [table("", columns, rows), element("p", "Enter a second text to compare both, or lines to search.", "hint")];
  }
  const similarity = Object.fromEntries(names.map((name) => [name, cosine(outputs[name], others[name])]));
  const columns = [
    { title: "Vector", kind: "name" }, { title: "Lengths", kind: "number" },
    { title: "Similarity", kind: "number" },
  ];
  const rows = names.map((name) => [
    name, `${size(outputs[name])}, ${size(others[name])}`, number(similarity[name]),
  ]);
  return [
    element("p", `Similarity ${number(similarity[main])}`, "big"),
    element("p", `Cosine similarity of the ${main} vectors of ${outputs[main].length} dimensions: 1 for equal directions, 0 for orthogonal ones.`, "hint"),
    table("", columns, rows, names.indexOf(main)),
    ...found,
  ];
}

const VECTORS = ["mean", "cls", "embedding", "pooled_output"];

function has(outputs, ...names) {
  return names.every((name) => outputs[name] !== undefined);
}

export const VIEWS = [
  { name: "span", fits: (o) => has(o, "answer", "start", "end"), show: showSpan },
  { name: "tags", fits: (o) => has(o, "entities", "labels", "starts", "ends"), show: showTags },
  { name: "masks", fits: (o) => has(o, "tokens", "scores"), show: showMasks },
  { name: "choice", fits: (o) => has(o, "choice", "probabilities"), show: showChoice },
  { name: "several", fits: (o) => has(o, "labels", "scores", "holds"), show: showSeveral },
  { name: "labels", fits: (o) => has(o, "probabilities") || (has(o, "scores") && (has(o, "labels") || has(o, "classes"))), show: showLabels },
  { name: "score", fits: (o) => has(o, "score"), show: (o) => [element("p", number(o.score), "big")] },
  { name: "vectors", fits: (o) => VECTORS.some((name) => has(o, name)), show: showVectors },
  { name: "other", fits: () => true, show: () => [element("p", "See the JSON for these outputs.")] },
];

// The view of outputs, or of a signature, by the names of the outputs.
export function view(outputs) {
  return VIEWS.find((one) => one.fits(outputs));
}
