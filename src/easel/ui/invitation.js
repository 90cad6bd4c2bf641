// @ts-check
// The page of an invitation. Its link has the code in the fragment, which no server and no Referer gets. It is
// moved into the form, and out of the address bar and the history.

const field = /** @type {HTMLInputElement} */ (document.getElementById("token"));
const code = decodeURIComponent(location.hash.slice(1));
if (code) {
  field.value = code;
  history.replaceState(null, "", location.pathname + location.search);
}
if (field.value) {
  /** @type {HTMLElement} */ (document.getElementById("code")).hidden = true;
}
