"""What executes the graph, and the command line."""
