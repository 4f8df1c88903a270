"""SequencePacker: token ids of documents in, rows of constant length out, with a ledger that balances."""
