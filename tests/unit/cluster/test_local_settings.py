import pytest

from kanon_db.cluster.local_settings import MEGABYTE, configuration, settings


@pytest.mark.parametrize(
    ("memory", "shared_buffers", "effective_cache_size"),
    [
        (512, "128MB", "256MB"),  # never below 128 MB
        (4096, "256MB", "2048MB"),  # a sixteenth
        (65536, "512MB", "32768MB"),  # never above 512 MB
    ],
)
def test_memory(memory: int, shared_buffers: str, effective_cache_size: str) -> None:
    chosen = settings(memory * MEGABYTE, 2048 * MEGABYTE, "/srv")
    assert chosen["shared_buffers"] == shared_buffers
    assert chosen["effective_cache_size"] == effective_cache_size


def test_small_shared_memory_is_not_used() -> None:
    assert settings(4096 * MEGABYTE, 64 * MEGABYTE, "/srv")["dynamic_shared_memory_type"] == "mmap"
    assert "dynamic_shared_memory_type" not in settings(4096 * MEGABYTE, 2048 * MEGABYTE, "/srv")


def test_quotes_in_values_stay_in_the_value() -> None:
    lines = configuration({"unix_socket_directories": "/srv/o'brien"}).splitlines()
    assert lines[1:] == ["unix_socket_directories = '/srv/o''brien'"]
