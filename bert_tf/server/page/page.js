// Asks the server which models there are, builds the fields that a signature
// needs, and shows the answer.

import { element, view } from "/views.js";

const TITLES = {
  text: "Text", text_b: "Second text", question: "Question",
  context: "Context", choices: "Choices, one a line",
};
const ORDER = ["text", "text_a", "text_b", "question", "context", "choices"];

const page = Object.fromEntries(
  ["form", "model", "signature", "inputs", "send", "error", "status", "answer", "raw", "json"]
    .map((id) => [id, document.getElementById(id)]),
);
let signatures = {};

async function ask(path, body) {
  const options = body && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  const response = await fetch(path, options);
  const text = await response.text();
  let value;
  try {
    // TF Serving writes NaN and Infinity, which JSON.parse does not read.
    value = JSON.parse(text.replace(/("(?:[^"\\]|\\.)*")|-?\b(?:NaN|Infinity)\b/g, (all, string) => string ?? "null"));
  } catch {
    throw new Error(`${response.status}: ${text.slice(0, 200)}`);
  }
  if (!response.ok) throw new Error(value.error ?? response.statusText);
  return value;
}

function pathOf(model) {
  return `/v1/models/${encodeURIComponent(model)}`;
}

function rank(info) {
  return info.tensor_shape.unknown_rank ? 1 : info.tensor_shape.dim.length;
}

// Those that take text: a person cannot type token ids or tf.Examples.
function takesText(definition) {
  const inputs = Object.entries(definition.inputs);
  const outputs = Object.keys(definition.outputs);
  const takesExamples = inputs.length === 1 && inputs[0][0] === "inputs"
    && outputs.every((name) => ["classes", "scores", "outputs"].includes(name));
  return inputs.length > 0 && !takesExamples
    && inputs.every(([, info]) => info.dtype === "DT_STRING");
}

function fill(select, names) {
  select.replaceChildren(...names.map((name) => {
    const option = element("option", name);
    option.value = name;
    return option;
  }));
}

async function showModels() {
  const { models } = await ask("/page/models");
  const names = models.filter((model) => model.versions.length).map((model) => model.name);
  fill(page.model, names);
  if (!names.length) throw new Error("No model is ready.");
  await showSignatures();
}

async function showSignatures() {
  const metadata = await ask(`${pathOf(page.model.value)}/metadata`);
  const all = metadata.metadata.signature_def.signature_def;
  signatures = Object.fromEntries(Object.entries(all).filter(([, one]) => takesText(one)));
  const names = Object.keys(signatures).sort((a, b) =>
    (b === "serving_default") - (a === "serving_default") || a.localeCompare(b));
  fill(page.signature, names);
  page.send.disabled = names.length === 0;
  if (!names.length) {
    page.inputs.replaceChildren();
    throw new Error("This model has no signature that takes text.");
  }
  showFields();
}

function showFields() {
  const before = readFields();
  const place = (name) => (ORDER.indexOf(name) + ORDER.length + 1) % (ORDER.length + 1);
  const inputs = Object.entries(signatures[page.signature.value].inputs)
    .sort(([a], [b]) => place(a) - place(b) || a.localeCompare(b));
  page.inputs.replaceChildren(...inputs.map(([name, info]) => {
    const field = element("textarea");
    field.id = `input-${name}`;
    field.name = name;
    field.rows = name === "context" ? 6 : 2;
    if (rank(info) === 2) field.dataset.lines = "yes";
    const kept = before[name];
    field.value = Array.isArray(kept) ? kept.join("\n") : kept ?? "";
    const label = element("label", TITLES[name] ?? name);
    label.htmlFor = field.id;
    return element("p", [label, field]);
  }));
  clear();
}

function readFields() {
  const fields = page.inputs.querySelectorAll("textarea");
  return Object.fromEntries([...fields].map((field) => [
    field.name,
    field.dataset.lines ? field.value.split("\n").filter((line) => line !== "") : field.value,
  ]));
}

function clear() {
  page.error.textContent = "";
  page.answer.replaceChildren();
  page.raw.hidden = true;
}

// One row of what came back: outputs without a batch dimension stay whole.
function firstRow(value, infos) {
  const names = Object.keys(infos);
  const outputs = names.length === 1 ? { [names[0]]: value } : value;
  return Object.fromEntries(Object.entries(outputs).map(([name, columns]) => {
    const shape = infos[name].tensor_shape;
    const isBatch = shape.unknown_rank || (shape.dim.length > 0 && Number(shape.dim[0].size) < 0);
    return [name, isBatch && Array.isArray(columns) ? columns[0] : columns];
  }));
}

async function send() {
  if (page.send.disabled) return;
  clear();
  page.send.disabled = true;
  page.status.textContent = "Asking ...";
  try {
    const inputs = readFields();
    const name = page.signature.value;
    const columns = Object.fromEntries(Object.entries(inputs).map(([key, value]) => [key, [value]]));
    const start = performance.now();
    const answer = await ask(`${pathOf(page.model.value)}:predict`, { signature_name: name, inputs: columns });
    const took = performance.now() - start;
    const outputs = firstRow(answer.outputs, signatures[name].outputs);
    const chosen = view(outputs);
    page.answer.dataset.view = chosen.name;
    page.answer.replaceChildren(...chosen.show(outputs, inputs));
    page.json.textContent = JSON.stringify(outputs, null, 2);
    page.raw.hidden = false;
    page.status.textContent = `Answered in ${took.toFixed(0)} ms.`;
  } catch (error) {
    page.status.textContent = "No answer.";
    page.error.textContent = error.message;
  } finally {
    page.send.disabled = false;
  }
}

function guarded(work) {
  return async () => {
    try {
      await work();
    } catch (error) {
      page.error.textContent = error.message;
    }
  };
}

page.model.addEventListener("change", guarded(showSignatures));
page.signature.addEventListener("change", guarded(showFields));
page.form.addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
page.form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    send();
  }
});
guarded(showModels)();
