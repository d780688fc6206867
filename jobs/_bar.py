"""A bar that follows a training by its lines."""

import sys

from tqdm import tqdm


def show_line(bar: tqdm, line: str) -> None:
    """Prints a line above the bar; that of a step (`step 3/30 ...`) moves it."""
    bar.write(line)
    sys.stdout.flush()
    if line.startswith("step "):
        bar.update(int(line.split()[1].split("/")[0]) - bar.n)
