// Example inputs for each view. An example is offered if its inputs are those of
// the signature.

const LAKE = "Lake Baikal in southern Siberia is the deepest lake in the world, "
  + "1,642 metres at its deepest point. It holds more than a fifth of the fresh "
  + "water on the surface of the Earth. The lake is fed by 330 rivers, and only "
  + "one leaves it, the Angara. In winter its ice is thick enough for cars.";

const ONE_TEXT = [
  { name: "Praise", inputs: { text: "A moving film, with fine actors and not one dull minute." } },
  { name: "Complaint", inputs: { text: "The plot makes no sense, and it goes on for three long hours." } },
];
const PAIRS = [
  {
    name: "Alike",
    inputs: {
      text: "The company said that its sales rose by 12 percent in the last quarter.",
      text_b: "Sales went up 12 percent last quarter, the company said.",
    },
  },
  {
    name: "Unlike",
    inputs: { text: "A man is playing the guitar on a stage.", text_b: "A dog sleeps under the kitchen table." },
  },
];
const MOVE = {
  text: "The woman takes the violin out of its case and tunes it.",
  choices: "puts it under her chin and begins to play.\nswims to the other side of the lake.\n"
    + "pours it into a glass with ice.\nparks it in front of the house.",
};
const TOPICS = {
  name: "Topics",
  inputs: {
    text: "The ferry to the island leaves at seven in the morning.",
    labels: "travel\ncooking\nsport",
    template: "This text is about {}.",
  },
};

const HELP = [
  "The office is open from nine to five.", "I forgot my password and cannot log in.",
  "An invoice is sent by e-mail at the end of the month.", "Change the e-mail address of your account.",
  "Parcels arrive within three working days.", "Choose a new secret word for your account here.",
].join("\n");

const EXAMPLES = {
  labels: [...ONE_TEXT, ...PAIRS, TOPICS],
  score: [...ONE_TEXT, ...PAIRS],
  span: [
    { name: "With an answer", inputs: { question: "How deep is Lake Baikal?", context: LAKE } },
    { name: "Without an answer", inputs: { question: "Who discovered the lake?", context: LAKE } },
  ],
  tags: [
    { name: "News", inputs: { text: "Angela Merkel met Barack Obama in Hannover on Sunday, where Siemens showed its new robots." } },
  ],
  masks: [
    { name: "One mask", inputs: { text: "Paris is the [MASK] of France." } },
    { name: "Two masks", inputs: { text: "The [MASK] barked at the [MASK]." } },
  ],
  choice: [
    { name: "What comes next", inputs: MOVE },
    { name: "What comes next", inputs: { ...MOVE, start: "She" } },
  ],
  vectors: [
    { name: "Alike", inputs: { text: "How do I reset my password?" }, second: "I forgot my password and cannot log in." },
    { name: "Unlike", inputs: { text: "How do I reset my password?" }, second: "The cat sleeps in the sun." },
    { name: "Search", inputs: { text: "How do I reset my password?" }, lines: HELP },
  ],
};

export function examplesFor(view, names, mask) {
  const key = [...names].sort().join();
  const examples = (EXAMPLES[view] ?? []).filter(({ inputs }) => Object.keys(inputs).sort().join() === key);
  if (view !== "masks") return examples;
  return examples.map(({ name, inputs }) => ({ name, inputs: { text: inputs.text.replaceAll("[MASK]", mask) } }));
}
