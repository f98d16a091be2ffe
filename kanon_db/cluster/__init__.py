"""A private PostgreSQL in a folder."""

from kanon_db.cluster.local import ClusterStatus, LocalCluster, default_directory

__all__ = ["ClusterStatus", "LocalCluster", "default_directory"]
