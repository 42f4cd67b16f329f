import { describe, expect, it } from "vitest";
import { en } from "../src/i18n/en";
import { checkInput, choicesOf, textsOf } from "../src/interact/cards/answers";
import type { InputField } from "../src/runtime/rows";

const fields: InputField[] = [
  { id: "name", label: "Name", type: "text", required: true, min_length: 2, max_length: 4 },
  { id: "cups", label: "Cups", type: "number", minimum: 0, maximum: 50 },
];
const check = (typed: Record<string, string>) => checkInput(fields, typed, en);

describe("checking a form", () => {
  it("gives values by field, numbers as numbers, and leaves out what is empty", () => {
    expect(check({ name: "Ann", cups: " 3 " })).toEqual({ errors: {}, values: { name: "Ann", cups: 3 } });
    expect(check({ name: "Ann", cups: "" }).values).toEqual({ name: "Ann" });
  });

  it("names each slip at its field", () => {
    expect(check({}).errors).toEqual({ name: en.question.invalid.required });
    expect(check({ name: "A" }).errors.name).toBe(en.question.invalid.minLength(2));
    expect(check({ name: "Annabel" }).errors.name).toBe(en.question.invalid.maxLength(4));
    expect(check({ name: "Ann", cups: "-1" }).errors.cups).toBe(en.question.invalid.minimum(0));
    expect(check({ name: "Ann", cups: "51" }).errors.cups).toBe(en.question.invalid.maximum(50));
  });

  it.each(["three", "1e999", "NaN", "Infinity", "0x10", "1,5", "٣", "--1"])(
    "takes %s for no number",
    (text) => {
      expect(check({ name: "Ann", cups: text }).errors.cups).toBe(en.question.invalid.number);
    },
  );

  it("counts characters as the Runtime does", () => {
    expect(check({ name: "😀😀😀😀" }).errors).toEqual({});
  });
});

describe("drafts of any form", () => {
  it("give what can be used", () => {
    expect(textsOf({ values: { name: "Ann", cups: 3, odd: [1] } })).toEqual({ name: "Ann", cups: "3" });
    expect(choicesOf({ action_ids: ["a", 1, "b"] })).toEqual(["a", "b"]);
  });

  it.each([undefined, null, 1, "x", [], {}, { values: [] }, { action_ids: {} }])("survive %j", (draft) => {
    expect(textsOf(draft as never)).toEqual({});
    expect(choicesOf(draft as never)).toEqual([]);
  });
});
