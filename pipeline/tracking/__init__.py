"""The only room that imports MLflow (at `connect`, not before): runs, the registry, the metrics catalogue, reports."""

from pipeline.tracking.catalogue import METRICS, CatalogueError, Metric, check, for_source, metric_name
from pipeline.tracking.code_state import code_state, code_tags
from pipeline.tracking.connection import TrackingError, tracking_uri
from pipeline.tracking.figures import log_curves, run_figure, save_figure, summary_rows
from pipeline.tracking.provenance import Provenance, RunFacts
from pipeline.tracking.registry import Alias, RegisteredVersion, Registry
from pipeline.tracking.trace_report import comparison_html, trace_report_html
from pipeline.tracking.trace_text import comparison_text
from pipeline.tracking.trace_view import Part, TokenView, TraceView, token_views
from pipeline.tracking.tracker import PARENT, Tracker

__all__ = [
    "METRICS",
    "PARENT",
    "Alias",
    "CatalogueError",
    "Metric",
    "Part",
    "Provenance",
    "RegisteredVersion",
    "Registry",
    "RunFacts",
    "TokenView",
    "TraceView",
    "Tracker",
    "TrackingError",
    "check",
    "code_state",
    "code_tags",
    "comparison_html",
    "comparison_text",
    "for_source",
    "log_curves",
    "metric_name",
    "run_figure",
    "save_figure",
    "summary_rows",
    "token_views",
    "trace_report_html",
    "tracking_uri",
]
