// The elements of the generated page for single values.

import type { Parts } from "../paths";
import { asText } from "../values";
import { type FieldKind, isBindable, isDeclaredNumber } from "./spec";

export function create<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  className: string,
  ...children: (Node | string)[]
): HTMLElementTagNameMap[Tag] {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

export function toLabel(name: string): string {
  const words = name
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .replace(/[._:-]+/g, " ")
    .trim();
  return words ? words.charAt(0).toUpperCase() + words.slice(1).toLowerCase() : name;
}

const labelOf = (path: Parts): string => toLabel(path.at(-1) ?? "");

function createInput(path: Parts, kind: FieldKind): HTMLInputElement {
  const input = create("input", "");
  if (kind === "check") input.type = "checkbox";
  if (kind === "number") {
    Object.assign(input, { type: "number", step: "any", required: isDeclaredNumber(path) });
  }
  return input;
}

export function createField(path: Parts, kind: FieldKind): HTMLElement {
  const input = kind === "long" ? create("textarea", "") : createInput(path, kind);
  if (kind === "long" || kind === "short") input.dir = "auto";
  input.dataset.gsvModel = `state.${path.join(".")}`;
  const name = labelOf(path);
  if (kind === "check") return create("label", "check", input, name);
  const label = create("label", kind === "long" ? "long" : "", name, input);
  if (kind !== "number") return label;
  const problem = create("span", "wrong");
  problem.setAttribute("role", "status");
  return create("div", "", label, problem);
}

/** Return a text that cannot be edited; the SDK updates it if its path can be bound. */
export function createText(
  path: Parts,
  value: unknown,
): { node: HTMLElement; update: (now: unknown) => void } {
  const text = create("div", "value");
  const isBound = isBindable(path);
  if (isBound) text.dataset.gsvText = `state.${path.join(".")}`;
  const update = (now: unknown): void => {
    if (!isBound) text.textContent = asText(now);
  };
  update(value);
  return { node: create("div", "", create("span", "name", labelOf(path)), text), update };
}
