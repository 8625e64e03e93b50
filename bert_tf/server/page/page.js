// Lists the served models, builds the fields of a signature, and shows answers.

import { showFacts } from "/description.js";
import { examplesFor } from "/examples.js";
import { explain, isExplained } from "/explain.js";
import { element } from "/format.js";
import { asCurl, asPython, ask, Failure } from "/request.js";
import { maskOf, view } from "/views.js";

const TITLES = {
  text: "Text", text_a: "First text", text_b: "Second text", question: "Question",
  context: "Context", choices: "Choices, one per line", start: "Beginning of each choice",
  labels: "Labels, one per line", template: "Template with {} for the label (optional)",
};
const ORDER = ["text", "text_a", "text_b", "question", "context", "start", "choices", "labels", "template"];
// Names of the fields of a second row, which is compared with the first, and of
// further rows, which are sorted by their similarity to it.
const SECOND = "second";
const LINES = "lines";
const OPTIONAL = ["start", "template", SECOND];
const ROWS = { question: 1, start: 1, template: 1, choices: 5, labels: 5, [LINES]: 5, context: 6 };
const NO_MODEL_WAIT = 2000;

const page = Object.fromEntries(
  [
    "form", "model", "version", "signature", "description", "facts", "examples", "inputs", "send",
    "cancel", "status", "seconds", "error", "answer", "explained", "raw", "json", "programs", "curl", "python", "copied",
  ].map((id) => [id, document.getElementById(id)]),
);
let models = [];
let model = {};
let signatures = {};
let waiting = null;

function fill(select, options) {
  const before = select.value;
  select.replaceChildren(...options.map(([value, title]) => {
    const option = element("option", title);
    option.value = value;
    return option;
  }));
  if (options.some(([value]) => value === before)) select.value = before;
}

function path() {
  return `/v1/models/${encodeURIComponent(page.model.value)}${page.version.value}`;
}

function titleOf(name) {
  return TITLES[name] ?? name;
}

function kind() {
  return view(signatures[page.signature.value].outputs).name;
}

function rank(info) {
  return info.tensor_shape.unknown_rank ? 1 : info.tensor_shape.dim.length;
}

// Whether all inputs are text; nobody can type token ids or tf.Examples.
function takesText(definition) {
  const inputs = Object.entries(definition.inputs);
  const outputs = Object.keys(definition.outputs);
  const takesExamples = inputs.length === 1 && inputs[0][0] === "inputs"
    && outputs.every((name) => ["classes", "scores", "outputs"].includes(name));
  return inputs.length > 0 && !takesExamples
    && inputs.every(([, info]) => info.dtype === "DT_STRING");
}

async function listModels() {
  const found = await ask("/page/models");
  models = found.models.filter((one) => one.versions.length);
  fill(page.model, models.map(({ name }) => [name, name]));
  if (models.length) listVersions();
}

async function showModels() {
  await listModels();
  if (!models.length) {
    setTimeout(guarded(showModels), NO_MODEL_WAIT);
    throw new Failure("No model is ready yet. The page retries every two seconds.");
  }
  await showSignatures();
}

async function showVersions() {
  listVersions();
  await showSignatures();
}

function listVersions() {
  const { versions, labels } = models.find(({ name }) => name === page.model.value);
  fill(page.version, [
    ["", `latest (${Math.max(...versions)})`],
    ...Object.entries(labels).map(([label, version]) => [`/labels/${encodeURIComponent(label)}`, `${label} (${version})`]),
    ...versions.toReversed().map((version) => [`/versions/${version}`, String(version)]),
  ]);
}

async function showSignatures() {
  clear();
  page.send.disabled = true;
  const chosen = path();
  const { model_spec: spec, metadata } = await ask(`${chosen}/metadata`);
  const query = new URLSearchParams({ model: spec.name, version: spec.version });
  const description = await ask(`/page/description?${query}`);
  // The user may have chosen another model meanwhile.
  if (path() !== chosen) return;
  showDescription(description);
  const all = Object.entries(metadata.signature_def.signature_def);
  signatures = Object.fromEntries(all.filter(([, one]) => takesText(one)));
  const names = Object.keys(signatures).sort((a, b) =>
    (b === "serving_default") - (a === "serving_default") || a.localeCompare(b));
  fill(page.signature, names.map((name) => [name, name]));
  if (!names.length) {
    page.inputs.replaceChildren();
    page.examples.replaceChildren();
    page.programs.hidden = true;
    throw new Failure("This model has no signature that takes text.");
  }
  page.send.disabled = false;
  page.programs.hidden = false;
  showFields();
}

function showDescription(description) {
  model = description;
  const facts = showFacts(model);
  page.description.hidden = !facts.length;
  page.facts.replaceChildren(...facts);
}

