// @ts-check
// The values of models and tools as DOM nodes, always as text and never as HTML; and requests to the HTTP
// API.

import { RequestRefused, Unreachable } from "./errors.js";
import { splitText } from "./message_text.js";

const MARKER_URI = /^\/api\/artifacts\/art_[0-9a-f]{64}(#json)?$/;
const MAX_FETCHED_BYTES = 262_144; // shown of an offloaded value; its link opens the complete value
const MAX_LINE_LENGTH = 60; // characters of JSON that are shown on one line
const ESCAPED_KEY = /^~+redacted$/;

/** @returns {any} the element with this id; the page decides its type */
export const byId = (id) => document.getElementById(id);

export function element(tag, className = "", ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function button(className, label, onclick) {
  return Object.assign(element("button", className, label), { type: "button", onclick });
}

/** Make `nodes` the children of `parent`, in this order, and move only those that must move. */
export function arrange(parent, nodes) {
  const expected = new Set(nodes);
  for (const node of [...parent.childNodes]) if (!expected.has(node)) node.remove();
  nodes.forEach((node, index) => {
    if (parent.childNodes[index] !== node) parent.insertBefore(node, parent.childNodes[index] ?? null);
  });
}

export const shorten = (text, limit) => (text.length > limit ? `${text.slice(0, limit - 1)}…` : text);

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const dateAndClock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** Return a `time` element in the reader's time zone; its title has the time in UTC. */
export function time(timestamp) {
  const date = new Date(timestamp);
  const isToday = date.toDateString() === new Date().toDateString();
  const node = element("time", "faint", (isToday ? clock : dateAndClock).format(date));
  node.dateTime = timestamp;
  node.title = `${date.toISOString().replace("T", " ").slice(0, 19)} UTC`;
  return node;
}

// --- values that were offloaded to artifacts ---------------------------------------------------------------

export const isMarker = (value) => typeof value === "object" && value !== null && value.redacted === true;
export const sizeOf = (text) => new TextEncoder().encode(text).length;

function formatSize(bytes) {
  if (bytes < 1024) return `${bytes} bytes`;
  return bytes < 1_048_576 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / 1_048_576).toFixed(1)} MB`;
}

/** Fetch the list of attachments whose marker an event has instead of the list. */
export async function fetchAttachments(attachments) {
  return Array.isArray(attachments) ? attachments : JSON.parse(await fetchMarker(attachments));
}

/** Fetch the first bytes of the value that a marker refers to, as text. */
export async function fetchMarker(marker) {
  const isLong = marker.original_size > MAX_FETCHED_BYTES;
  const headers = isLong ? { range: `bytes=0-${MAX_FETCHED_BYTES - 1}` } : {};
  const response = await fetch(marker.uri, { headers });
  if (!response.ok) throw new Error("The stored value can no longer be read.");
  return response.text();
}

/** Return a node for a marker: its size, a link, and a button that loads its text. */
function markerNode(marker) {
  const size = formatSize(marker.original_size);
  if (!MARKER_URI.test(marker.uri)) return element("span", "faint", `(${size}, stored separately)`);
  const link = element("a", "", "open");
  Object.assign(link, { href: marker.uri, target: "_blank", rel: "noopener" });
  const node = element("div", "offloaded");
  const show = button("plain", `show ${size}`, async () => {
    show.disabled = true;
    try {
      const text = await fetchMarker(marker);
      const note = `The first ${formatSize(MAX_FETCHED_BYTES)} of ${size}.`;
      const isPart = sizeOf(text) < marker.original_size;
      const notes = isPart ? [element("p", "faint", note)] : [];
      node.replaceChildren(element("pre", "value", text), ...notes, link);
    } catch (problem) {
      show.disabled = false;
      node.append(element("span", "problem", ` ${problem.message}`));
    }
  });
  node.append(show, " ", link);
  return node;
}

// --- the text of messages ----------------------------------------------------------------------------------

/** Return a text in which references are replaced by the sizes of what they refer to. */
export const plainText = (text, attachments = []) => splitText(text, attachments)
  .map((part) => (isMarker(part) ? `(${formatSize(part.original_size)})` : part)).join("");

const referenceNodes = new WeakMap(); // by node of a text: its markers' nodes, which may be open

/** Show a text with references in a node. Known markers keep their nodes, so that an open one stays open. */
export function showReferences(node, text, attachments) {
  const known = referenceNodes.get(node) ?? new Map();
  referenceNodes.set(node, known);
  let count = 0;
  const nodes = splitText(text, attachments).map((part) => {
    if (!isMarker(part)) return document.createTextNode(part);
    const key = `${part.uri} ${count++}`;
    if (!known.has(key)) known.set(key, markerNode(part));
    return known.get(key);
  });
  node.replaceChildren(...nodes);
}

/**
 * Return a node for any JSON value: a string as it is, other values as JSON, offloaded parts behind their
 * markers.
 */
export function valueNode(value) {
  if (isMarker(value)) return markerNode(value);
  if (typeof value === "string") return element("pre", "value", value);
  const markers = [];
  const text = JSON.stringify(value, (_, part) => {
    if (isMarker(part)) {
      markers.push(part);
      return `(${formatSize(part.original_size)}, see ${markers.length} below)`;
    }
    return part && typeof part === "object" && !Array.isArray(part) ? unescapeKeys(part) : part;
  }, 1);
  const line = JSON.stringify(JSON.parse(text));
  const node = element("div", "", element("pre", "value", line.length <= MAX_LINE_LENGTH ? line : text));
  markers.forEach((marker, index) => node.append(element("div", "", `${index + 1}: `, markerNode(marker))));
  return node;
}

/** Remove the `~` that escapes the key `redacted` of an object that is not a marker. */
function unescapeKeys(part) {
  if (!Object.keys(part).some((key) => ESCAPED_KEY.test(key))) return part;
  const unescape = ([key, value]) => [ESCAPED_KEY.test(key) ? key.slice(1) : key, value];
  return Object.fromEntries(Object.entries(part).map(unescape));
}

/** Return a value as one shortened line. */
export function summarize(value, limit = 90) {
  if (value === undefined) return "";
  if (isMarker(value)) return formatSize(value.original_size);
  return shorten(typeof value === "string" ? value.replace(/\s+/g, " ") : JSON.stringify(value), limit);
}

// --- requests to the server --------------------------------------------------------------------------------

const MAX_PAGES = 20;

/** Return the items of all pages of a list, of at most MAX_PAGES; `read` gets the parameters of a page. */
export async function readPages(name, read) {
  const items = [];
  for (let count = 0, position = {}; count < MAX_PAGES && position; count += 1) {
    const page = await read(position);
    items.push(...page[name]);
    position = page.next === undefined ? null : { after: page.next };
  }
  return items;
}

/** Send a request and return the decoded response, or null for 204. Throws Unreachable or RequestRefused. */
export async function request(method, path, body) {
  const isRaw = body instanceof Blob || body === undefined;
  let response;
  try {
    response = await fetch(path, { method, body: isRaw ? body : JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new Unreachable("The server cannot be reached.");
  }
  if (response.status === 204) return null;
  const value = await response.json().catch(() => undefined); // undefined is not a JSON value
  if (response.ok && value === undefined) {
    throw new Unreachable("The connection broke before the response was complete.");
  }
  if (response.ok) return value;
  if (response.status === 401) document.dispatchEvent(new Event("signed-out"));
  const message = value?.error?.message ?? `The server answered ${response.status}.`;
  throw new RequestRefused({ ...value?.error, message, code: response.status });
}

/** Run `work` and show a failed request's message in the element `problemPlace`. */
export async function attempt(problemPlace, work) {
  problemPlace.textContent = "";
  try {
    await work();
  } catch (problem) {
    if (!(problem instanceof RequestRefused) && !(problem instanceof Unreachable)) throw problem;
    problemPlace.textContent = problem.message;
  }
}
