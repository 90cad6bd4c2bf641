// The attributes `data-gsv-…` of an element, parsed.

import { attributeNamesOf, attributeOf } from "./dom";
import { type Path, parsePath } from "./paths";

export const PREFIX = "data-gsv-";
export const PLAIN_KINDS = [
  "text",
  "show",
  "hide",
  "model",
  "action",
  "control",
  "each",
  "key",
  "limit",
  "format",
] as const;
export const NAMED_KINDS = ["attr", "class", "input", "value"] as const; // with a name: data-gsv-attr-NAME
// Set by the SDK, for the page's CSS.
const STATUS_NAMES = ["status", "unsaved", "conflict", "problem", "half", "shut"];
const WITH_PATH: ReadonlySet<Kind> = new Set([
  "text",
  "show",
  "hide",
  "model",
  "each",
  "attr",
  "class",
  "value",
]);

export type Kind = (typeof PLAIN_KINDS)[number] | (typeof NAMED_KINDS)[number] | "status" | "unknown";

/** A parsed attribute. Without a name or a usable path these are empty and null. */
export interface Attribute {
  readonly attribute: string;
  readonly value: string;
  readonly kind: Kind;
  readonly name: string;
  readonly path: Path | null;
}

function kindOf(word: string): [kind: Kind, name: string] {
  const plain = PLAIN_KINDS.find((kind) => kind === word);
  if (plain) return [plain, ""];
  if (STATUS_NAMES.includes(word)) return ["status", ""];
  const named = NAMED_KINDS.find((kind) => word.startsWith(`${kind}-`) && word.length > kind.length + 1);
  return named ? [named, word.slice(named.length + 1)] : ["unknown", ""];
}

export function parseAttribute(attribute: string, value: string): Attribute {
  const [kind, name] = kindOf(attribute.slice(PREFIX.length));
  return { attribute, value, kind, name, path: WITH_PATH.has(kind) ? parsePath(value) : null };
}

/** Return the parsed attributes `data-gsv-…` of an element, without those that the SDK sets. */
export function attributesOf(element: Element): Attribute[] {
  return attributeNamesOf(element)
    .filter((name) => name.startsWith(PREFIX))
    .map((name) => parseAttribute(name, attributeOf(element, name) ?? ""))
    .filter(({ kind }) => kind !== "status");
}

/** Return the attribute of an element as the reports of problems name it. */
export const placeOf = (tag: string, { attribute, value }: Attribute): string =>
  `<${tag} ${attribute}="${value.slice(0, 120)}">`;
