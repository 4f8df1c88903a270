"""The command line, `tokenmill`. Starts fast: what is heavy is imported by the command that needs it."""
