"""The stream policy that command line options describe."""

from __future__ import annotations

import argparse
from typing import Any

from core.losses.policy import Policy


def policy_of(args: argparse.Namespace, **fields: Any) -> Policy:  # noqa: ANN401 - of Policy
    """Return the policy of parsed options; ``fields`` are those without an option."""
    return Policy(
        float_width=args.float_width,
        nan=args.nan,
        negative=args.negative,
        sample_order=args.sample_order,
        missing_end=args.missing_end,
        max_samples=args.max_samples,
        **fields,
    )
