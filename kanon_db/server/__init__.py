"""The private local cluster, installation and its health."""
