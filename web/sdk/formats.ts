// `data-gsv-format`: how `data-gsv-text` shows a value, in the language and the time zone of the reader.
//
// A format has a fixed name and no parameters. A value that it cannot show is shown as it is.

import { asText, isNumeric, MISSING } from "./values";

/** Return the text of a value, or null if the format cannot show it. */
type Format = (value: unknown) => string | null;

const DAY = /^\d{4}(?:-\d{2}){0,2}$/; // without a time: the same day in every time zone
// Browsers read a date into texts such as “Order 7”. Only ISO 8601 and the dates of HTTP and mail are dates.
const DATE = /^(?:[+-]\d{6}|\d{4})(?:-\d{2}|$)|^(?:[A-Z][a-z]{2}, )?\d{1,2} [A-Z][a-z]{2} \d{4} \d{2}:/;

/** Return a function that calls `make` once, when it is needed. */
function once<Made>(make: () => Made): () => Made {
  let made: Made | undefined;
  return () => {
    made ??= make();
    return made;
  };
}

function dates(options: Intl.DateTimeFormatOptions): Format {
  const local = once(() => new Intl.DateTimeFormat(undefined, options));
  const asDay = once(() => new Intl.DateTimeFormat(undefined, { ...options, timeZone: "UTC" }));
  return (value) => {
    if (typeof value !== "string" && typeof value !== "number") return null;
    if (typeof value === "string" && !DATE.test(value)) return null;
    const date = new Date(value);
    if (Number.isNaN(date.getTime())) return null;
    return (DAY.test(String(value)) ? asDay() : local()).format(date);
  };
}

/** Return a number, or null for any other value; a text may be the spelling of a number. */
function toNumber(value: unknown): number | null {
  if (typeof value === "string" && isNumeric(value)) return Number(value);
  return typeof value === "number" ? value : null;
}

function numbers(options: Intl.NumberFormatOptions): Format {
  const format = once(() => new Intl.NumberFormat(undefined, options));
  return (value) => {
    const number = toNumber(value);
    return number === null ? null : format().format(number);
  };
}

const BYTE_FORMATS = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte", "petabyte"].map((unit) =>
  numbers({
    style: "unit",
    unit,
    unitDisplay: unit === "byte" ? "long" : "short",
    maximumFractionDigits: 1,
  }),
);

function formatBytes(value: unknown): string | null {
  const number = toNumber(value);
  if (number === null) return null;
  let unit = 0;
  // 999.95 is shown as 1,000 with one digit, and belongs to the next unit.
  while (unit < BYTE_FORMATS.length - 1 && Math.abs(number) / 1000 ** unit >= (unit ? 999.95 : 1000))
    unit += 1;
  return BYTE_FORMATS[unit]?.(number / 1000 ** unit) ?? null;
}

const joinList = once(() => new Intl.ListFormat(undefined, { style: "narrow", type: "unit" }));

const FORMATS: Readonly<Record<string, Format>> = {
  date: dates({ dateStyle: "medium" }),
  time: dates({ timeStyle: "short" }),
  datetime: dates({ dateStyle: "medium", timeStyle: "short" }),
  number: numbers({}),
  integer: numbers({ maximumFractionDigits: 0 }),
  decimal: numbers({ minimumFractionDigits: 2, maximumFractionDigits: 2 }),
  percent: numbers({ style: "percent", maximumFractionDigits: 1 }),
  bytes: formatBytes,
  list: (value) => (Array.isArray(value) ? joinList().format(value.map(asText)) : null),
  json: (value) => JSON.stringify(value),
};

export const FORMAT_NAMES = Object.keys(FORMATS);

/** Return a value as text in the named format. */
export function formatText(value: unknown, name: string | null): string {
  const format = name !== null && Object.hasOwn(FORMATS, name) ? FORMATS[name] : undefined;
  if (!format || value === MISSING || (value === null && name !== "json")) return asText(value);
  return format(value) ?? asText(value);
}
