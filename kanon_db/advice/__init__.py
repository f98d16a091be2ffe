"""What to publish: candidates, tried as dry runs and set side by side, with reasons."""
