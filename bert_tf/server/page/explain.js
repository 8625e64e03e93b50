// Word importance by occlusion: the change of the outputs when a word is removed.
// Sends the model a row for each word.

import { element, number } from "/format.js";

const ROWS_OF_A_REQUEST = 16;
const MOST_WORDS = 200;
// Smallest probability, which keeps logarithms finite.
const LEAST = 1e-12;

const largest = (values) => values.indexOf(Math.max(...values));
const probabilitiesOf = (outputs) => outputs.probabilities ?? outputs.scores;

// The logarithm of p / (1 - p), where 1 - p is the sum of the other probabilities,
// which is more exact for p near 1.
function logOdds(values, index) {
  const others = values.reduce((sum, value, other) => (other === index ? sum : sum + value), 0);
  return Math.log(Math.max(values[index], LEAST) / Math.max(others, LEAST));
}

// The explained quantity of each view: its name, and its value for outputs.
const MEASURES = {
  labels: (answer) => {
    const best = largest(probabilitiesOf(answer));
    const label = (answer.labels ?? answer.classes)?.[best] ?? best;
    return { name: `the log odds of \u201c${label}\u201d`, of: (outputs) => logOdds(probabilitiesOf(outputs), best) };
  },
  several: (answer) => {
    const best = largest(answer.scores);
    const of = ({ scores }) => logOdds([scores[best], 1 - scores[best]], 0);
    return { name: `the log odds of \u201c${answer.labels[best]}\u201d`, of };
  },
  score: () => ({ name: "the score", of: (outputs) => outputs.score }),
};

// The words of all texts: { name, start, end } in UTF-16 units.
function wordsOf(inputs) {
  const segmenter = new Intl.Segmenter(undefined, { granularity: "word" });
  return Object.entries(inputs).flatMap(([name, text]) =>
    [...segmenter.segment(text)].filter((part) => part.isWordLike)
      .map(({ index, segment }) => ({ name, start: index, end: index + segment.length })));
}

// Whether the outputs of a view can be explained.
export function isExplained(view, inputs) {
  const texts = Object.values(inputs);
  if (!MEASURES[view] || !Intl.Segmenter || texts.some((text) => typeof text !== "string")) return false;
  const { length } = wordsOf(inputs);
  return length > 1 && length <= MOST_WORDS;
}

// Explains the outputs of a view. `predict` maps columns of inputs to the outputs
// of each row.
export async function explain(view, answer, inputs, predict) {
  const measure = MEASURES[view](answer);
  const words = wordsOf(inputs);
  const without = words.map(({ name, start, end }) =>
    ({ ...inputs, [name]: inputs[name].slice(0, start) + inputs[name].slice(end) }));
  const answers = [];
  for (let first = 0; first < without.length; first += ROWS_OF_A_REQUEST) {
    const rows = without.slice(first, first + ROWS_OF_A_REQUEST);
    const columns = Object.keys(inputs).map((name) => [name, rows.map((row) => row[name])]);
    answers.push(...await predict(Object.fromEntries(columns), rows.length));
  }
  const whole = measure.of(answer);
  return show(inputs, words, answers.map((outputs) => whole - measure.of(outputs)), measure.name);
}

function show(inputs, words, losses, name) {
  const most = Math.max(...losses.map(Math.abs));
  const texts = Object.entries(inputs).map(([input, text]) => {
    const parts = [];
    let done = 0;
    words.forEach((word, index) => {
      if (word.name !== input) return;
      const mark = element("mark", text.slice(word.start, word.end), losses[index] < 0 ? "against" : "for");
      mark.style.setProperty("--strength", `${(75 * Math.abs(losses[index])) / (most || 1)}%`);
      mark.title = number(losses[index]);
      parts.push(text.slice(done, word.start), mark);
      done = word.end;
    });
    const shown = element("div", [...parts, text.slice(done)], "text");
    shown.dir = "auto";
    return shown;
  });
  const hint = `Each word was removed once. Without a blue word ${name} is lower, without an orange one higher, by at most ${number(most)}.`;
  return [...texts, element("p", hint, "hint")];
}
