"""A private PostgreSQL in a folder."""

from kanon_db.cluster.local import DEFAULT_DIRECTORY, ClusterStatus, LocalCluster

__all__ = ["DEFAULT_DIRECTORY", "ClusterStatus", "LocalCluster"]
