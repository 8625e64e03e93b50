// HTML elements, numbers, marked texts and tables.

export function element(tag, content, className) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  const parts = Array.isArray(content) ? content : [content ?? ""];
  made.append(...parts.map((part) => (part instanceof Node ? part : String(part))));
  return made;
}

// Formats a probability; a softmax is never exactly 0 or 1.
export function probability(value) {
  if (typeof value !== "number") return "not a number";
  if (value < 0.0005) return "<0.1%";
  if (value >= 0.9995) return ">99.9%";
  return `${(100 * value).toFixed(1)}%`;
}

// Formats a number with four significant digits.
export function number(value) {
  if (typeof value !== "number") return "not a number";
  return String(Number(value.toPrecision(4))).replace("-", "\u2212");
}

export function cosine(a, b) {
  const product = a.reduce((sum, value, index) => sum + value * b[index], 0);
  return product / (Math.hypot(...a) * Math.hypot(...b));
}

// A character of a word; each Chinese character is a separate word.
const WORD = /^(?!\p{Script=Han})[\p{L}\p{M}\p{N}]$/u;
const DIGIT = /^\p{Nd}$/u;

// Whether a character is in a word; points and commas are parts of numbers.
function inWord(characters, index) {
  const character = characters[index];
  if (index < 0 || index >= characters.length) return false;
  if (".,".includes(character)) {
    return DIGIT.test(characters[index - 1]) && DIGIT.test(characters[index + 1]);
  }
  return WORD.test(character);
}

// Extends a span of characters to whole words.
export function wholeWords(characters, start, end) {
  const joined = (index) => inWord(characters, index - 1) && inWord(characters, index);
  while (joined(start)) start -= 1;
  while (joined(end)) end += 1;
  return { start, end };
}

// Text with marked spans. Starts and ends count code points, of which some are
// two units of a JavaScript string.
export function marked(text, spans) {
  const characters = Array.from(text);
  const parts = [];
  let done = 0;
  for (const { start, end, className, label } of [...spans].sort((a, b) => a.start - b.start)) {
    if (start < done || end > characters.length || end <= start) continue;
    parts.push(characters.slice(done, start).join(""));
    const mark = element("mark", characters.slice(start, end).join(""), className);
    if (label !== undefined) mark.append("\u00a0", element("span", label, "label"));
    parts.push(mark);
    done = end;
  }
  parts.push(characters.slice(done).join(""));
  return element("div", parts, "text");
}

// A table with a header and an optional caption. Columns are { title, kind }, where
// kind is "name" for the header of a row, "number", "word", or "bar" for a share of 1.
export function table(caption, columns, rows, best) {
  const head = columns.map(({ title, kind }) => {
    if (kind === "bar") return element("td", "", "bar");
    const cell = element("th", title, kind);
    cell.scope = "col";
    return cell;
  });
  const body = rows.map((values, index) => {
    const cells = values.map((value, column) => {
      const { kind } = columns[column];
      if (kind === "bar") return element("td", [bar(value)], kind);
      const cell = element(kind === "name" ? "th" : "td", value, kind);
      if (kind === "name") cell.scope = "row";
      return cell;
    });
    return element("tr", cells, index === best ? "best" : "");
  });
  return element("table", [
    ...(caption ? [element("caption", caption)] : []),
    element("thead", [element("tr", head)]),
    element("tbody", body),
  ]);
}

function bar(share) {
  const fill = element("div", "", "fill");
  fill.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  const track = element("div", [fill], "track");
  track.setAttribute("aria-hidden", "true");
  return track;
}

// A table of names, probabilities and bars.
export function shares(caption, title, names, values, best) {
  const columns = [
    { title, kind: "name" },
    { title: "Probability", kind: "number" },
    { kind: "bar" },
  ];
  const rows = values.map((value, index) => [names[index] ?? index, probability(value), value]);
  return table(caption, columns, rows, best);
}
