// Line drawings for the toolbar, on a 24 × 24 grid.

const PATHS = {
  select: "M5 3l6 16 2.2-6.8L20 10z",
  hand: "M7 12V6.5a1.5 1.5 0 0 1 3 0V11m0-1V4.5a1.5 1.5 0 0 1 3 0V11m0-.5V6a1.5 1.5 0 0 1 3 0v6m0-2a1.5 1.5 0 0 1 3 0v5a6 6 0 0 1-6 6h-1.5a6 6 0 0 1-4.6-2.1L4.3 14.8a1.4 1.4 0 0 1 2-2L8 14.4",
  pen: "M4 20l1-4L16.5 4.5a2 2 0 0 1 3 3L8 19zM14 7l3 3",
  eraser:
    "M9 20h11M5.6 15.4l8.8-8.8a2 2 0 0 1 2.8 0l2.2 2.2a2 2 0 0 1 0 2.8L11 20H8.5l-2.9-2.9a1.2 1.2 0 0 1 0-1.7zM10 11l5 5",
  rect: "M4 6.5A1.5 1.5 0 0 1 5.5 5h13A1.5 1.5 0 0 1 20 6.5v11a1.5 1.5 0 0 1-1.5 1.5h-13A1.5 1.5 0 0 1 4 17.5z",
  ellipse: "M12 5c5 0 9 3.1 9 7s-4 7-9 7-9-3.1-9-7 4-7 9-7z",
  line: "M5 19L19 5",
  arrow: "M5 19L19 5M10 5h9v9",
  text: "M5 7V5h14v2M12 5v14M9 19h6",
  undo: "M9 14l-5-5 5-5M4 9h10a6 6 0 0 1 0 12h-3",
  redo: "M15 14l5-5-5-5M20 9H10a6 6 0 0 0 0 12h3",
  remove: "M4 7h16M9 7V4h6v3M6.5 7l1 13h9l1-13M10 11v5M14 11v5",
  zoomIn: "M12 5v14M5 12h14",
  zoomOut: "M5 12h14",
  fit: "M4 9V4h5M15 4h5v5M20 15v5h-5M9 20H4v-5",
  submit: "M5 12.5l4.5 4.5L19 7",
} as const;

export type IconName = keyof typeof PATHS;

export function icon(name: IconName): SVGSVGElement {
  const NS = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(NS, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(NS, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}
