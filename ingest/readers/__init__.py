"""Readers: a file in, documents and bad records out, in the order of the file. A module for each family of formats."""
