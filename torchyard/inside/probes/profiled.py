"""Whether the profiler writes a trace in which the work is found."""

import json
import os
import tempfile


def facts(device):
    """How many events the trace has, and the names of those that matter."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        with profile(activities=kinds) as profiler:
            torch.ones(64, 64, device=device).matmul(torch.ones(64, 64, device=device)).sum().item()
        profiler.export_chrome_trace(path)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    names = {event.get("name", "") for event in events}
    kernels = sum(event.get("cat") == "kernel" for event in events)
    return {"events": len(events), "operations": sorted(n for n in names if n.startswith("aten::")), "kernels": kernels}
