"""Settings of a private cluster, chosen for the machine."""

from __future__ import annotations

from collections.abc import Mapping

MEGABYTE = 1 << 20


def settings(memory: int, shared_memory: int, socket: str) -> dict[str, str]:
    """Choose the settings of a private cluster.

    Parameters
    ----------
    memory : int
        Memory that the server can count on, in bytes.
    shared_memory : int
        Size of the system's shared memory file system, in bytes.
    socket : str
        Directory of the Unix socket.

    Returns
    -------
    dict of str to str
        The values of the settings, by name.

    Examples
    --------
    >>> settings(4096 * MEGABYTE, 2048 * MEGABYTE, "/srv/socket")["effective_cache_size"]
    '2048MB'
    """
    chosen = {
        "listen_addresses": "",
        "unix_socket_directories": socket,
        "unix_socket_permissions": "0700",
        "port": "5432",
        # Tables are read from the system's cache about as fast, which no backend counts as its own.
        "shared_buffers": "128MB",
        "effective_cache_size": _megabytes(memory // 2),
        "work_mem": "64MB",
        "maintenance_work_mem": "256MB",
        # Nobody replicates a private cluster, so bulk loads need no write-ahead log.
        "wal_level": "minimal",
        "max_wal_senders": "0",
        "max_wal_size": "4GB",
        "fsync": "on",
        "synchronous_commit": "on",
        # Compiling costs more than it saves on sums over one publication.
        "jit": "off",
        # No data in the log: an error's message, its detail and its statement may quote rows.
        "log_min_messages": "log",
        "log_min_error_statement": "panic",
        "log_error_verbosity": "terse",
        "log_statement": "none",
        "log_min_duration_statement": "-1",
        "log_checkpoints": "off",
        "logging_collector": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
    }
    if shared_memory < 1024 * MEGABYTE:
        # Containers give /dev/shm 64 MB, which one parallel hash join exhausts.
        chosen["dynamic_shared_memory_type"] = "mmap"
    return chosen


def configuration(chosen: Mapping[str, str]) -> str:
    """Write settings as the text of a configuration file.

    Examples
    --------
    >>> print(configuration({"timezone": "UTC"}), end="")
    # Written at every start of the private cluster; use ALTER SYSTEM for your own settings.
    timezone = 'UTC'
    """
    lines = [
        "# Written at every start of the private cluster; use ALTER SYSTEM for your own settings."
    ]
    for name, value in chosen.items():
        quoted = value.replace("'", "''")
        lines.append(f"{name} = '{quoted}'")
    return "\n".join(lines) + "\n"


def _megabytes(size: int) -> str:
    return f"{size // MEGABYTE}MB"
