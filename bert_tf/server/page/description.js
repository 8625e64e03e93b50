// What a model is, from what its folder says.

import { element, number } from "/format.js";

function count(value) {
  return value >= 1e6 ? `${number(value / 1e6)} million` : value.toLocaleString("en");
}

function list(values, most) {
  const shown = values.slice(0, most).join(", ");
  return values.length > most ? `${shown} and ${values.length - most} more` : shown;
}

// Tags say where an entity begins; what is meant is its kind.
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

// Rows [name, value] of what is known.
function facts(given) {
  const rows = [["Task", given.task]];
  if (given.fine_tuned_for) {
    const start = given.init_from ? `, from ${given.init_from}` : "";
    rows.push(["Fine-tuned for", `${given.fine_tuned_for}${start}`]);
  }
  if (given.scores) rows.push(["Scores", scores(given.scores, given.main_metric)]);
  if (given.num_examples) {
    const sizes = Object.entries(given.num_examples).map(([split, size]) => `${count(size)} ${split}`);
    rows.push(["Data", `${sizes.join(", ")} examples`]);
  }
  if (given.labels) {
    const names = given.task === "token classification" ? kinds(given.labels) : given.labels;
    rows.push(["Labels", list(names, 12)]);
  }
  if (given.scripts) {
    const casing = given.lower_case ? "lower-cased" : "upper and lower case";
    rows.push(["Scripts", `${list(given.scripts, 8)}; ${casing}`]);
  }
  if (given.vocab_size) rows.push(["Vocabulary", `${count(given.vocab_size)} tokens`]);
  if (given.max_seq_length) rows.push(["Length", `up to ${given.max_seq_length} tokens at a time`]);
  if (given.num_parameters) {
    rows.push(["Size", `${count(given.num_parameters)} parameters in ${given.num_hidden_layers} layers of ${given.hidden_size}`]);
  }
  return rows.filter(([, value]) => value);
}

export function showFacts(given) {
  return facts(given).map(([name, value]) =>
    element("div", [element("dt", name), element("dd", value)]));
}
