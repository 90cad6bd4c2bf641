// `data-gsv-format`: how `data-gsv-text` shows a value, in the language and the time zone of the reader.
//
// A format has a fixed name and no parameters. A value that it cannot show is shown as it is.

const DAY = /^\d{4}(?:-\d{2}){0,2}$/; // without a time: the same day in every time zone
// Browsers read a date into texts such as “Order 7”. Only ISO 8601 and the dates of HTTP and mail are dates.
const DATE = /^(?:[+-]\d{6}|\d{4})(?:-\d{2}|$)|^(?:[A-Z][a-z]{2}, )?\d{1,2} [A-Z][a-z]{2} \d{4} \d{2}:/;
const BYTE_UNITS = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte", "petabyte"];

/** Return a function that calls `make` once, when it is needed. */
function once(make) {
  let made;
  return () => { made ??= make(); return made; };
}

const dates = (options) => {
  const local = once(() => new Intl.DateTimeFormat(undefined, options));
  const asDay = once(() => new Intl.DateTimeFormat(undefined, { ...options, timeZone: "UTC" }));
  return (value) => {
    if (typeof value === "string" ? !DATE.test(value) : typeof value !== "number") return null;
    const date = new Date(value);
    if (Number.isNaN(date.getTime())) return null;
    return (DAY.test(value) ? asDay() : local()).format(date);
  };
};

const toNumber = (value) => (typeof value === "string" && NUMBER.test(value) ? Number(value) : value);

const numbers = (options) => {
  const format = once(() => new Intl.NumberFormat(undefined, options));
  return (value) => {
    const number = toNumber(value);
    return typeof number === "number" ? format().format(number) : null;
  };
};

const byteFormats = BYTE_UNITS.map((unit) => numbers({
  style: "unit", unit, unitDisplay: unit === "byte" ? "long" : "short", maximumFractionDigits: 1,
}));

function formatBytes(value) {
  const number = toNumber(value);
  if (typeof number !== "number") return null;
  let unit = 0;
  // 999.95 is shown as 1,000 with one digit, and belongs to the next unit.
  while (unit < BYTE_UNITS.length - 1 && Math.abs(number) / 1000 ** unit >= (unit ? 999.95 : 1000)) unit += 1;
  return byteFormats[unit](number / 1000 ** unit);
}

const joinList = once(() => new Intl.ListFormat(undefined, { style: "narrow", type: "unit" }));

/** By name: a function that returns the text of a value, or null if it cannot show the value. */
const FORMATS = {
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

/** Return a value as text in the named format. */
function formatText(value, name) {
  const isKnown = name !== null && Object.hasOwn(FORMATS, name);
  if (!isKnown || value === MISSING || (value === null && name !== "json")) return asText(value);
  return FORMATS[name](value) ?? asText(value);
}
