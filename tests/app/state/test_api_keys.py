"""API keys in the store."""

from __future__ import annotations

import pytest

from app.errors import BadRequestError, NotFoundError
from app.state.api_keys import KIND, ApiKeys, digest_key
from app.state.base import Admit, Record
from tests.app.state.memory import MemoryStateStore


@pytest.fixture
def store() -> MemoryStateStore:
    return MemoryStateStore()


def test_a_key_is_found_by_its_digest_and_stored_nowhere(store: MemoryStateStore) -> None:
    keys = ApiKeys(store)
    assert not keys.exist()
    secret, record = keys.add("alice", {"losses", "read:*"}, now=1000.9, seconds=60)
    assert keys.exist()
    assert record.digest == digest_key(secret)
    assert keys.get(record.digest) == record
    assert (record.owner, record.created, record.expires) == ("alice", 1000, 1060)
    assert keys.get(digest_key("another")) is None
    stored = b"".join(record.id.encode() + record.value for record in store.list(KIND).records)
    assert secret.encode() not in stored


def test_states_of_a_key(store: MemoryStateStore) -> None:
    keys = ApiKeys(store)
    _, lasting = keys.add("alice", {"losses"}, now=0)
    _, short = keys.add("alice", {"losses"}, now=0, seconds=10)
    assert (lasting.state(1e12), short.state(9), short.state(10)) == ("valid", "valid", "expired")
    keys.revoke(short.ident, now=5)
    revoked = keys.get(short.digest)
    assert revoked is not None
    assert (revoked.state(6), revoked.revoked) == ("revoked", 5)


def test_keys_are_revoked_by_id_or_by_owner(store: MemoryStateStore) -> None:
    keys = ApiKeys(store)
    mine = [keys.add("alice", {"losses"}, now=0)[1] for _ in range(3)]
    other = keys.add("bob", {"losses"}, now=0)[1]
    assert [key.digest for key in keys.revoke(mine[0].ident, now=1)] == [mine[0].digest]
    assert {key.digest for key in keys.revoke("alice", now=2)} == {k.digest for k in mine[1:]}
    for name in ("alice", mine[0].ident, other.ident[:5], other.digest[:7], "", "nobody"):
        with pytest.raises(NotFoundError, match="no key"):
            keys.revoke(name, now=3)
    assert {key.owner for key in keys.records() if key.revoked is None} == {"bob"}
    keys.revoke(other.digest, now=4)
    # No key is valid any more, but the service has had some: it lets nobody in.
    assert keys.exist()


@pytest.mark.parametrize("owner", ["", "x" * 101, "a\nb", "\x1b[0m"])
def test_owners_need_names(store: MemoryStateStore, owner: str) -> None:
    with pytest.raises(BadRequestError, match="not a name"):
        ApiKeys(store).add(owner, {"losses"}, now=0)


def test_keys_are_all_revoked_though_somebody_else_revokes_one_of_them() -> None:
    class Racing(MemoryStateStore):
        """A store in which somebody else swaps every record first, once."""

        swapped = False

        def compare_and_swap(
            self, seen: Record, value: bytes, *, size: int | None = None, admit: Admit | None = None
        ) -> Record:
            if not self.swapped:
                self.swapped = True
                super().compare_and_swap(seen, value)
            return super().compare_and_swap(seen, value, size=size, admit=admit)

    keys = ApiKeys(Racing())
    for _ in range(2):
        keys.add("alice", ["runs"], 0)
    assert len(keys.revoke("alice", 1)) == 1
    assert all(key.revoked == 1 for key in keys.records())
