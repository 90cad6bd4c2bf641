import { expect, test } from "vitest";
import { formatText } from "../sdk/formats";
import { MISSING } from "../sdk/values";

const options = { dateStyle: "medium", timeZone: "UTC" } as const;
const day = (text: string) => new Intl.DateTimeFormat(undefined, options).format(new Date(text));

test.each(["2026-11-19", "2026-11", "2026"])("the day %s is the same in every time zone", (text) => {
  expect(formatText(text, "date")).toBe(day(text));
});

test.each([
  ["Order 7", "date", "Order 7"],
  [true, "date", "true"],
  ["many", "number", "many"],
  ["a, b", "list", "a, b"],
  ["x", "unknown", "x"],
  ["x", "toString", "x"],
  [MISSING, "number", ""],
  [null, "number", ""],
])("%j, which the format %s cannot show, is shown as it is", (value, name, text) => {
  expect(formatText(value, name)).toBe(text);
});

test.each([
  [1234.5, "integer", new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 }).format(1234.5)],
  ["12.5", "decimal", new Intl.NumberFormat(undefined, { minimumFractionDigits: 2 }).format(12.5)],
  [0.25, "percent", new Intl.NumberFormat(undefined, { style: "percent" }).format(0.25)],
  [null, "json", "null"],
  [{ a: 1 }, "json", '{"a":1}'],
])("%j is shown in the format %s", (value, name, text) => {
  expect(formatText(value, name)).toBe(text);
});

test.each([
  [999, "byte"],
  [999_940, "kilobyte"],
  [999_950, "megabyte"],
  [-2_000_000, "megabyte"],
  [3e18, "petabyte"],
])("%d bytes are shown in %ss", (bytes, unit) => {
  const size =
    bytes / 1000 ** ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte", "petabyte"].indexOf(unit);
  const unitDisplay = unit === "byte" ? "long" : "short";
  const format = new Intl.NumberFormat(undefined, {
    style: "unit",
    unit,
    unitDisplay,
    maximumFractionDigits: 1,
  });
  expect(formatText(bytes, "bytes")).toBe(format.format(size));
});
