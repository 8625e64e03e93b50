// Sends requests, describes their errors, and writes them as programs.

// An error with a message for the user; `details` is the server's message.
export class Failure extends Error {
  constructor(message, { details = "", status = 0, field } = {}) {
    super(message);
    this.details = details;
    this.status = status;
    this.field = field;
  }
}

const BY_STATUS = {
  404: "This model or version is no longer served. Choose another one above.",
  408: "The request did not reach the server in time. Try again.",
  413: "The text is larger than the server allows. Try a shorter one.",
  429: "The server is busy. Try again in a moment.",
  499: "The server is stopping, or the request was cancelled.",
  503: "The server is busy. Try again in a moment.",
  504: "The model took longer than the server allows. Try a shorter text, or later.",
};

// The failure for an error response. `fields` maps names of inputs to titles.
function failureOf(status, details, fields) {
  if (status === 400) {
    const name = Object.keys(fields).find((field) =>
      [`"${field}"`, `[${field}:`].some((place) => `[${details}`.includes(place)));
    const subject = name ? `\u201c${fields[name]}\u201d` : "this input";
    const long = /at most|too long|positions/.test(details);
    const message = long
      ? `The model rejects ${subject}: it is too long.`
      : `The model rejects ${subject}.`;
    return new Failure(message, { details, status, field: name });
  }
  const message = BY_STATUS[status] ?? "The server could not answer. Its log may say why.";
  return new Failure(message, { details, status });
}

// TF Serving writes NaN and Infinity, which JSON.parse does not read.
function parse(text) {
  const readable = text.replace(
    /("(?:[^"\\]|\\.)*")|-?\b(?:NaN|Infinity)\b/g,
    (all, string) => string ?? "null",
  );
  return JSON.parse(readable);
}

export async function ask(path, { body, signal, fields = {} } = {}) {
  const options = body && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  };
  let response;
  let text;
  try {
    response = await fetch(path, options);
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw new Failure("Cancelled.");
    throw new Failure("The server cannot be reached. Is it still running?", { details: error.message });
  }
  let value;
  try {
    value = parse(text);
  } catch {
    throw failureOf(response.ok ? 500 : response.status, text.slice(0, 500), fields);
  }
  if (!response.ok) throw failureOf(response.status, String(value.error ?? text), fields);
  return value;
}

// Quotes a text for a POSIX shell.
function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export function asCurl(url, body) {
  return [
    `curl -sS ${quoted(url)}`,
    `  -H ${quoted("Content-Type: application/json")}`,
    `  --data-raw ${quoted(JSON.stringify(body))}`,
  ].join(" \\\n");
}

// JSON of strings, lists and objects is valid Python.
export function asPython(url, body) {
  return `import json
import urllib.request

request = urllib.request.Request(
    ${JSON.stringify(url)},
    json.dumps(${JSON.stringify(body, null, 4).replaceAll("\n", "\n    ")}).encode(),
    {"Content-Type": "application/json"},
)
with urllib.request.urlopen(request) as answer:
    print(json.load(answer)["outputs"])
`;
}
