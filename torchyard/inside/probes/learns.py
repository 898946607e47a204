"""Whether a small network learns in mixed precision: bf16 under autocast, and fp16 with a gradient scaler."""

STEPS = 20


def facts(device):
    """The first and the last loss of each way."""
    import torch

    return {
        "steps": STEPS,
        "bfloat16": _loss(torch, device, torch.bfloat16, scaled=False),
        "float16": _loss(torch, device, torch.float16, scaled=True),
    }


def _loss(torch, device, dtype, scaled):
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Conv1d(4, 16, 3, padding=1), torch.nn.GELU(), torch.nn.Flatten(), torch.nn.Linear(16 * 8, 1)
    ).to(device)
    x = torch.randn(64, 4, 8, device=device)
    y = x.mean((1, 2), keepdim=False)[:, None] * 3 + 1
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    try:
        scaler = torch.amp.GradScaler(device, enabled=scaled)
    except (AttributeError, TypeError):  # a torch before 2.3
        scaler = torch.cuda.amp.GradScaler(enabled=scaled and device == "cuda")
    losses, lowered = [], ""
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=dtype):
            out = model(x)
            lowered = str(out.dtype).replace("torch.", "")
        loss = torch.nn.functional.mse_loss(out.float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(float(loss.detach()))
    return {"first": losses[0], "last": losses[-1], "computed_in": lowered}
