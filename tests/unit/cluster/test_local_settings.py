import pytest

from kanon_db.cluster.local_cluster import MEGABYTE, cluster_settings, configuration


@pytest.mark.parametrize(
    ("memory", "effective_cache_size"), [(512, "256MB"), (4096, "2048MB"), (65536, "32768MB")]
)
def test_half_of_the_memory_may_have_cached_files(memory: int, effective_cache_size: str) -> None:
    chosen = cluster_settings(memory * MEGABYTE, 2048 * MEGABYTE, "/srv")
    assert chosen["effective_cache_size"] == effective_cache_size


def test_small_shared_memory_is_not_used() -> None:
    assert (
        cluster_settings(4096 * MEGABYTE, 64 * MEGABYTE, "/srv")["dynamic_shared_memory_type"]
        == "mmap"
    )
    assert "dynamic_shared_memory_type" not in cluster_settings(
        4096 * MEGABYTE, 2048 * MEGABYTE, "/srv"
    )


def test_quotes_in_values_stay_in_the_value() -> None:
    lines = configuration({"unix_socket_directories": "/srv/o'brien"}).splitlines()
    assert lines[1:] == ["unix_socket_directories = '/srv/o''brien'"]
