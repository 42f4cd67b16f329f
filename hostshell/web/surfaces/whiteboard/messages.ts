// What the person has to be told beside the drawing: trouble, the state of saving, and (for a screen reader) what happened.

import type { Answer } from "./bridge";
import type { Words } from "./words";

const TOAST_MS = 6000;
const TROUBLE_MS = 1500; // shorter hiccups are nobody's concern
const LOOK_MS = 500;

export class Messages {
  private toasting = 0;
  private unsavedSince = 0; // nothing has been saved since, though something waits; 0: all is well
  private saves = 0;

  constructor(
    private readonly parts: { toast: HTMLElement; saving: HTMLElement; spoken: HTMLElement },
    private readonly words: () => Words,
  ) {}

  announce(text: string): void {
    this.parts.spoken.textContent = text;
  }

  toast(text: string): void {
    const { toast } = this.parts;
    toast.textContent = text;
    toast.hidden = false;
    clearTimeout(this.toasting);
    this.toasting = window.setTimeout(() => {
      toast.hidden = true;
    }, TOAST_MS);
  }

  /** A change was refused for good. */
  refused({ code }: Answer): void {
    const words = this.words();
    if (code === "state_too_large") this.toast(words.full);
    else if (code === "surface_not_found" || code === "app_closed") this.toast(words.closed);
    else this.toast(words.refused);
  }

  /** Say so while changes cannot be saved for a while. Who draws and draws has always some that wait; others go through. */
  watch(sync: { readonly pending: boolean; readonly saves: number }): void {
    setInterval(() => {
      if (!sync.pending) this.unsavedSince = 0;
      else if (this.saves !== sync.saves) this.unsavedSince = performance.now();
      else this.unsavedSince ||= performance.now();
      this.saves = sync.saves;
      const trouble = this.unsavedSince > 0 && performance.now() - this.unsavedSince > TROUBLE_MS;
      this.parts.saving.textContent = trouble ? this.words().offline : "";
    }, LOOK_MS);
  }
}