function showFields() {
  const before = readFields();
  const position = (name) => (ORDER.indexOf(name) + ORDER.length + 1) % (ORDER.length + 1);
  const inputs = Object.entries(signatures[page.signature.value].inputs)
    .sort(([a], [b]) => position(a) - position(b) || a.localeCompare(b));
  const fields = inputs.map(([name, info]) => field(name, titleOf(name), before[name], rank(info) === 2));
  const pairs = kind() === "vectors" && inputs.length === 1 && rank(inputs[0][1]) === 1;
  if (pairs) {
    fields.push(field(SECOND, "Second text (optional)", before[SECOND], false));
    fields.push(field(LINES, "Lines to search (optional)", before[LINES], true));
  }
  page.inputs.className = pairs ? "beside" : "";
  page.inputs.replaceChildren(...fields);
  showExamples(inputs.map(([name]) => name));
  clear();
  showPrograms();
}

function field(name, title, value, lines) {
  const area = element("textarea");
  area.id = `input-${name}`;
  area.name = name;
  area.rows = ROWS[name] ?? 3;
  area.dir = "auto";
  if (lines) area.dataset.lines = "yes";
  area.value = Array.isArray(value) ? value.join("\n") : value ?? "";
  const label = element("label", title);
  label.htmlFor = area.id;
  return element("p", [label, area]);
}

function showExamples(names) {
  const found = examplesFor(kind() === "several" ? "labels" : kind(), names, maskOf(model));
  const buttons = found.map(({ name, inputs, second = "", lines = "" }) => {
    const button = element("button", name, "plain");
    button.type = "button";
    button.addEventListener("click", () => {
      const values = fieldOf(SECOND) ? { ...inputs, [SECOND]: second, [LINES]: lines } : inputs;
      for (const [key, value] of Object.entries(values)) fieldOf(key).value = value;
      clear();
      showPrograms();
      page.send.focus();
    });
    return button;
  });
  page.examples.replaceChildren(...(found.length ? [element("span", "Examples:", "hint"), ...buttons] : []));
}

function fieldOf(name) {
  return document.getElementById(`input-${name}`);
}

function readFields() {
  const fields = page.inputs.querySelectorAll("textarea");
  return Object.fromEntries([...fields].map((area) => [
    area.name,
    area.dataset.lines ? area.value.split("\n").filter((line) => line.trim() !== "") : area.value,
  ]));
}

// The body of a request: one row, or further rows to compare with it.
function bodyOf({ [SECOND]: second, [LINES]: lines = [], ...inputs }) {
  const others = second?.trim() ? [second, ...lines] : lines;
  const columns = Object.entries(inputs).map(([name, value]) => [name, [value, ...others]]);
  return { signature_name: page.signature.value, inputs: Object.fromEntries(columns) };
}

// Checks the fields before a request is sent.
function check(inputs) {
  for (const [name, value] of Object.entries(inputs)) {
    if (Array.isArray(value) && name !== LINES) {
      const [least, what] = name === "labels" ? [1, "one label"] : [2, "two choices"];
      if (value.length < least) throw new Failure(`Enter at least ${what}, one per line.`, { field: name });
    } else if (![...OPTIONAL, LINES].includes(name) && value.trim() === "") {
      throw new Failure(`Enter a text for \u201c${titleOf(name)}\u201d.`, { field: name });
    }
  }
  if (kind() === "masks" && !inputs.text?.includes(maskOf(model))) {
    throw new Failure(`Write ${maskOf(model)} in place of the word to predict.`, { field: "text" });
  }
}

function showPrograms() {
  const url = `${location.origin}${path()}:predict`;
  const body = bodyOf(readFields());
  page.curl.textContent = asCurl(url, body);
  page.python.textContent = asPython(url, body);
  page.copied.textContent = "";
}

function clear() {
  waiting?.abort();
  for (const area of page.inputs.querySelectorAll("[aria-invalid]")) area.removeAttribute("aria-invalid");
  page.error.replaceChildren();
  page.answer.replaceChildren();
  page.explained.replaceChildren();
  page.raw.hidden = true;
  page.status.textContent = "No request yet.";
}

function showFailure(error) {
  const parts = [element("p", error.message)];
  if (error.details) {
    parts.push(element("details", [element("summary", "Message of the server"), element("p", error.details)]));
  }
  page.error.replaceChildren(...parts);
  // Removes a model that is no longer served from the lists.
  if (error.status === 404) listModels().then(showPrograms, () => {});
  const area = error.field && fieldOf(error.field);
  if (area) {
    area.setAttribute("aria-invalid", "true");
    area.focus();
  }
}

// A row of the outputs; those without a batch dimension are the same in all rows.
function rowOf(value, infos, row) {
  const names = Object.keys(infos);
  const outputs = names.length === 1 ? { [names[0]]: value } : value;
  return Object.fromEntries(Object.entries(outputs).map(([name, columns]) => {
    const shape = infos[name].tensor_shape;
    const isBatch = shape.unknown_rank || (shape.dim.length > 0 && Number(shape.dim[0].size) < 0);
    return [name, isBatch && Array.isArray(columns) ? columns[row] : columns];
  }));
}

