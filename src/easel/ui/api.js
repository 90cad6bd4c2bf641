// @ts-check
// Shows /openapi.json and the gateway's methods as a readable page.

import { byId, element } from "./values.js";

/** Return the nodes of a sentence, with the words between backticks as code. */
const richText = (text) => (
  text.split("`").map((part, index) => (index % 2 ? element("code", "", part) : part))
);

/** Return a schema as a short type expression. */
function typeOf(schema, schemas) {
  if (schema.$ref) return typeOf(schemas[schema.$ref.split("/").pop()], schemas);
  if (schema.anyOf) return schema.anyOf.map((option) => typeOf(option, schemas)).join(" or ");
  if (schema.type === "array") return `[${typeOf(schema.items ?? {}, schemas)}]`;
  if (schema.properties) {
    const required = new Set(schema.required ?? []);
    const members = Object.entries(schema.properties).map(
      ([name, member]) => `${name}${required.has(name) ? "" : "?"}: ${typeOf(member, schemas)}`,
    );
    return `{${members.join(", ")}}`;
  }
  return schema.format ?? schema.type ?? "any";
}

function limitsOf({ minimum, maximum }) {
  if (minimum === undefined) return "";
  const isOpen = maximum === undefined || maximum > Number.MAX_SAFE_INTEGER;
  return isOpen ? `, from ${minimum}` : `, ${minimum} to ${maximum}`;
}

function defaultOf(schema, required) {
  if (required) return "";
  const hasDefault = schema.default !== undefined && schema.default !== null && schema.default !== "";
  return hasDefault ? `, else ${schema.default}` : ", optional";
}

/** Return the nodes that describe a parameter: its type, limits, default and meaning. */
function parameter({ required, schema }, schemas) {
  const type = schema.anyOf?.find((option) => option.type !== "null") ?? schema;
  const text = `${typeOf(type, schemas)}${limitsOf(type)}${defaultOf(schema, required)}`;
  return [element("code", "", text), ...(schema.description ? [" ", ...richText(schema.description)] : [])];
}

function content(part, schemas) {
  const describe = ([type, { schema }]) => (type === "application/json" ? typeOf(schema, schemas) : type);
  return Object.entries(part.content ?? {}).map(describe).join(", ");
}

const tableRow = ([name, ...cells]) => (
  element("tr", "", element("td", "faint", name), element("td", "", ...cells))
);
const table = (rows) => element("table", "", ...rows.map(tableRow));

function operation(method, path, row, schemas) {
  const rows = row.parameters.map((item) => [`${item.name} (${item.in})`, ...parameter(item, schemas)]);
  if (row.requestBody) rows.push(["body", element("code", "", content(row.requestBody, schemas))]);
  for (const [status, response] of Object.entries(row.responses)) {
    const body = Number(status) < 300 ? content(response, schemas) : "";
    rows.push([status, element("code", "", body || response.description)]);
  }
  const name = `${method.toUpperCase()} ${path}`;
  const summary = element("p", "", ...richText(row.summary));
  const node = element("section", "card", heading(name, row.operationId), summary, table(rows));
  node.id = row.operationId;
  node.dataset.words = `${name} ${row.summary}`.toLowerCase();
  return node;
}

/** Return a heading that links to itself. */
function heading(name, id) {
  const link = element("a", "", element("code", "", name));
  link.href = `#${id}`;
  return element("h2", "", link);
}

function showMethods() {
  const { methods, schemas } = JSON.parse(byId("methods").textContent);
  const rows = methods.map(([name, schema]) => [name, element("code", "", typeOf(schema, schemas))]);
  byId("method-list").append(table(rows));
}

byId("filter").oninput = () => {
  const words = byId("filter").value.trim().toLowerCase().split(/\s+/);
  for (const node of byId("operations").children) {
    node.hidden = !words.every((word) => node.dataset.words.includes(word));
  }
};

showMethods();
fetch("/openapi.json").then((response) => response.json()).then((description) => {
  const { schemas } = description.components;
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, row] of Object.entries(methods)) {
      byId("operations").append(operation(method, path, row, schemas));
    }
  }
  if (location.hash) byId(location.hash.slice(1))?.scrollIntoView();
}).catch((problem) => { byId("problem").textContent = problem.message; });
