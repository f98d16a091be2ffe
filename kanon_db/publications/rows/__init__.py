"""What the three kinds that publish rows share: cells, the view, the source as codes."""
