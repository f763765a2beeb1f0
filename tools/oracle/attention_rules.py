"""Which SDPA kernel a GPU takes. Without torch, so that the check of the facts needs none."""

MASK_COLUMNS = 8


def kernel_of(dtype: str, head_dim: int, mask: bool) -> str:
    """The kernel that torch takes on a GPU of compute capability 8. dtype: f32 or bf16."""
    half = dtype == "bf16"
    if half and not mask and head_dim <= 256:
        return "flash"
    return "efficient" if head_dim % (8 if half else 4) == 0 else "math"


def padded_width(width: int, multiple: int = 8) -> int:
    return -(-width // multiple) * multiple
