"""What a stream may hold, as the options of a command say."""

from __future__ import annotations

import argparse
from typing import Any

from core.losses.policy import Policy


def policy_of(args: argparse.Namespace, **more: Any) -> Policy:  # noqa: ANN401 - fields of Policy
    """The policy that the options of a command ask for."""
    return Policy(
        float_width=args.float_width,
        nan=args.nan,
        negative=args.negative,
        sample_order=args.sample_order,
        max_samples=args.max_samples,
        **more,
    )
