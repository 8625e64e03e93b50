"""The memory of making records as a picture."""

import re
from collections.abc import Mapping

from benchmarks.measured_run import Measured


def draw_memory(measured: Mapping[float, Measured], path: str) -> None:
    """Draws memory over the size of the text and over time.

    Args:
      measured: by megabytes of text.
      path: the file to write; its name tells the format.
    """
    import matplotlib
    from matplotlib.figure import Figure

    # The same picture every time.
    with matplotlib.rc_context({"svg.hashsalt": "records"}):
        figure = Figure(figsize=(9, 3.5), layout="constrained")
        sizes, times = figure.subplots(1, 2)
        largest = [done.largest_peak for done in measured.values()]
        totals = [max(t for _, _, t in d.trace) for d in measured.values()]
        sizes.plot(list(measured), largest, "o-", label="largest process")
        sizes.plot(list(measured), totals, "s-", label="all processes")
        sizes.set(xscale="log", xlabel="MB of text", ylabel="peak resident MB")
        for megabytes, done in measured.items():
            seconds, _, total = zip(*done.trace, strict=True)
            end = done.trace[-1][0]
            share = [second / end for second in seconds]
            times.plot(share, total, label=f"{megabytes:g} MB")
        times.set(xlabel="share of the time", ylabel="resident MB, all")
        for axes in (sizes, times):
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
            axes.legend()
        metadata = {"Date": None} if re.search(r"\.svg$", path) else None
        figure.savefig(path, metadata=metadata)
