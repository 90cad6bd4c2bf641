// @ts-check
// The text of messages: strings with references to what was taken out of them. Pure: no DOM, no requests.

const REFERENCE = /\[\[artifact:(art_[0-9a-f]{64})\]\]/;

/** Split a text into strings and markers; a reference without its marker is ordinary text. */
export function splitText(text, attachments) {
  const markers = new Map(attachments.map((marker) => [`art_${marker.sha256}`, marker]));
  const parts = text.split(REFERENCE).map((part, index) => {
    if (index % 2 === 0) return part;
    return markers.get(part) ?? `[[artifact:${part}]]`;
  });
  return parts.filter((part) => part !== "");
}

/** Return whether an event has the text `original`, or its beginning, with references in place of Base64. */
export function isTextOf({ text, attachments = [], truncated = false }, original) {
  if (!Array.isArray(attachments)) return original.startsWith(text.split(REFERENCE)[0]);
  let end = 0;
  for (const part of splitText(text, attachments)) {
    if (typeof part === "string" && !original.startsWith(part, end)) return false;
    end += part.original_size ?? part.length; // Base64 is ASCII: its bytes are its characters
  }
  return truncated || end === original.length;
}
