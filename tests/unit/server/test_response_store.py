"""The store of responses: bounded, and each tenant sees its own only."""

from octavo.server.responses.store import ResponseStore, StoredResponse


def stored(name, size=10):
    return StoredResponse({"id": name, "output": "x" * size}, [], [])


def test_a_response_is_found_by_its_own_tenant_only():
    store = ResponseStore(10_000)
    store.put("a", stored("r1"))
    assert store.get("a", "r1").response["id"] == "r1"
    assert store.get("b", "r1") is None
    assert not store.delete("b", "r1")
    assert store.delete("a", "r1")
    assert store.get("a", "r1") is None
    assert not store.delete("a", "r1")


def test_the_oldest_of_the_fullest_tenant_goes_first():
    store = ResponseStore(1000)
    store.put("small", stored("s", 100))
    for i in range(9):
        store.put("large", stored(f"l{i}", 150))
    assert store.get("small", "s") is not None
    kept = [i for i in range(9) if store.get("large", f"l{i}") is not None]
    assert kept == list(range(9))[-len(kept) :] and 3 <= len(kept) < 9


def test_the_number_is_bounded_too():
    store = ResponseStore(10_000, max_responses=3)
    for i in range(5):
        store.put("a", stored(f"r{i}"))
    assert [i for i in range(5) if store.get("a", f"r{i}")] == [2, 3, 4]


def test_one_that_is_larger_than_the_store_is_not_kept_and_costs_no_other():
    store = ResponseStore(1000)
    store.put("a", stored("r"))
    store.put("a", stored("huge", 2000))
    assert store.get("a", "huge") is None
    assert store.get("a", "r") is not None


def test_a_store_of_no_bytes_keeps_nothing():
    store = ResponseStore(0)
    store.put("a", stored("r"))
    assert not store.is_open
    assert store.get("a", "r") is None
