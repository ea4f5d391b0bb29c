"""The style of a page: light or dark as the reader's system is, and fit for print. It refers to nothing outside."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --dim: #5d6675; --page: #fff; --card: #f5f6f8; --line: #d8dce3;
  --bar: #2f6fb3; --last: #1d8a5f; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ef; --dim: #9aa4b4; --page: #14181f; --card: #1d232d;
  --line: #343c49; --bar: #6aa5e6; --last: #4cc38a; --bad: #ff8a80; } }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--page); }
h1, h2, h3 { line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: .25rem .8rem .25rem 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
td:first-child { overflow-wrap: anywhere; min-width: 6.5rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.dim, figcaption { color: var(--dim); }
.bad { color: var(--bad); }
td:last-child:not(.number) { min-width: 12rem; }
figure { margin: 0; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20.5rem), 1fr));
  gap: 1.2rem 2.5rem; margin: 1rem 0; align-items: start; }
code, pre { font-family: ui-monospace, monospace; background: var(--card); overflow-wrap: anywhere;
  white-space: pre-wrap; }
pre { padding: .6rem; }
svg { width: 100%; max-width: 26rem; height: auto; display: block; }
text { fill: var(--ink); font-size: 13px; }
.value { fill: var(--dim); text-anchor: end; }
.track { fill: var(--card); }
.bar { fill: var(--bar); }
.last { fill: var(--last); }
.dot { fill: var(--last); }
.cell { fill: var(--bar); stroke: var(--line); stroke-width: .5; }
.fill-none { fill: var(--card); }
.fill-0 { fill-opacity: .08; } .fill-1 { fill-opacity: .18; } .fill-2 { fill-opacity: .28; }
.fill-3 { fill-opacity: .38; } .fill-4 { fill-opacity: .5; } .fill-5 { fill-opacity: .62; }
.fill-6 { fill-opacity: .72; } .fill-7 { fill-opacity: .82; } .fill-8 { fill-opacity: .92; }
@media (max-width: 30rem) { body { padding: 1rem; } }
@media print { body { max-width: none; } }
"""
