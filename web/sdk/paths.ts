// Paths as a page writes them: `state.deploy.status`, and inside a list `item.name` and `index`. Resolved in
// plain data, never in a prototype. Pure functions.

import { isContainer, MISSING } from "./values";

export type Parts = readonly string[];

export interface Path {
  readonly root: "state" | "item" | "index";
  readonly parts: Parts;
}

const UNSAFE = /^(?:__.*|constructor|prototype)$/;
const PART = /^[\p{L}\p{N}_-]{1,128}$/u;
const ARRAY_INDEX = /^(?:0|[1-9]\d*)$/;

export const isUnsafe = (name: string): boolean => UNSAFE.test(name);
/** Return whether a name can be written in a path. */
export const isWord = (name: string): boolean => PART.test(name);
export const isPart = (part: string): boolean => isWord(part) && !isUnsafe(part);

/** Return the root and the parts of a path, or null if the text is not a path. */
export function parsePath(text: string): Path | null {
  const [root, ...parts] = text.trim().split(".");
  const isRoot = root === "state" || root === "item" || (root === "index" && !parts.length);
  return isRoot && parts.every(isPart) ? { root, parts } : null;
}

/** Return the parts of `data-gsv-key`, a path below the item: `id`, `item.id`, or `item` for the item. */
export function parseKey(text: string): Parts | null {
  const parts = text.trim().split(".");
  if (parts[0] === "item") parts.shift();
  return parts.every(isPart) ? parts : null;
}

/** Return the value at a path, or `MISSING`. */
export function resolvePath(root: unknown, parts: Parts): unknown {
  let value = root;
  for (const part of parts) {
    if (!isContainer(value) || !Object.hasOwn(value, part)) return MISSING;
    if (Array.isArray(value) && !ARRAY_INDEX.test(part)) return MISSING;
    value = value[part];
  }
  return value;
}

export const toPointer = (parts: Parts): string =>
  parts.map((part) => `/${part.replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");

export const startsWith = (parts: Parts, prefix: Parts): boolean =>
  prefix.every((part, index) => parts[index] === part);
