"""Runs a private PostgreSQL in a folder that only its owner can use."""

from kanon_db.cluster.local_cluster import ClusterStatus, LocalCluster, default_directory

__all__ = ["ClusterStatus", "LocalCluster", "default_directory"]
