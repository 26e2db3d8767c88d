"""What owners do at once with datasets, views, pipelines, inputs and keys."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from app.http.identity import Identity

from .pairs import Act, Plan
from .points import Shared
from .scheduler import Scheduler
from .things_world import ALICE, BOB, DAY, DAYS, ROOT, Desk, Serial, ThingsWorld, after, begun

MONTHS = 2 * DAYS * DAY


def _act(name: str, run: Callable[[Desk], Hashable]) -> Act[Desk]:
    # Which codes are right depends on the order: see ThingsWorld.
    codes = ("not-found", "head-exists", "head-conflict", "input-gone", "quota-exceeded")
    return Act(name, run, frozenset(codes))


def _of_owners(kind: str) -> dict[str, Act[Desk]]:
    """The acts of two owners, and of the administrator, with things of a kind."""

    def do(method: str, who: Identity) -> Callable[[Desk], Hashable]:
        return lambda desk: cast("Hashable", getattr(desk, method)(who))

    use = "use_input" if kind == "input" else f"open_{kind}"
    acts = {
        "alice posts": do(kind, ALICE),
        "bob posts": do(kind, BOB),
        "alice deletes": do(f"delete_{kind}", ALICE),
        "bob deletes": do(f"delete_{kind}", BOB),
        "root deletes": do(f"delete_{kind}", ROOT),
        "alice uses": do(use, ALICE),
        "alice posts another": do(f"another_{kind}", ALICE),
    }
    return {name: _act(f"{name} {kind}", run) for name, run in acts.items()}


OTHER = _act("alice posts another dataset", lambda d: d.dataset(ALICE, "other.npy"))
KEYS = (
    _act("add", lambda d: d.add_key("alice")),
    _act("revoke alice", lambda d: d.revoke_all("alice")),
    _act("revoke one", lambda d: d.revoke(next(k.digest for k in d.keys.records()))),
)
ADOPT = _act("adopt", lambda d: d.adopt())
KINDS: Mapping[str, Mapping[str, Act[Desk]]] = {
    kind: _of_owners(kind) for kind in ("dataset", "view", "pipeline", "input")
}
STATES = (
    *(
        state
        for kind in KINDS
        for state in (
            *(f"no {kind}", f"alice's {kind}", f"both's {kind}", f"old {kind}s"),
            *(f"room for one {kind}", f"no room for another {kind}"),
            f"bytes for one {kind}",
        )
    ),
    "alice's keys",
    "all of alice's",
)


def _bytes_of(kind: str, begin: Shared, directory: Path, *acts: Act[Desk]) -> int:
    """Bytes of a kind that some acts store."""
    usage = after(begin, directory, *acts).usage()
    return sum(nbytes for (each, _), (_, nbytes) in usage.items() if each == kind)


def plans(scheduler: Scheduler, directory: Path) -> list[Plan[Desk]]:
    """All pairs of acts with one kind of thing, from several states."""
    new = begun(scheduler, directory)
    found: list[Plan[Desk]] = []

    def add(state: str, begin: Shared, acts: Sequence[Act[Desk]], count: int = 2) -> None:
        ends: dict[Hashable, Hashable] = {}
        known: dict[Hashable, dict[tuple[bool, ...], Serial]] = defaultdict(dict)
        for together in (False, True):
            for chosen in itertools.combinations_with_replacement(acts, count):
                deletes = sum("deletes" in act.name for act in chosen)
                if all(act.name.startswith("root deletes") for act in chosen):
                    # Each may be told of a part.
                    continue
                if deletes and any(act.name == "sweep" for act in chosen):
                    # To sweep takes several steps, and to look who is left counts as a use.
                    continue
                # One after the other, acts in one process are as those in several.
                serial = known[tuple(act.name for act in chosen)]
                world = ThingsWorld(
                    directory, begin, chosen, locks=together, ends=ends, known=serial
                )
                found.append(Plan(world, state, begin, chosen, together))

    data = [KINDS["dataset"][f"{name} posts"] for name in ("alice", "bob")]
    for kind, acts in KINDS.items():
        needed = data if kind in {"view", "pipeline"} else []
        posts = [acts["alice posts"], acts["bob posts"]]
        extra = [OTHER] if kind == "dataset" else []
        another = acts["alice posts another"]
        every = [*(act for act in acts.values() if act is not another), *extra]
        add(f"no {kind}", after(new, directory, *needed), every)
        add(f"alice's {kind}", after(new, directory, *needed, posts[0]), every)
        # Of one owner, at the limit: bob's are counted apart.
        limited = [posts[0], another, acts["alice deletes"], acts["bob posts"]]
        without, having = after(new, directory, *needed), after(new, directory, *needed, posts[0])
        add(f"room for one {kind}", without.limited(**{kind: 1}), limited)
        add(f"no room for another {kind}", having.limited(**{kind: 1}), limited)
        sizes = (_bytes_of(kind, new, directory, *needed, act) for act in (posts[0], another))
        room = max(sizes) - _bytes_of(kind, new, directory, *needed)
        add(f"bytes for one {kind}", without.cramped(**{kind: room}), limited)
        # What is handed over leaves views and pipelines without it for a moment.
        handed = [ADOPT] if kind in {"dataset", "input"} else []
        add(f"both's {kind}", after(new, directory, *needed, *posts), [*every, *handed])
        old = after(new, directory, *needed, *posts, seconds=MONTHS)
        add(f"old {kind}s", old, [*every, _act("sweep", partial(Desk.sweep, kind=kind))])
    add("alice's keys", after(new, directory, KEYS[0], KEYS[0]), KEYS)
    everything = after(new, directory, *data[:1], *(KINDS[k]["alice posts"] for k in KINDS))
    add("all of alice's", everything, [ADOPT, *(a["alice deletes"] for a in KINDS.values()), OTHER])
    return found
