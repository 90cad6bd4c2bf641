// Shows /openapi.json as a page that can be read.
"use strict";

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function shape(schema, all) {
  if (schema.$ref) return shape(all[schema.$ref.split("/").pop()], all);
  if (schema.anyOf) return schema.anyOf.map((one) => shape(one, all)).join(" or ");
  if (schema.type === "array") return `[${shape(schema.items, all)}]`;
  if (schema.properties) {
    const needed = new Set(schema.required ?? []);
    return `{${Object.entries(schema.properties).map(([name, one]) => `${name}${needed.has(name) ? "" : "?"}: ${shape(one, all)}`).join(", ")}}`;
  }
  return schema.format ?? schema.type ?? "any";
}

function content(part, all) {
  return Object.entries(part.content ?? {}).map(([type, { schema }]) => (type === "application/json" ? shape(schema, all) : type)).join(", ");
}

function operation(method, path, row, all) {
  const rows = [];
  for (const one of row.parameters) rows.push([`${one.name} (${one.in})`, one.schema.description ?? one.schema.type ?? ""]);
  if (row.requestBody) rows.push(["body", content(row.requestBody, all)]);
  for (const [status, answer] of Object.entries(row.responses)) rows.push([status, status < 300 ? content(answer, all) || answer.description : answer.description]);
  const table = element("table", "", ...rows.map(([name, says]) => element("tr", "", element("td", "faint", name), element("td", "", element("code", "", says)))));
  return element("section", "card", element("h2", "", element("code", "", `${method.toUpperCase()} ${path}`)), element("p", "", row.summary), table);
}

fetch("/openapi.json").then((answer) => answer.json()).then((described) => {
  const all = described.components.schemas;
  for (const [path, methods] of Object.entries(described.paths)) {
    for (const [method, row] of Object.entries(methods)) document.getElementById("operations").append(operation(method, path, row, all));
  }
}).catch((problem) => { document.getElementById("problem").textContent = problem.message; });
