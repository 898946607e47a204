"""Whether torch and numpy exchange arrays, as almost every data set makes them."""

import warnings


def facts(device):
    """A tensor made of an array, an array made of a tensor, and what was said on the way."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            import numpy
        except ModuleNotFoundError as error:
            if error.name == "numpy":
                return {"absent": True}
            raise
        import torch

        there = float(torch.from_numpy(numpy.arange(5, dtype=numpy.float32)).to(device).sum())
        back = float(torch.arange(5, dtype=torch.float32, device=device).cpu().numpy().sum())
        solved = float(numpy.linalg.solve(numpy.eye(3) * 2, numpy.ones(3)).sum())
    said = sorted({str(each.message)[:400] for each in caught if "numpy" in str(each.message).lower()})
    return {"numpy": numpy.__version__, "there": there, "back": back, "solved": solved, "warnings": said}
