"""How the page looks: light or dark as the reader has it, on a wide screen, on a phone and on paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1c1c1c; --muted: #666666; --line: #e3e3e0; --soft: #f6f6f4; --link: #0059a3;
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body {
  margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 64rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 Charter, "Bitstream Charter", "Sitka Text", Cambria, "Noto Serif", Georgia, serif;
}
h1 { margin: 0 0 .25rem; font-size: 1.9rem; line-height: 1.2; font-weight: 600; letter-spacing: -.01em; }
h2 { margin: 0 0 .75rem; font-size: 1.3rem; line-height: 1.3; font-weight: 600; }
p { margin: .5rem 0; max-width: 44rem; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
section { margin-top: 3rem; padding-top: 1.25rem; border-top: 1px solid var(--line); }
.muted, figcaption, footer { color: var(--muted); }
nav, table, details, pre, footer, .runs small {
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
nav { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; margin: 1.25rem 0 0; font-size: .875rem; }
.runs { margin: 1.25rem 0 0; padding: 0; list-style: none; }
.runs li { margin: .6rem 0; padding-left: 1.1rem; border-left: 4px solid var(--run); }
.runs small { display: block; color: var(--muted); font-size: .8rem; overflow-wrap: anywhere; }
.figures, .tables { display: grid; gap: 1.25rem 2rem; }
.figures, .tables { grid-template-columns: repeat(auto-fill, minmax(min(100%, 25rem), 1fr)); }
.tables { align-items: start; }
figure { margin: 0; min-width: 0; }
img { display: block; width: 100%; max-width: 34rem; height: auto; }
img.dark { display: none; }
.scroll { overflow-x: auto; margin: 1rem 0; }
.scroll:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; font-size: .8125rem; line-height: 1.4; font-variant-numeric: tabular-nums; }
caption { width: max-content; max-width: calc(100vw - 3rem); padding: 0 0 .4rem; text-align: left; }
caption { color: var(--muted); }
.part th { padding-top: 1.1rem; text-align: left; font-weight: 600; color: var(--muted); }
th, td { padding: .28rem .7rem; text-align: right; white-space: nowrap; vertical-align: baseline; font-weight: 400; }
td b { font-weight: 650; }
th[scope=row], thead th:first-child { position: sticky; left: 0; padding-left: 0; text-align: left; }
th[scope=row], thead th:first-child, .part th { background: var(--paper); padding-left: 0; }
thead th { border-bottom: 1px solid var(--muted); font-weight: 600; }
thead th + th { max-width: 15rem; white-space: normal; overflow-wrap: break-word; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
details { margin: 1rem 0; font-size: .8125rem; }
summary { color: var(--link); cursor: pointer; }
details pre, details .scroll { margin-top: .6rem; }
pre {
  margin: 1rem 0; padding: .9rem 1.1rem; overflow-x: auto; background: var(--soft); font-size: .78rem; line-height: 1.5;
  font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); }
footer { font-size: .8rem; overflow-wrap: anywhere; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #14171a; --ink: #e8e6e3; --muted: #a3a3a0; --line: #2d3237; --soft: #1b1f23; --link: #7db8e8; }
  img.dark { display: block; }
  img.light { display: none; }
  .runs li { border-color: color-mix(in srgb, var(--run) 75%, white); }
}
@media (max-width: 40rem) {
  body { padding: 1.25rem 1rem 3rem; }
  h1 { font-size: 1.5rem; }
  section { margin-top: 2rem; }
  th[scope=row] { min-width: 4.5rem; max-width: 45vw; white-space: normal; }
}
@media print {
  @page { margin: 16mm; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  section { margin-top: 8mm; }
  h2, caption, summary, section > p.muted { break-after: avoid; }
  figure, tr, .runs li { break-inside: avoid; }
  .figures, .tables { grid-template-columns: 1fr 1fr; gap: 5mm; }
  .scroll { overflow: visible; }
  table { font-size: 7.5pt; }
  th, td { padding: .15rem .4rem; white-space: normal; }
  pre { white-space: pre-wrap; font-size: 7.5pt; columns: 2; }
  a, summary { color: inherit; }
}
"""
