"""The gate: what is wrong with a corpus is found before anything is learned from it."""
