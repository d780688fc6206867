"""The names of vLLM's scheduler that the adapter relies on. Reads the installed source and imports none of it."""

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(find_spec("vllm").origin).parent if find_spec("vllm") else None
pytestmark = pytest.mark.skipif(ROOT is None, reason="vLLM is not installed")


def members(file, name):
    """Methods, and attributes assigned to `self`, of a class in a vLLM source file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    names = {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(found):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.setdefault(node.attr, node)
        if isinstance(node, ast.AnnAssign):
            names.setdefault(getattr(node.target, "id", getattr(node.target, "attr", "")), node)
    return names


def test_scheduler_names():
    found = members("v1/core/sched/scheduler.py", "Scheduler")
    assert {
        "dynamic_sd_lookup", "num_spec_tokens", "running", "waiting", "requests", "schedule", "update_from_output",
        "update_draft_token_ids", "shutdown",
    } <= set(found)  # fmt: skip
    assert [arg.arg for arg in found["update_from_output"].args.args][1:] == ["scheduler_output", "model_runner_output"]
    assert [arg.arg for arg in found["update_draft_token_ids"].args.args][1:] == ["draft_token_ids"]


def test_data_names():
    assert {"num_scheduled_tokens", "scheduled_spec_decode_tokens", "num_spec_tokens_to_schedule"} <= set(
        members("v1/core/sched/output.py", "SchedulerOutput")
    )
    assert {"req_ids", "draft_token_ids"} <= set(members("v1/outputs.py", "DraftTokenIds"))
    assert {"sampled_token_ids", "req_id_to_index"} <= set(members("v1/outputs.py", "ModelRunnerOutput"))
    assert {"num_output_tokens", "sampling_params", "request_id", "output_token_ids"} <= set(
        members("v1/request.py", "Request")
    )


def test_only_the_adapter_imports_vllm():
    room = Path(__file__).parents[3] / "serve" / "speculation"
    importing = {
        path.name
        for path in room.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm")
        or (isinstance(node, ast.Import) and any(name.name.split(".")[0] == "vllm" for name in node.names))
    }
    assert importing == {"vllm_scheduler.py"}
