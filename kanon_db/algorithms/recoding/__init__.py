"""What classes and graphs of matches stand on: microdata, losses, cells, refinement."""
