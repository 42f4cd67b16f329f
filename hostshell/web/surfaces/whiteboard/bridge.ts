// What the Host's bridge script puts into `window.lineup`, as far as the board uses it. Types only.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type JsonObject = { [name: string]: Json };

export interface Answer {
  accepted: boolean;
  revision?: number;
  code?: string;
  message?: string;
}

export interface StateNews {
  revision: number;
  /** Absent when the whole state is new. */
  patch?: JsonObject;
}

export interface HostInfo {
  theme?: "light" | "dark";
  locale?: string;
}

export interface LineUp {
  readonly state: JsonObject;
  readonly revision?: number;
  readonly host?: HostInfo;
  ready(): void;
  onstate(fn: (state: JsonObject, news?: StateNews) => void): unknown;
  onhost?(fn: () => void): unknown;
  update(patch: JsonObject, options?: { base_revision?: number }): Promise<Answer>;
  submit(payload: JsonObject): Promise<Answer>;
}

declare global {
  interface Window {
    lineup: LineUp;
  }
}
