// What models and tools made, on the page: always as text, never as HTML.

const MARKER_URI = /^\/api\/artifacts\/art_[0-9a-f]{64}(#json)?$/;
const AT_ONCE_BYTES = 262_144; // of a value that was moved; more of it is behind its link
const ONE_LINE = 60; // characters of JSON that need no lines of their own
const ESCAPED = /^~+redacted$/;

export const at = (id) => document.getElementById(id);

export function element(tag, className = "", ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function button(className, says, press) {
  const made = element("button", className, says);
  made.type = "button";
  made.onclick = press;
  return made;
}

/** Put these in the place, in this order, and move only what has to be. */
export function arrange(place, nodes) {
  const wanted = new Set(nodes);
  for (const node of [...place.childNodes]) if (!wanted.has(node)) node.remove();
  nodes.forEach((node, index) => { if (place.childNodes[index] !== node) place.insertBefore(node, place.childNodes[index] ?? null); });
}

export const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** A moment in the reader's own time; its title has it in UTC. */
export function time(moment) {
  const when = new Date(moment);
  const made = element("time", "faint", (when.toDateString() === new Date().toDateString() ? clock : day).format(when));
  made.dateTime = moment;
  made.title = `${when.toISOString().replace("T", " ").slice(0, 19)} UTC`;
  return made;
}

// --- values that were moved to artifacts ------------------------------------------------------------------------------

export const isMarker = (value) => typeof value === "object" && value !== null && value.redacted === true;
export const sizeOf = (text) => new TextEncoder().encode(text).length;

function bytes(count) {
  if (count < 1024) return `${count} bytes`;
  return count < 1_048_576 ? `${(count / 1024).toFixed(1)} KB` : `${(count / 1_048_576).toFixed(1)} MB`;
}

/** The beginning of what a marker stands for, as text. */
export async function fetched(marker) {
  const answer = await fetch(marker.uri, { headers: marker.original_size > AT_ONCE_BYTES ? { range: `bytes=0-${AT_ONCE_BYTES - 1}` } : {} });
  if (!answer.ok) throw new Error("What was moved here can no longer be read.");
  return answer.text();
}

/** A marker: its size, a link to it, and its text when it is asked for. */
function moved(marker) {
  const size = bytes(marker.original_size);
  if (!MARKER_URI.test(marker.uri)) return element("span", "faint", `(${size}, kept elsewhere)`);
  const link = element("a", "", "open");
  Object.assign(link, { href: marker.uri, target: "_blank", rel: "noopener" });
  const here = element("div", "moved");
  const show = button("plain", `show ${size}`, async () => {
    show.disabled = true;
    try {
      const text = await fetched(marker);
      const rest = sizeOf(text) < marker.original_size ? element("p", "faint", `The first ${bytes(AT_ONCE_BYTES)} of ${size}.`) : null;
      here.replaceChildren(element("pre", "value", text), ...(rest ? [rest] : []), link);
    } catch (problem) {
      show.disabled = false;
      here.append(element("span", "problem", ` ${problem.message}`));
    }
  });
  here.append(show, " ", link);
  return here;
}

/** Any JSON value: a string as it is, the rest as JSON, and what was moved behind its marker. */
export function valueNode(value) {
  if (isMarker(value)) return moved(value);
  if (typeof value === "string") return element("pre", "value", value);
  const markers = [];
  const text = JSON.stringify(value, (_, part) => {
    if (isMarker(part)) {
      markers.push(part);
      return `(${bytes(part.original_size)}, see ${markers.length} below)`;
    }
    return part && typeof part === "object" && !Array.isArray(part) ? unescaped(part) : part;
  }, 1);
  const line = JSON.stringify(JSON.parse(text));
  const made = element("div", "", element("pre", "value", line.length <= ONE_LINE ? line : text));
  markers.forEach((marker, place) => made.append(element("div", "", `${place + 1}: `, moved(marker))));
  return made;
}

/** Keys that only looked like those of a marker were written with a `~` more. */
function unescaped(part) {
  return Object.keys(part).some((key) => ESCAPED.test(key)) ? Object.fromEntries(Object.entries(part).map(([key, one]) => [ESCAPED.test(key) ? key.slice(1) : key, one])) : part;
}

/** The same on one line, cut short. */
export function glimpse(value, most = 90) {
  if (value === undefined) return "";
  if (isMarker(value)) return bytes(value.original_size);
  return shorten(typeof value === "string" ? value.replace(/\s+/g, " ") : JSON.stringify(value), most);
}

// --- asking the server ------------------------------------------------------------------------------------------------

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function call(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, { method, body: body instanceof Blob || body === undefined ? body : JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new Refused(0, "The server cannot be reached.");
  }
  if (answer.status === 204) return null;
  const value = await answer.json().catch(() => undefined); // as no JSON is
  if (answer.ok && value === undefined) throw new Refused(0, "The server went away in the middle of its answer.");
  if (answer.ok) return value;
  if (answer.status === 401) document.dispatchEvent(new Event("signed-out"));
  throw new Refused(answer.status, value?.error?.message ?? `The server answered ${answer.status}.`);
}

/** Do something, and say beside it what went wrong. */
export async function attempt(place, action) {
  place.textContent = "";
  try {
    await action();
  } catch (problem) {
    if (!(problem instanceof Refused)) throw problem;
    place.textContent = problem.message;
  }
}
