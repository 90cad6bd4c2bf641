// The person's entries in fields with `data-gsv-model`, from the events of the page.

import { handlers } from "./bridge";
import { beginComposition, endComposition, entryOf, isField, isRadio } from "./fields";
import { modelOf, sendEntries } from "./models";
import { parsePath } from "./paths";
import { scopeOf } from "./scopes";
import { isEqual, MISSING } from "./values";

function handleEntry(field: Element, isTyping: boolean): void {
  if (!isField(field) || (isRadio(field) && !field.checked)) return;
  const model = modelOf(scopeOf(field).row, parsePath(field.dataset.gsvModel ?? ""));
  if (!model) return;
  model.updateType();
  const value = entryOf(field, model.stored, model.isNumber);
  field.toggleAttribute("data-gsv-half", value === MISSING);
  if (value === MISSING) return;
  const isEmpty = model.stored === null && value === "";
  const isNew = model.isDirty ? !isEqual(model.value, value) : !isEqual(model.stored, value) && !isEmpty;
  if (isNew || model.problem) model.enter(value, isTyping);
  if (!isTyping) model.send();
  handlers.render();
}

const fieldOf = ({ target }: Event): Element | null =>
  target instanceof Element ? target.closest("[data-gsv-model]") : null;

/** Call `handle` for each event of a field, before the handlers of the page. */
function listen<Name extends keyof DocumentEventMap>(
  name: Name,
  handle: (field: Element, event: DocumentEventMap[Name]) => void,
): void {
  const listener = (event: DocumentEventMap[Name]): void => {
    const field = fieldOf(event);
    if (field) handle(field, event);
  };
  document.addEventListener(name, listener, true);
}

export function listenForEntries(): void {
  listen("compositionstart", beginComposition);
  listen("compositionend", (field) => {
    endComposition(field);
    handleEntry(field, true);
  });
  listen("input", (field, event) => {
    const isTyping = field.matches("textarea, input:not([type=checkbox], [type=radio])");
    if (!(event instanceof InputEvent && event.isComposing)) handleEntry(field, isTyping);
  });
  listen("change", (field) => handleEntry(field, false));
  listen("focusout", (field) => {
    endComposition(field);
    field.removeAttribute("data-gsv-half");
    sendEntries();
    handlers.render();
  });
}
