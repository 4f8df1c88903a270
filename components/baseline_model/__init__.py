"""What is served now, as an artifact: the model against which a new one is judged, and from which it may start.

It stands where TFX's examples have a Resolver: what the registry serves is the honest baseline, whichever run pushed
it, and the graph needs nothing but plain containers.
"""
