// Addresses of links and files in a page.

/** The address of the folder of the canvas's assets. */
export const FOLDER = location.href.slice(0, location.href.indexOf("/assets/") + "/assets/".length);

/** Return the absolute address of a link, in an SVG too. One that cannot be parsed is returned as it is. */
export function addressOf(link: Element): string {
  const address = hrefOf(link);
  return URL.canParse(address, document.baseURI) ? new URL(address, document.baseURI).href : address;
}

function hrefOf(link: Element): string {
  if (!("href" in link)) return "";
  return link.href instanceof SVGAnimatedString ? link.href.baseVal : String(link.href);
}

export const isInside = (address: string): boolean =>
  address.startsWith(FOLDER) || address.startsWith("javascript:");

/** Return the name of a file as its author knows it. */
export function fileName(address: string): string {
  if (!address) return "index.html";
  return address.startsWith(FOLDER) ? `assets/${address.slice(FOLDER.length)}` : address;
}
