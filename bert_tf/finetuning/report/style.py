"""The look of a report: one style sheet, for screens, phones and paper."""

STYLE = """
:root { --ink: #1f2933; --soft: #52606d; --line: #d9dee4; --pale: #f5f7fa;
  --blue: #0072b2; --orange: #b84a00; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 62rem;
  color: var(--ink); background: #fff; line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans",
    "Helvetica Neue", Arial, sans-serif; font-size: 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 0 0 .75rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .4rem; }
p { margin: .4rem 0; }
header p, .note, figcaption, caption { color: var(--soft); }
.note, figcaption { font-size: .875rem; max-width: 46rem; }
nav { margin: 1rem 0 0; font-size: .9rem; display: flex; flex-wrap: wrap;
  gap: .2rem .9rem; }
a { color: var(--blue); }
section { border-top: 1px solid var(--line); padding-top: 1.25rem;
  margin-top: 2rem; }
.tiles { display: grid; gap: .75rem; margin: 1.25rem 0 0; padding: 0;
  grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); }
.tile { background: var(--pale); border-radius: .5rem; padding: .7rem .9rem; }
.tile.main { background: #e3f0f8; }
.tile dt { font-size: .8rem; color: var(--soft); line-height: 1.3; }
.tile dd { margin: .15rem 0 0; font-size: 1.6rem; font-weight: 600;
  line-height: 1.2; font-variant-numeric: tabular-nums; }
.tile dd small { display: block; font-size: .8rem; font-weight: 400;
  color: var(--soft); }
.pictures { display: grid; gap: 1.25rem 2rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
figure { margin: .5rem 0; break-inside: avoid; }
figure img { display: block; width: 100%; max-width: 30rem; height: auto; }
.scroll { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .9rem; min-width: 18rem; }
caption { text-align: left; font-size: .875rem; padding-bottom: .3rem; }
th, td { padding: .3rem .75rem .3rem 0; text-align: left;
  vertical-align: baseline; border-bottom: 1px solid var(--line); }
thead th { font-weight: 600; color: var(--soft); font-size: .8rem;
  vertical-align: bottom; }
tbody th { font-weight: 500; }
table bdi { display: inline-block; max-width: 14rem; vertical-align: top;
  overflow-wrap: break-word; }
.number { text-align: right; padding-left: .75rem;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.summary > * { background: var(--pale); }
.pictures th, .pictures td { padding-right: .4rem; }
.pictures .number { padding-left: .4rem; }
.help { color: var(--soft); }
.matrix table { min-width: 0; border-collapse: separate; border-spacing: 2px; }
.matrix th, .matrix td { border: 0; padding: .2rem .35rem; }
.matrix td { text-align: center; min-width: 4.5rem; padding: .7rem .5rem;
  vertical-align: middle;
  font-variant-numeric: tabular-nums;
  border-radius: 2px; }
.matrix tbody th { vertical-align: middle; }
.matrix thead th { text-align: center; }
.matrix tbody th { min-width: 5rem; max-width: 14rem; text-align: right; }
.matrix td.right { outline: 2px solid var(--ink); outline-offset: -2px; }
.matrix.dense table { font-size: .72rem; border-spacing: 1px; }
.matrix.dense td { min-width: 1.6rem; padding: .12rem .1rem; }
.matrix.dense tbody th { padding: .05rem .35rem; text-align: left;
  white-space: nowrap; max-width: none; }
.matrix.dense bdi { max-width: 9rem; overflow: hidden;
  text-overflow: ellipsis; }
.meter { display: inline-block; width: 4rem; height: .55rem;
  margin-right: .5rem; background: #e4e7eb; border-radius: 2px;
  overflow: hidden; }
.meter i { display: block; height: 100%; background: var(--blue); }
ol.mistakes { list-style: none; margin: 0; padding: 0; }
.mistakes li { border: 1px solid var(--line); border-left: 4px solid
  var(--orange); border-radius: .4rem; padding: .6rem .8rem; margin: .6rem 0;
  break-inside: avoid; }
.verdict { font-size: .9rem; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem;
  margin: 0 0 .35rem; }
.verdict span { overflow-wrap: anywhere; }
.verdict .where { color: var(--soft); margin-left: auto; }
.text { overflow-wrap: anywhere; margin: .3rem 0; }
.pair .text { padding-left: .7rem; border-left: 2px solid var(--line); }
mark { background: none; color: inherit; padding: 0 .1em; }
mark.gold { border-bottom: 3px solid #007a5a; background: #e3f3ee; }
mark.given { outline: 2px dashed var(--orange); outline-offset: 1px; }
.label { font-size: .72rem; padding: 0 .3em; margin: 0 .35em 0 .1em;
  border-radius: .25rem; white-space: nowrap; color: #fff; }
.label.gold { background: #007a5a; }
.label.given { background: var(--orange); }
.who { font-size: .8rem; color: var(--soft); margin: .5rem 0 0; }
.question { font-weight: 600; overflow-wrap: anywhere; }
ol.choices { margin: .4rem 0; padding-left: 1.6rem; }
.mistakes ol.choices li { border: 0; border-radius: 0; padding: .1rem 0;
  margin: .2rem 0; }
.whole { white-space: pre-wrap; font-size: .875rem; }
.cut { color: var(--orange); font-weight: 700; }
summary { cursor: pointer; color: var(--blue); font-size: .875rem; }
ul.findings { padding-left: 1.2rem; margin: .5rem 0; }
ul.findings li { overflow-wrap: anywhere; }
ul.plain { list-style: none; padding-left: 0; font-size: .9rem; }
pre { font-size: .8rem; line-height: 1.45; background: var(--pale);
  border-radius: .4rem; padding: .8rem; overflow-x: auto; }
.whole-word { white-space: nowrap; }
.flag { color: var(--orange); font-weight: 600; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media (max-width: 36rem) {
  body { padding-top: 1rem; }
  h1 { font-size: 1.4rem; }
  .tile dd { font-size: 1.35rem; }
  th, td { padding-right: .5rem; }
  .number { padding-left: .4rem; }
  .tiles { grid-template-columns: repeat(2, 1fr); }
  .verdict .where { margin-left: 0; width: 100%; }
}
@media print {
  @page { margin: 1.5cm; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { font-size: 10pt; max-width: none; padding: 0; }
  nav { display: none; }
  h2 { break-after: avoid; }
  .scroll { overflow: visible; }
  .pictures { grid-template-columns: 1fr 1fr; }
}
""".strip()
