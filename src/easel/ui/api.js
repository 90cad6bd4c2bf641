// Shows /openapi.json, and the methods of the gateway, as a page that can be read.
"use strict";

const at = (id) => document.getElementById(id);

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

/** A sentence in which `names` stand between backticks. */
const said = (text) => text.split("`").map((part, place) => (place % 2 ? element("code", "", part) : part));

function shape(schema, all) {
  if (schema.$ref) return shape(all[schema.$ref.split("/").pop()], all);
  if (schema.anyOf) return schema.anyOf.map((one) => shape(one, all)).join(" or ");
  if (schema.type === "array") return `[${shape(schema.items ?? {}, all)}]`;
  if (schema.properties) {
    const needed = new Set(schema.required ?? []);
    return `{${Object.entries(schema.properties).map(([name, one]) => `${name}${needed.has(name) ? "" : "?"}: ${shape(one, all)}`).join(", ")}}`;
  }
  return schema.format ?? schema.type ?? "any";
}

/** What a parameter may be: its type, its limits, and what it is where nobody says it. */
function parameter({ required, schema }, all) {
  const one = schema.anyOf?.find(({ type }) => type !== "null") ?? schema;
  const { minimum, maximum } = one;
  const limits = minimum === undefined ? "" : maximum === undefined || maximum > Number.MAX_SAFE_INTEGER ? `, from ${minimum}` : `, ${minimum} to ${maximum}`;
  const otherwise = required ? "" : schema.default === undefined || schema.default === null || schema.default === "" ? ", optional" : `, else ${schema.default}`;
  return [element("code", "", `${shape(one, all)}${limits}${otherwise}`), ...(schema.description ? [" ", ...said(schema.description)] : [])];
}

function content(part, all) {
  return Object.entries(part.content ?? {}).map(([type, { schema }]) => (type === "application/json" ? shape(schema, all) : type)).join(", ");
}

const table = (rows) => element("table", "", ...rows.map(([name, ...says]) => element("tr", "", element("td", "faint", name), element("td", "", ...says))));

function operation(method, path, row, all) {
  const rows = row.parameters.map((one) => [`${one.name} (${one.in})`, ...parameter(one, all)]);
  if (row.requestBody) rows.push(["body", element("code", "", content(row.requestBody, all))]);
  for (const [status, answer] of Object.entries(row.responses)) rows.push([status, element("code", "", status < 300 ? content(answer, all) || answer.description : answer.description)]);
  const name = `${method.toUpperCase()} ${path}`;
  const made = element("section", "card", heading(name, row.operationId), element("p", "", ...said(row.summary)), table(rows));
  made.id = row.operationId;
  made.dataset.words = `${name} ${row.summary}`.toLowerCase();
  return made;
}

/** A heading that others can be sent to. */
function heading(name, id) {
  const link = element("a", "", element("code", "", name));
  link.href = `#${id}`;
  return element("h2", "", link);
}

function showMethods() {
  const { methods, schemas } = JSON.parse(at("methods").textContent);
  at("method-list").append(table(methods.map(([name, schema]) => [name, element("code", "", shape(schema, schemas))])));
}

at("filter").oninput = () => {
  const words = at("filter").value.trim().toLowerCase().split(/\s+/);
  for (const one of at("operations").children) one.hidden = !words.every((word) => one.dataset.words.includes(word));
};

showMethods();
fetch("/openapi.json").then((answer) => answer.json()).then((described) => {
  const all = described.components.schemas;
  for (const [path, methods] of Object.entries(described.paths)) {
    for (const [method, row] of Object.entries(methods)) at("operations").append(operation(method, path, row, all));
  }
  if (location.hash) at(location.hash.slice(1))?.scrollIntoView();
}).catch((problem) => { at("problem").textContent = problem.message; });
