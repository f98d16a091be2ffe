"""Models that readers ask, trained on the source and answering by vote [TH]."""
