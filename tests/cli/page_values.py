"""page_values.py PAGE RUN...: does the page of `lockstep report` show the numbers of the runs' metrics.jsonl?

PAGE is the file itself, or what a browser made of it. Every number that a chart's table shows is compared with the record
of its step, and every record must be shown. Prints how many numbers were compared; ends with 1 where one differs.
"""
import html.parser
import json
import math
import sys


class Page(html.parser.HTMLParser):
    """{chart: {series: [(x, y, words of x, words of y)]}}, and the texts of other tables by their id."""

    def __init__(self):
        super().__init__()
        self.charts, self.tables, self.chart, self.series, self.row, self.table = {}, {}, None, None, None, None
        self.text, self.loads, self.inside = "", [], None

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for key, value in attributes.items():
            if key in ("src", "srcset") or (key == "href" and not value.startswith("#")):
                self.loads.append(value)
        if tag == "figure":
            self.chart = self.charts.setdefault(attributes["id"], {})
        elif tag == "table":
            self.table = self.tables.setdefault(attributes.get("id"), [])
        elif tag == "tbody":
            self.series = None
        elif tag == "tr":
            self.row = ([], attributes)
        elif tag in ("td", "th"):
            self.text, self.inside = "", attributes

    def handle_endtag(self, tag):
        if tag == "figure":
            self.chart = None
        elif tag == "th" and self.inside.get("scope") == "rowgroup":
            self.series = self.chart.setdefault(self.text, [])
        elif tag in ("td", "th") and self.row is not None:
            self.row[0].append(self.text)
        elif tag == "tr":
            words, attributes = self.row
            if "data-x" in attributes:
                self.series.append((float(attributes["data-x"]), float(attributes["data-y"]), *words))
            if self.table is not None:
                self.table.append(words)
            self.row = None

    def handle_data(self, data):
        self.text += data


def number(words):
    return float(words.replace(",", "").removesuffix("%"))


def expected(records, kind, key, scale):
    return {r["step"]: scale * r[key] for r in records if r["kind"] == kind and r.get(key) is not None}


def main():
    page = Page()
    page.feed(open(sys.argv[1], encoding="utf-8").read())
    runs = {run: [json.loads(line) for line in open(run + "/metrics.jsonl", encoding="utf-8")] for run in sys.argv[2:]}
    assert not page.loads, f"the page loads {page.loads}"
    alone = len(runs) == 1
    metric = next(k for k in ("accuracy", "mean_absolute_error", "perplexity")
                  if any(k in r for rs in runs.values() for r in rs))
    charts = {"learning-rate": ("train", "learning_rate"), "gradient-norm": ("train", "gradient_norm"),
              "throughput": ("train", "samples_per_second")}
    compared = 0
    for run, records in runs.items():
        name = run.rsplit("/", 1)[-1]
        wanted = dict(charts)
        for title, key in (("loss", "loss"), (metric, metric)):
            for kind, word in (("train", "training"), ("validation", "validation")):
                wanted[(title, word) if alone else f"{word}-{title}"] = (kind, key)
        for where, (kind, key) in wanted.items():
            title = where.capitalize().replace("-", " ") if isinstance(where, str) else ""
            chart, series = where if isinstance(where, tuple) else (where, title if alone else name)
            numbers = expected(records, kind, key, 100 if key.endswith("accuracy") else 1)
            shown = page.charts[chart][series]
            assert {x for x, *_ in shown} == set(numbers), (run, where, len(shown), len(numbers))
            for x, y, x_words, y_words in shown:
                assert math.isclose(y, numbers[x], rel_tol=1e-9), (run, where, x, y, numbers[x])
                assert number(x_words) == x and math.isclose(number(y_words), y, rel_tol=1e-3, abs_tol=0.006), (y, y_words)
                compared += 1
    if not alone:
        best = {run.rsplit("/", 1)[-1]: max(r["accuracy"] for r in rs if r["kind"] == "validation") for run, rs in runs.items()}
        ranked = [row[1] for row in page.tables["ranking-table"][1:]]
        assert ranked == sorted(best, key=lambda run: -best[run]), (ranked, best)
    print(f"{compared} numbers are those of the records")


if __name__ == "__main__":
    main()
