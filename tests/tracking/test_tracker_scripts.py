"""Text in any script is the same bytes when it comes back from the store."""

import hashlib
from pathlib import Path

from pipeline.tracking import Tracker

TEXTS = [
    "दो और दो कितने होते हैं?",
    "สองบวกสองได้เท่าไร",
    "e\u0301 n\u0303 \u200f12\u200e",
    "６４ ٤٢ −7 3{,}5",
    "龘 🪿 \u2028\x85 tab\t",
]


def test_artifacts_are_read_back_byte_for_byte(store):
    tracker = Tracker(store, experiment="scripts", pause_s=0.01)
    tracker.start("scripts", {"prompt": TEXTS[0]})
    for number, text in enumerate(TEXTS):
        assert tracker.log_text(text, f"text_{number}.txt")
    for number, text in enumerate(TEXTS):
        kept = Path(tracker._client.download_artifacts(tracker.run_id, f"text_{number}.txt")).read_bytes()
        assert hashlib.sha256(kept).hexdigest() == hashlib.sha256(text.encode()).hexdigest()
    assert tracker._client.get_run(tracker.run_id).data.params["prompt"] == TEXTS[0]
