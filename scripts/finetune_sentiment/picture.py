"""The figure: test accuracy and macro F1 of each method, with error bars, drawn by gnuplot."""
from finetune_sentiment.results import NAIVE_BAYES
from run_view.gnuplot import quote, terminal, write_picture
from run_view.panels import COLOURS

WIDTH, ROW_HEIGHT, MARGIN = 900, 46, 150
SERIES = (("accuracy", "test accuracy", 0.12), ("f1", "macro F1", -0.12))


def script(rows, out, title):
    """The gnuplot program. The first row is on top."""
    lines = [terminal(out, WIDTH, ROW_HEIGHT * len(rows) + MARGIN), f"set output {quote(str(out))}",
             "set encoding utf8", "set border 3 lc rgb '#666666'", "set tics nomirror out",
             "set grid xtics lc rgb '#e4e4e4' lt 1 lw 1", f"set title {quote(title)} noenhanced",
             "set key tmargin left horizontal noenhanced", "set xlabel 'mean over seeds; bars: standard deviation'",
             f"set yrange [{-len(rows) + 0.4}:0.6]"]
    labels = ", ".join(f"{quote(row['title'])} {-i}" for i, row in enumerate(rows))
    lines += [f"set ytics ({labels}) noenhanced", f"set lmargin {max(len(row['title']) for row in rows) + 4}"]
    low = min(row[key] - (row[key + "_sd"] or 0) for row in rows for key, _, _ in SERIES)
    high = max(row[key] + (row[key + "_sd"] or 0) for row in rows for key, _, _ in SERIES)
    margin = max(0.01, 0.06 * (high - low))
    lines.append(f"set xrange [{max(0.0, low - margin)!r}:{min(1.0, high + margin)!r}]")
    plots = []
    for number, (key, name, shift) in enumerate(SERIES):
        points = "".join(f"{row[key]!r} {shift - i!r} {row[key + '_sd'] or 0.0!r}\n" for i, row in enumerate(rows))
        lines.append(f"$s{number} << EOD\n{points}EOD")
        plots.append(f"$s{number} with xerrorbars pt 7 ps 0.9 lw 2 lc rgb '{COLOURS[number]}' title {quote(name)}")
    for row in rows:
        if row["method"] == NAIVE_BAYES:
            lines.append(f"set arrow from {row['accuracy']!r}, graph 0 to {row['accuracy']!r}, graph 1 nohead back dt 3 "
                         "lw 1 lc rgb '#888888'")
    return "\n".join(lines) + "\nplot " + ", ".join(plots) + "\n"


def draw(rows, out, title="Sentence polarity: scores on the test part"):
    """Writes the SVG file `out`. Throws GnuplotError."""
    write_picture(out, lambda draft: script(rows, draft, title))
