// Shows the description of a model.

import { element, number } from "/format.js";

function count(value) {
  return value >= 1e6 ? `${number(value / 1e6)} million` : value.toLocaleString("en");
}

function list(values, most) {
  const shown = values.slice(0, most).join(", ");
  return values.length > most ? `${shown} and ${values.length - most} more` : shown;
}

// The kinds of entities, from tags such as B-PER.
function kinds(labels) {
  return [...new Set(labels.filter((label) => label !== "O").map((label) => label.replace(/^[BI]-/, "")))];
}

function scores(scores, main) {
  return Object.entries(scores).map(([split, values]) => {
    const names = Object.keys(values).sort((a, b) => (b === main) - (a === main));
    const shown = names.slice(0, 3).filter((name) => typeof values[name] === "number")
      .map((name) => `${name} ${number(values[name])}`);
    return `${shown.join(", ")} on ${split}`;
  }).join("; ");
}

// The known facts as rows [name, value].
function facts(model) {
  const rows = [["Task", model.task]];
  if (model.fine_tuned_for) {
    const start = model.init_from ? `, from ${model.init_from}` : "";
    rows.push(["Fine-tuned for", `${model.fine_tuned_for}${start}`]);
  }
  if (model.scores) rows.push(["Scores", scores(model.scores, model.main_metric)]);
  if (model.num_examples) {
    const sizes = Object.entries(model.num_examples).map(([split, size]) => `${count(size)} ${split}`);
    rows.push(["Data", `${sizes.join(", ")} examples`]);
  }
  if (model.labels) {
    const names = model.task === "token classification" ? kinds(model.labels) : model.labels;
    rows.push(["Labels", list(names, 12)]);
  }
  if (model.scripts) {
    const casing = model.lower_case ? "lower-cased" : "upper and lower case";
    rows.push(["Scripts", `${list(model.scripts, 8)}; ${casing}`]);
  }
  if (model.vocab_size) {
    const kind = model.tokenizer ? `${model.tokenizer}, ` : "";
    rows.push(["Vocabulary", `${kind}${count(model.vocab_size)} tokens`]);
  }
  if (model.max_seq_length) rows.push(["Length", `up to ${model.max_seq_length} tokens at a time`]);
  if (model.num_parameters) {
    rows.push(["Size", `${count(model.num_parameters)} parameters in ${model.num_hidden_layers} layers of ${model.hidden_size}`]);
  }
  return rows.filter(([, value]) => value);
}

export function showFacts(model) {
  return facts(model).map(([name, value]) =>
    element("div", [element("dt", name), element("dd", value)]));
}