// Shows that a request is running, and for how long.
function wait() {
  const start = performance.now();
  const controller = new AbortController();
  const show = () => { page.seconds.textContent = `${((performance.now() - start) / 1000).toFixed(0)} s`; };
  const timer = setInterval(show, 1000);
  waiting = controller;
  page.status.textContent = "Waiting for the model \u2026";
  page.form.setAttribute("aria-busy", "true");
  page.send.setAttribute("aria-disabled", "true");
  page.cancel.hidden = false;
  controller.end = () => {
    clearInterval(timer);
    page.seconds.textContent = "";
    if (document.activeElement === page.cancel) page.send.focus();
    page.cancel.hidden = true;
    page.send.removeAttribute("aria-disabled");
    page.form.removeAttribute("aria-busy");
    waiting = null;
    return performance.now() - start;
  };
  return controller;
}

async function send() {
  if (page.send.disabled || waiting) return;
  clear();
  const inputs = readFields();
  const { outputs: infos } = signatures[page.signature.value];
  try {
    check(inputs);
  } catch (error) {
    showFailure(error);
    return;
  }
  const body = bodyOf(inputs);
  await answering(inputs, async (predict) => {
    const outputs = await predict(body);
    const row = rowOf(outputs, infos, 0);
    const rows = Object.values(body.inputs)[0].map((_, index) => rowOf(outputs, infos, index));
    const second = inputs[SECOND]?.trim() ? rows[1] : undefined;
    const chosen = view(row);
    page.answer.dataset.view = chosen.name;
    page.answer.replaceChildren(...chosen.show(row, inputs, model, second, rows.slice(second ? 2 : 1)));
    if (isExplained(chosen.name, inputs)) offerToExplain(chosen.name, row, inputs);
    page.json.textContent = JSON.stringify(rows[1] ? rows : row, null, 2);
    page.raw.hidden = false;
    page.answer.scrollIntoView({ block: "nearest" });
  });
}

// Shows a button, which is replaced by the explanation.
function offerToExplain(name, answer, inputs) {
  const button = element("button", "Which words matter?", "plain");
  button.type = "button";
  const signature = page.signature.value;
  const { outputs: infos } = signatures[signature];
  button.addEventListener("click", () => {
    if (waiting) return;
    page.error.replaceChildren();
    answering(inputs, async (predict) => {
      const parts = await explain(name, answer, inputs, async (columns, rows) => {
        const outputs = await predict({ signature_name: signature, inputs: columns });
        return Array.from({ length: rows }, (_, row) => rowOf(outputs, infos, row));
      });
      page.explained.replaceChildren(...parts);
      page.explained.scrollIntoView({ block: "nearest" });
    });
  });
  page.explained.replaceChildren(button);
}

// Runs `work`, which sends requests and shows their outputs, or shows the error.
async function answering(inputs, work) {
  const fields = Object.fromEntries(Object.keys(inputs).map((name) => [name, titleOf(name)]));
  const url = `${path()}:predict`;
  const request = wait();
  try {
    await work(async (body) => (await ask(url, { body, signal: request.signal, fields })).outputs);
    const ms = request.end();
    page.status.textContent = `Answered in ${ms < 1000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(1)} s`}.`;
  } catch (error) {
    if (waiting === request) request.end();
    if (request.signal.aborted) {
      page.status.textContent = "Cancelled.";
      return;
    }
    page.status.textContent = "No answer.";
    showFailure(error);
  }
}

async function copy(id) {
  const block = page[id];
  const title = id === "curl" ? "curl" : "Python";
  let done;
  try {
    await navigator.clipboard.writeText(block.textContent);
    done = true;
  } catch {
    // Browsers offer the clipboard only over HTTPS or from localhost.
    getSelection().selectAllChildren(block);
    done = document.execCommand("copy");
  }
  page.copied.textContent = done
    ? `Copied as ${title}.`
    : "The browser does not allow copying; select the text instead.";
}

function guarded(work) {
  return async () => {
    try {
      page.error.replaceChildren();
      await work();
    } catch (error) {
      showFailure(error);
    }
  };
}

page.model.addEventListener("change", guarded(showVersions));
page.version.addEventListener("change", guarded(showSignatures));
page.signature.addEventListener("change", guarded(showFields));
page.inputs.addEventListener("input", showPrograms);
page.cancel.addEventListener("click", () => waiting?.abort());
page.programs.addEventListener("click", (event) => {
  const id = event.target.closest("[data-copies]")?.dataset.copies;
  if (id) copy(id);
});
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
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") waiting?.abort();
});
// Open if the window is wide enough to show it next to the answer.
page.description.open = matchMedia("(min-width: 70rem)").matches;
guarded(showModels)();
