// What the Host's bridge script puts into `window.lineup`, as far as the board uses it. Types only.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type JsonObject = { [name: string]: Json };

export interface Answer {
  accepted: boolean;
  revision?: number;
  code?: string;
  message?: string;
}

export interface HostInfo {
  readonly theme: "light" | "dark";
  readonly locale: string;
}

export interface LineUp {
  readonly state: JsonObject;
  readonly revision: number;
  readonly host: HostInfo;
  ready(): void;
  /** Called with every new state, what no patch touched being the same objects; at once if there is one already. */
  onstate(fn: (state: JsonObject, revision: number) => void): unknown;
  /** Called at once and after every change. */
  onhost(fn: (host: HostInfo) => void): unknown;
  update(patch: JsonObject, options?: { base_revision?: number }): Promise<Answer>;
  submit(payload: JsonObject): Promise<Answer>;
}

declare global {
  interface Window {
    lineup: LineUp;
  }
}
